"""A run on this machine: complete, verified, fetched once, and never mixed with anything else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.flows.runs.records import ATTEMPT, CREATED, write_chunk, write_run
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import NotFoundError, StateError, TpuctlError, UsageError
from tpuctl.flows.runs.pull import PullResult, pull
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.runs import Attempt


@pytest.fixture
def run(bucket: Bucket) -> StoredRun:
    """A run with two chunks of log and an output."""
    stored = write_run(bucket)
    for chunk, text in ((1, "one\ntw"), (2, "o\n")):
        write_chunk(stored.last_attempt(), 0, chunk, text)
    put(bucket, "outputs/model/weights.h5", b"weights")
    return stored


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where to; it does not exist yet."""
    return tmp_path / "out"


def put(bucket: Bucket, name: str, data: bytes) -> None:
    bucket.upload(f"runs/r1/{name}", [data], "application/octet-stream")


def fetch(run: StoredRun, folder: Path) -> PullResult:
    return pull(run, folder, lambda text: None)


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by their paths in it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def downloads(simulator: RunningSimulator) -> int:
    requests = simulator.events.find(kind="request", service="storage", what="*objects.get")
    return len([request for request in requests if "/runs/r1/" in request.resource])


def test_every_file_is_fetched_as_it_is_in_the_bucket(bucket: Bucket, run: StoredRun, folder: Path) -> None:
    reports = list[str]()
    result = pull(run, folder, reports.append)
    stored = {
        listed.name.removeprefix("runs/r1/"): bucket.read(listed.name)
        for listed in bucket.objects("runs/r1/")
    }
    joined = {"logs/attempt-1-worker-0.log": b"one\ntwo\n"}
    assert content(folder) == {**stored, **joined}
    size = sum(map(len, stored.values()))
    assert result == PullResult(folder, len(stored), size, 0, ())
    assert reports == [f"fetching {len(stored)} files"]


def test_logs_are_joined_for_each_attempt_and_worker_in_the_order_of_their_chunks(
    run: StoredRun, folder: Path
) -> None:
    run.create_attempt(Attempt(2, CREATED, ATTEMPT.tpu, (0, 1)))
    for chunk in range(1, 12):
        write_chunk(run.last_attempt(), 1, chunk, f"{chunk} ")
    fetch(run, folder)
    logs = {name: data for name, data in content(folder).items() if name.startswith("logs/")}
    assert logs == {
        "logs/attempt-1-worker-0.log": b"one\ntwo\n",
        "logs/attempt-2-worker-1.log": b"1 2 3 4 5 6 7 8 9 10 11 ",
    }


def test_files_that_are_unchanged_are_not_fetched_again(
    bucket: Bucket, simulator: RunningSimulator, run: StoredRun, folder: Path
) -> None:
    first = fetch(run, folder)
    before = downloads(simulator)
    assert fetch(run, folder).unchanged == first.files
    assert downloads(simulator) == before
    (folder / "outputs/model/weights.h5").write_bytes(b"wei6hts")  # of the same size
    put(bucket, "outputs/more.txt", b"more")
    again = fetch(run, folder)
    assert (again.files, again.unchanged) == (first.files + 1, first.files - 1)
    assert content(folder)["outputs/model/weights.h5"] == b"weights"
    assert downloads(simulator) == before + 2


def test_unfinished_checkpoints_are_named_and_not_fetched(
    bucket: Bucket, run: StoredRun, folder: Path
) -> None:
    put(bucket, "checkpoints/ckpt-1.index", b"1")
    result = fetch(run, folder)
    assert result.uncommitted == ("runs/r1/checkpoints/ckpt-1.index",)
    assert not (folder / "checkpoints").exists()


