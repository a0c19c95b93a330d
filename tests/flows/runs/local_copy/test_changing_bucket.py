"""A pull while TensorFlow rotates checkpoints in the bucket has a state of the bucket, and nothing half."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.flows.runs.records import write_run
from tests.forks.tensorflow_python import python
from tests.running_simulator import CommandResult
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs import checkpoints as tensorflow
from tpuctl.flows.runs.pull import PullResult, pull
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.polling import poll

WRITER = """
import itertools, os, sys
import tensorflow as tf
managers = [
    tf.train.CheckpointManager(
        tf.train.Checkpoint(values=tf.Variable(tf.zeros([50_000]))), f"{sys.argv[1]}/keep-{keep}", keep
    )
    for keep in (1, 3)
]
for number in itertools.count(1):
    for manager in managers:
        manager.save(number)
    if os.path.exists(sys.argv[2]):
        break
"""
"""Saves without a pause until a file exists."""
PULLS = 6


@pytest.fixture
def changing_run(bucket: Bucket) -> StoredRun:
    return write_run(bucket)


@pytest.fixture
def writer(tpuctl: Callable[..., CommandResult], changing_run: StoredRun, tmp_path: Path) -> Iterator[None]:
    """TensorFlow at work, both of whose folders have a state file."""
    variables = tpuctl("sim", "env", "--json").json["environment"]
    place = f"gs://{changing_run.bucket.name}/{changing_run.paths.checkpoints}".rstrip("/")
    ended = []

    def write() -> None:
        ended.append(python("-c", WRITER, place, tmp_path / "stop", variables=variables))

    thread = Thread(target=write, daemon=True)
    thread.start()

    def is_writing() -> bool | None:
        assert not ended, ended[0].stderr
        names = [item.name for item in changing_run.bucket.objects(changing_run.paths.checkpoints)]
        return len([name for name in names if name.endswith("/checkpoint")]) == 2 or None

    try:
        poll(is_writing, awaiting="TensorFlow's first checkpoints", timeout=300)
        yield
    finally:
        (tmp_path / "stop").touch()
        thread.join()
    assert ended[0].returncode == 0, ended[0].stderr


def test_a_pull_during_training_has_whole_checkpoints(
    writer: None, changing_run: StoredRun, tmp_path: Path
) -> None:
    for number in range(PULLS):
        result = pull(changing_run, tmp_path / str(number), lambda text: None)
        assert result.refused == ()
        check_result(result)


def check_result(result: PullResult) -> None:
    """Every state file names a newest checkpoint that is whole, and no other file of a checkpoint is here."""
    folders = list((result.folder / "checkpoints").iterdir())
    assert len(folders) == 2
    for folder in folders:
        files = {path.name for path in folder.iterdir()}
        state = (folder / "checkpoint").read_text()
        newest = re.findall(r'^model_checkpoint_path: "(.+)"', state, re.MULTILINE)
        checkpoints = {name.partition(".")[0] for name in files - {"checkpoint"}}
        assert set(newest) <= checkpoints
        for checkpoint in checkpoints:
            own = {name for name in files if name.startswith(f"{checkpoint}.")}
            assert tensorflow.missing(checkpoint, own) == ""
