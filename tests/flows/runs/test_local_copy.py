"""A copy of a run: which parts of it, from a bucket that changes, killed at any moment.

Its paths and joined logs.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.flows.runs.records import write_chunk, write_run
from tests.forks import commands
from tests.forks.tensorflow_python import python
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket, Object
from tpuctl.errors import DeadlineError, NotFoundError
from tpuctl.flows.runs import checkpoints as tensorflow
from tpuctl.flows.runs.checkpoints import Checkpoint, Listing
from tpuctl.flows.runs.local_copy import Parts, Selection, assign_paths, joined_logs, part_of
from tpuctl.flows.runs.pull import PullResult, follow, pull
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.local.staged_folder import STAGING
from tpuctl.object_content import Content
from tpuctl.polling import poll

STATE = b"""\
model_checkpoint_path: "ckpt-2"
all_model_checkpoint_paths: "ckpt-1"
all_model_checkpoint_paths: "ckpt-2"
"""


def put(bucket: Bucket, name: str, data: bytes = b"x") -> None:
    bucket.upload(f"runs/r1/{name}", [data], "application/octet-stream")


def put_checkpoint(bucket: Bucket, step: int) -> None:
    for suffix in ("index", "data-00000-of-00001"):
        put(bucket, f"checkpoints/ckpt-{step}.{suffix}", str(step).encode())


@pytest.fixture
def run(bucket: Bucket) -> StoredRun:
    stored = write_run(bucket)
    write_chunk(stored.last_attempt(), 0, 1, "one\n")
    for step in (1, 2, 3):
        put_checkpoint(bucket, step)
    put(bucket, "checkpoints/checkpoint", STATE)
    put(bucket, "outputs/weights-2.h5")
    put(bucket, "tensorboard/events")
    return stored


def fetch(run: StoredRun, folder: Path, selection: Selection) -> PullResult:
    return pull(run, folder, lambda text: None, selection)


def names(folder: Path) -> set[str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix() for path in paths}


RECORDS = {"run.json", "attempts/1/attempt.json"}
LOGS = {"logs/attempt-1-worker-0.log", "attempts/1/workers/0/log/000001.log"}


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ({"logs"}, LOGS),
        ({"outputs", "tensorboard"}, {"outputs/weights-2.h5", "tensorboard/events"}),
        ((), set()),
    ],
)
def test_parts_come_with_the_records(
    run: StoredRun, tmp_path: Path, only: Collection[str], expected: set[str]
) -> None:
    fetch(run, tmp_path / "r1", Selection(only))
    assert names(tmp_path / "r1") == RECORDS | expected


@pytest.mark.parametrize(("selection", "step"), [(Selection(latest=True), 2), (Selection(step=1), 1)])
def test_the_state_file_names_the_step_that_is_here(
    run: StoredRun, tmp_path: Path, selection: Selection, step: int
) -> None:
    result = fetch(run, tmp_path / "r1", selection)
    own = {f"checkpoints/ckpt-{step}.index", f"checkpoints/ckpt-{step}.data-00000-of-00001"}
    assert {name for name in names(tmp_path / "r1") if "ckpt-" in name} == own
    state = (tmp_path / "r1/checkpoints/checkpoint").read_text()
    assert state == f'model_checkpoint_path: "ckpt-{step}"\nall_model_checkpoint_paths: "ckpt-{step}"\n'
    assert [checkpoint.step for checkpoint in result.checkpoints] == [step]


def test_a_step_that_is_not_committed_is_named_with_those_that_are(run: StoredRun, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no committed checkpoint of step 3") as missing:
        fetch(run, tmp_path / "r1", Selection(step=3))
    assert missing.value.hint == "The newest are of step 1, 2."


def test_unfinished_ones_come_if_asked_for(run: StoredRun, tmp_path: Path) -> None:
    result = fetch(run, tmp_path / "r1", Selection(unfinished=True))
    assert "checkpoints/ckpt-3.index" in names(tmp_path / "r1")
    assert result.unfinished == ()


def test_a_copy_that_follows_has_what_the_bucket_has_at_the_end(
    bucket: Bucket, run: StoredRun, simulator: RunningSimulator, tmp_path: Path
) -> None:
    def downloads() -> int:
        found = simulator.events.find(kind="request", service="storage", what="*objects.get")
        return len([request for request in found if "weights-2.h5" in request.resource])

    looks = iter([False, False, True])

    def train(seconds: float) -> None:
        assert seconds == 10.0
        put_checkpoint(bucket, 3)
        put(bucket, "checkpoints/checkpoint", b'model_checkpoint_path: "ckpt-3"\n')
        for item in bucket.objects("runs/r1/checkpoints/ckpt-1."):
            bucket.remove(item)

    result = follow(run, tmp_path / "r1", lambda text: None, lambda: next(looks), sleep=train)
    stored = {item.name.removeprefix("runs/r1/") for item in bucket.objects("runs/r1/")}
    assert names(tmp_path / "r1") == {name for name in stored if "ckpt-2" not in name} | LOGS
    assert [checkpoint.step for checkpoint in result.checkpoints] == [3]
    assert downloads() == 1, "what is unchanged was fetched once"


def test_a_copy_that_follows_outlasts_what_does_not_answer_and_says_so_once(
    bucket: Bucket, run: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports, read = list[str](), Bucket.download

    def fail(own: Bucket, item: Object, *rest: Any) -> None:
        if "ckpt-2.data" in item.name:
            raise DeadlineError("No answer.")
        read(own, item, *rest)

    def has_ended() -> bool:
        look = next(looks)
        monkeypatch.setattr(Bucket, "download", read if look > 4 else fail)
        if look < 3:
            raise DeadlineError("No answer.")
        return look == 6

    looks = iter(range(1, 7))
    result = follow(run, tmp_path / "r1", reports.append, has_ended, sleep=lambda seconds: None)
    stored = {item.name.removeprefix("runs/r1/") for item in bucket.objects("runs/r1/")}
    assert names(tmp_path / "r1") == {name for name in stored if "ckpt-3" not in name} | LOGS
    assert [checkpoint.step for checkpoint in result.checkpoints] == [1, 2]
    assert [text for text in reports if "fetching" not in text] == ["No answer. Still following."]


def test_a_copy_that_follows_fails_where_the_bucket_does_not_answer_after_the_end(
    run: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(own: Bucket, item: Object, *rest: Any) -> None:
        raise DeadlineError("No answer.")

    monkeypatch.setattr(Bucket, "download", fail)
    with pytest.raises(DeadlineError, match="No answer"):
        follow(run, tmp_path / "r1", lambda text: None, lambda: True)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("run.json", "records"), ("attempts/1/attempt.json", "records"),
        ("attempts/1/workers/0/status.json", "records"), ("attempts/1/workers/0/log/000001.log", "logs"),
        ("attempts/1/log/20260101T120000-0000-000001.log", "logs"), ("attempts/1/log/a\nb", "logs"),
        ("attempts/1/log", "records"), ("log/x", "records"), ("checkpoints/a", "checkpoints"),
        ("tensorboard/a", "tensorboard"), ("outputs/attempts/1/log/x", "outputs"), ("logs/x", "records"),
    ],
)  # fmt: skip
def test_an_object_is_of_one_part(name: str, part: str) -> None:
    assert part_of(name) == part
    assert Selection(()).has_part(name) == (part == "records")
    assert Selection((part,)).has_part(name)


def committed(*steps: int | None) -> tuple[Listing, list[Checkpoint]]:
    """Return checkpoints of these steps, each written after the one before."""
    names = [f"runs/r1/checkpoints/{number}" for number in range(len(steps))]
    objects = [
        Object(name, Content.of(b"x"), generation, "2026-01-01T12:00:00Z")
        for generation, name in enumerate(names, start=1)
    ]
    nothing: Any = None
    return Listing(nothing, objects), [
        Checkpoint(name, "TensorFlow", step, (name,)) for name, step in zip(names, steps, strict=True)
    ]


@pytest.mark.parametrize(
    ("selection", "steps", "chosen"),
    [
        (Selection(), (1, 2, None), [0, 1, 2]), (Selection(step=2), (1, 2, 2), [1, 2]),
        (Selection(step=0), (0, 1), [0]), (Selection(latest=True), (1, 3, 2), [2]),
        (Selection(latest=True), (2, 1, 2), [0, 2]), (Selection(latest=True), (None, 1, None), [2]),
        (Selection(latest=True), (), []), (Selection(), (), []),
    ],
)  # fmt: skip
def test_a_step_or_the_newest_is_chosen(
    selection: Selection, steps: tuple[int | None, ...], chosen: list[int]
) -> None:
    listing, checkpoints = committed(*steps)
    assert selection.choose(listing, checkpoints) == [checkpoints[number] for number in chosen]


@pytest.mark.parametrize(
    ("steps", "hint"),
    [
        ((), "The run has no committed checkpoint."),
        ((None,), "Its checkpoints have no number in their names."),
        ((3, 1, 3, None), "The newest are of step 1, 3."),
        (tuple(range(12)), "The newest are of step 2, 3, 4, 5, 6, 7, 8, 9, 10, 11."),
    ],
)  # fmt: skip
def test_without_the_step_the_newest_are_named(steps: tuple[int | None, ...], hint: str) -> None:
    with pytest.raises(NotFoundError) as missing:
        Selection(step=99).choose(*committed(*steps))
    assert missing.value.message == "There is no committed checkpoint of step 99."
    assert (missing.value.hint, missing.value.facts) == (hint, {"step": 99})


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


FILES = 12
FIRST_STATE = b'model_checkpoint_path: "ckpt-1"\n'


@pytest.fixture
def killed_run(bucket: Bucket) -> StoredRun:
    """A run with a checkpoint of several files, and others."""
    stored = write_run(bucket)
    write_chunk(stored.last_attempt(), 0, 1, "one\n")
    names = [f"outputs/{number}" for number in range(FILES)]
    names += [f"checkpoints/ckpt-1.data-{number:05}-of-00005" for number in range(5)]
    for name in (*names, "checkpoints/ckpt-1.index"):
        bucket.upload(f"runs/r1/{name}", [name.encode() * 50_000], "application/octet-stream")
    bucket.upload("runs/r1/checkpoints/checkpoint", [FIRST_STATE], "text/plain")
    return stored


def downloads(simulator: RunningSimulator) -> int:
    return len(simulator.events.find(kind="request", service="storage", what="*objects.get"))


def kill_after(simulator: RunningSimulator, folder: Path, requests: int) -> None:
    """Start a pull and kill it once it has sent so many requests for objects; it may have ended by then."""
    before = downloads(simulator)
    command = ("pull", "r1", "--to", str(folder))
    with commands.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:

        def has_sent() -> bool | None:
            return process.poll() is not None or downloads(simulator) - before >= requests or None

        poll(has_sent, awaiting="requests of the pull", timeout=300)
        process.send_signal(signal.SIGKILL)


def check(simulator: RunningSimulator, killed_run: StoredRun, folder: Path, moments: list[int]) -> None:
    """Kill at each of the moments, then complete; what the state file names is whole all the time."""
    for moment in moments:
        kill_after(simulator, folder, moment)
        checkpoints = folder / "checkpoints"
        if (checkpoints / "checkpoint").exists():
            assert len(os.listdir(checkpoints)) == 7
    pull(killed_run, folder, lambda text: None)
    stored = [item.name for item in killed_run.bucket.objects("runs/r1/")]
    for name in stored:
        assert (folder / name.removeprefix("runs/r1/")).read_bytes() == killed_run.bucket.read(name)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == len(stored) + 1, "the joined log"
    assert not (folder / STAGING).exists()


@pytest.mark.daily
def test_the_next_completes_it(simulator: RunningSimulator, killed_run: StoredRun, tmp_path: Path) -> None:
    check(simulator, killed_run, tmp_path / "r1", [3, 8, 16])


@pytest.mark.slow
def test_the_next_completes_it_after_fifty_kills(
    simulator: RunningSimulator, killed_run: StoredRun, tmp_path: Path
) -> None:
    moments = random.Random(14).choices(range(1, 30), k=50)
    for number in range(10):
        check(simulator, killed_run, tmp_path / str(number), moments[5 * number : 5 * number + 5])


FOLDER = "runs/r1/"
LOG = "attempts/1/workers/0/log/000001.log"


def assigned(*names: str, fold: bool = False) -> tuple[set[str], dict[str, str]]:
    """Return the names, below the run's folder, that get a path, and why the others get none."""
    full = [FOLDER + name for name in names]
    paths, refused = assign_paths(FOLDER, full, str.casefold if fold else str)
    assert all(FOLDER + "/".join(parts) == name for name, parts in paths.items())
    reasons = {name.removeprefix(FOLDER): reason for name, reason in refused.items()}
    return {name.removeprefix(FOLDER) for name in paths}, reasons