def test_a_file_that_arrives_damaged_does_not_stay(
    bucket: Bucket, run: StoredRun, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client checks what it receives, so a disk that writes something else is played here."""

    def damage(self: Bucket, listed: object, path: Path) -> None:
        path.write_bytes(b"damaged")

    monkeypatch.setattr(Bucket, "download", damage)
    folder.mkdir()
    with pytest.raises(StateError, match="arrived damaged") as damaged:
        fetch(run, folder)
    assert damaged.value.hint == "Run 'tpuctl pull' again."
    assert content(folder) == {}


def test_a_pull_that_broke_off_anywhere_is_completed_by_the_next(
    simulator: RunningSimulator, run: StoredRun, folder: Path
) -> None:
    """403 is not retried: at that moment a pull ends, as by Ctrl-C."""
    for name in ("run.json", "attempt.json", "000001.log", "weights.h5"):
        fault = simulator.faults.add(
            "gcs-error", status="403", method="storage.objects.get", object=f"*/{name}"
        )
        with pytest.raises(TpuctlError):
            fetch(run, folder)
        simulator.faults.remove(fault.id)
        fetch(run, folder)
        shutil.rmtree(folder)


def test_a_pull_that_broke_off_names_no_checkpoint_that_it_lacks(
    bucket: Bucket, simulator: RunningSimulator, run: StoredRun, folder: Path
) -> None:
    put(bucket, "checkpoints/ckpt-1.index", b"1")
    put(bucket, "checkpoints/checkpoint", b'model_checkpoint_path: "ckpt-1"\n')
    simulator.faults.add("gcs-error", status="403", method="storage.objects.get", object="*/ckpt-1.index")
    with pytest.raises(TpuctlError):
        fetch(run, folder)
    assert "outputs/model/weights.h5" in content(folder)
    assert "checkpoints/checkpoint" not in content(folder)
    simulator.faults.clear()
    fetch(run, folder)
    assert "checkpoints/checkpoint" in content(folder)


def test_an_unknown_run_is_named_and_nothing_is_made(bucket: Bucket, folder: Path) -> None:
    with pytest.raises(NotFoundError, match="There is no run 'r9'"):
        fetch(StoredRun(bucket, "r9"), folder)
    assert not (folder).exists()


class TestFolder:
    def test_an_empty_folder_is_filled(self, run: StoredRun, folder: Path) -> None:
        folder.mkdir()
        fetch(run, folder)
        assert (folder / "run.json").is_file()

    def test_a_folder_of_a_pull_that_was_killed_at_its_first_file_is_filled(
        self, run: StoredRun, folder: Path
    ) -> None:
        folder.mkdir()
        (folder / "run.json.part").write_bytes(b"{")
        fetch(run, folder)
        assert "run.json.part" not in content(folder)

    @pytest.mark.parametrize("file", ["photo.jpg", "run.json/photo.jpg", "weights.part"])
    def test_a_folder_with_other_files_is_left_alone(self, run: StoredRun, folder: Path, file: str) -> None:
        (folder / file).parent.mkdir(parents=True)
        (folder / file).write_bytes(b"mine")
        with pytest.raises(UsageError, match="has files that are not of run 'r1'") as refused:
            fetch(run, folder)
        assert refused.value.hint == "Name another folder with --to."
        assert content(folder) == {file: b"mine"}

    def test_a_folder_with_another_run_is_left_alone(
        self, bucket: Bucket, run: StoredRun, folder: Path
    ) -> None:
        fetch(run, folder)
        before = content(folder)
        with pytest.raises(UsageError, match="has files that are not of run 'r2'"):
            fetch(write_run(bucket, "r2"), folder)
        assert content(folder) == before

    def test_a_file_in_the_way_is_named_with_the_reason(self, run: StoredRun, folder: Path) -> None:
        folder.write_bytes(b"mine")
        with pytest.raises(UsageError, match=r"/out cannot be written: (File exists|Not a directory)\."):
            fetch(run, folder)
        assert folder.read_bytes() == b"mine"

    def test_an_object_that_would_leave_the_folder_is_refused(
        self, bucket: Bucket, run: StoredRun, folder: Path
    ) -> None:
        put(bucket, "../outside.txt", b"x")
        with pytest.raises(StateError, match=r"outside\.txt would be written outside") as refused:
            fetch(run, folder)
        assert "tpuctl did not write it" in refused.value.hint
        assert not (folder.parent / "outside.txt").exists()
