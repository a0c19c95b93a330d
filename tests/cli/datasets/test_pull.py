"""`tpuctl data pull` as a user runs it: the folder it fills is read by the command that it prints."""

from __future__ import annotations

import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data.source_trees import write_image
from tests.forks import commands
from tests.forks.tensorflow_python import python
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.polling import Backoff, poll

Tpuctl = Callable[..., CommandResult]
FOLDER = "datasets/pets/1.0.0/"


@pytest.fixture(autouse=True)
def pets(simulator: RunningSimulator, tpuctl: Tpuctl, home: Path) -> None:
    """A dataset of two classes."""
    for name in ("cat", "dog"):
        for index in range(4):
            write_image(Path("pictures") / name / f"{index}.png", shade=index)
    result = tpuctl("data", "upload", "pets", "pictures", "--split", "train=1", "--shards", "2")
    assert result.code == 0, result.err


def check(bucket: Bucket, folder: Path) -> None:
    stored = {item.name.removeprefix(FOLDER): bucket.read(item.name) for item in bucket.objects(FOLDER)}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == stored


def test_the_next_command_reads_what_is_here(tpuctl: Tpuctl, bucket: Bucket) -> None:
    result = tpuctl("data", "pull", "pets", "--to", "it's here")
    assert result.code == 0, result.err
    check(bucket, Path("it's here"))
    assert [line.split()[0] for line in result.out.splitlines()] == ["dataset", "files", "where"]
    command = shlex.split(result.err.rpartition("Next: ")[2])
    assert command[:2] == ["python", "-c"]
    read = python(*command[1:], variables={})
    assert read.returncode == 0, read.stderr
    assert "name='pets'" in read.stdout


def test_the_json_form_counts_what_was_here(tpuctl: Tpuctl, bucket: Bucket) -> None:
    first = tpuctl("data", "pull", "pets", "--json").json
    assert (first["dataset"], first["folder"], first["kept"]) == ("pets/1.0.0", "pets", 0)
    again = tpuctl("data", "pull", "pets/1.0.0", "--json").json
    assert again["kept"] == again["files"] == first["files"]
    check(bucket, Path("pets"))


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("cows",), 4, "There is no dataset 'cows'"),
        (("pets/2.0.0",), 4, "pets/2.0.0"),
        (("../pets",), 4, "There is no dataset '../pets'"),
        (("pets", "--to", "pictures"), 2, "pictures has files that are not of dataset pets/1.0.0."),
        (("pets", "--to", "pictures/cat/0.png"), 2, "cannot be written"),
        (("pets", "--to", "gs://b/x"), 2, "gs://b/x"),
    ],
)
def test_what_cannot_be_is_refused(tpuctl: Tpuctl, arguments: tuple[str, ...], code: int, word: str) -> None:
    result = tpuctl("data", "pull", *arguments)
    assert (result.code, word in result.err) == (code, True), result.err
    assert not Path("pets").exists()


def test_two_into_one_folder_at_once_are_both_whole(bucket: Bucket) -> None:
    pulls = [commands.start("data", "pull", "pets", stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in pulls:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    check(bucket, Path("pets"))


def test_one_that_is_interrupted_says_that_the_same_command_goes_on(
    tpuctl: Tpuctl, bucket: Bucket, simulator: RunningSimulator
) -> None:
    simulator.faults.add("gcs-stall", method="storage.objects.get", object="*/pets-train.tfrecord-00001*")
    with commands.start("data", "pull", "pets", stderr=subprocess.PIPE, text=True) as process:

        def has_asked() -> bool | None:
            assert process.poll() is None, process.communicate()
            requests = simulator.events.find(kind="request", service="storage", what="*objects.get")
            return any("tfrecord-00001" in request.resource for request in requests) or None

        poll(has_asked, awaiting="the request", timeout=300, backoff=Backoff(0.05, 0.2))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Interrupted: pets has not all of dataset pets/1.0.0." in err
    assert "Run the same command again: what has arrived is kept." in err
    simulator.faults.clear()
    assert tpuctl("data", "pull", "pets").code == 0
    check(bucket, Path("pets"))