def test_a_path_is_the_name_below_the_runs_folder() -> None:
    assert assigned("run.json", LOG, "outputs/a b.h5") == ({"run.json", LOG, "outputs/a b.h5"}, {})


@pytest.mark.parametrize(
    ("name", "reason"), [("../x", "leads out of the folder"), (".git/config", "is a hidden file or folder")]
)
def test_a_name_that_is_not_safe_gets_none(name: str, reason: str) -> None:
    assert assigned("run.json", name) == ({"run.json"}, {name: reason})


def test_the_record_is_before_what_would_be_below_it() -> None:
    reason = "has the name of a file as that of its folder"
    assert assigned("run.json/x/y", "run.json") == ({"run.json"}, {"run.json/x/y": reason})


def test_a_file_yields_to_the_folder_of_a_deeper_one() -> None:
    assert assigned("outputs", "outputs/a") == ({"outputs/a"}, {"outputs": "has the name of a folder"})
    assert assigned("a/b", "a/b/c", "a") == (
        {"a/b/c"}, {"a/b": "has the name of a folder", "a": "has the name of a folder"},
    )  # fmt: skip


def test_a_joined_log_keeps_its_place() -> None:
    log = "logs/attempt-1-worker-0.log"
    assert assigned(log, LOG) == ({LOG}, {log: "has the name of another file on this disk"})
    assert assigned(log) == ({log}, {}), "without pieces nothing is joined"


def test_of_names_that_the_disk_takes_for_one_the_first_gets_the_path() -> None:
    both = ("outputs/A", "outputs/a")
    assert assigned(*both) == (set(both), {})
    assert assigned(*both, fold=True) == (
        {"outputs/A"}, {"outputs/a": "has the name of another file on this disk"},
    )  # fmt: skip


def parts(*paths: str) -> list[Parts]:
    return [tuple(path.split("/")) for path in paths]


def test_the_pieces_of_a_worker_are_joined_by_their_numbers_in_either_layout() -> None:
    older = parts(
        "attempts/1/workers/0/log/000010.log", "attempts/1/workers/0/log/000002.log",
        "attempts/1/workers/0/log/1000000.log",
    )  # fmt: skip
    ordered = parts(
        "attempts/12/log/20260101T120000-0003-000002.log", "attempts/12/log/20260101T130000-0003-000001.log"
    )
    assert joined_logs([*older, *ordered]) == {
        ("logs", "attempt-1-worker-0.log"): [older[1], older[0], older[2]],
        ("logs", "attempt-12-worker-3.log"): [ordered[1], ordered[0]],
    }


def test_each_attempt_and_worker_has_a_log_of_its_own() -> None:
    pieces = parts(
        "attempts/1/log/20260101T120000-0000-000001.log", "attempts/2/log/20260101T120000-0000-000001.log",
        "attempts/1/log/20260101T120000-0010-000001.log",
    )  # fmt: skip
    assert [log[1] for log in joined_logs(pieces)] == [
        "attempt-1-worker-0.log", "attempt-2-worker-0.log", "attempt-1-worker-10.log",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        "run.json", "attempts/0/workers/0/log/000001.log", "attempts/1/workers/0/log/1.log",
        "attempts/1/workers/0/log/000001.txt", "attempts/1/workers/x/log/000001.log",
        "attempts/1/log/20260101-0000-000001.log", "attempts/1/log/20260101T120000-0-000001.log",
        "attempts/1/log/20260101T120000-0000-1.log", "x/attempts/1/workers/0/log/000001.log",
        "attempts/1/workers/0/log/000001.log/x", "attempts/1234567890/workers/0/log/000001.log",
    ],
)  # fmt: skip
def test_any_other_file_is_no_piece(path: str) -> None:
    assert joined_logs(parts(path)) == {}
