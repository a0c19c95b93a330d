"""Joining the chunks of a log: every reader reads each line once, whenever the worker is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cloud.faulty_wire import FaultyWire
from tests.flows.runs.records import ATTEMPT, write_run
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.logs.reader import LogReader
from tpuctl.flows.runs.pull import pull
from tpuctl.flows.runs.record.verification import verify
from tpuctl.flows.runs.stored_attempt import StoredAttempt
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host import gcs
from tpuctl.host.wire import Answer
from tpuctl.host.worker import reporting
from tpuctl.host.worker.records import PIECES, Piece, pieces_text
from tpuctl.host.worker.reporting import LogShipper
from tpuctl.runs import ORDERED_LOGS

FOLDER = "runs/r2/attempts/1/"
CHUNKS = 10
LINES = [f"{number} {'x' * number}" for number in range(CHUNKS)]
MUTATIONS = 3 + 3 + 3 + 1
"""Requests that join ten chunks into objects of four, four and two: composing, and deleting the others."""


@pytest.fixture(autouse=True)
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "SET", 4)


@pytest.fixture
def run(bucket: Bucket) -> StoredRun:
    """A run whose attempt has ordered logs."""
    run = StoredRun(bucket, "r2")
    run.create(msgspec.structs.replace(write_run(bucket).record, run="r2"))
    run.create_attempt(msgspec.structs.replace(ATTEMPT, workers=(0, 3), log_layout=ORDERED_LOGS))
    return run


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


@pytest.fixture
def shipper(run: StoredRun, worker_bucket: gcs.Bucket, log: Path) -> LogShipper:
    """The shipper of a worker that has printed each line into a chunk of its own."""
    shipper = LogShipper(worker_bucket, FOLDER, 3, str(log))
    for line in LINES:
        print_line(shipper, log, line)
    return shipper


def print_line(shipper: LogShipper, log: Path, line: str) -> None:
    with log.open("a") as stream:
        stream.write(f"{line}\n")
    shipper.ship()


def attempt_of(bucket: Bucket) -> StoredAttempt:
    return StoredRun(bucket, "r2").attempt(1)


def read(reader: LogReader) -> list[str]:
    return [line.text for line in reader.all_lines()]


def sizes(bucket: Bucket) -> list[int]:
    return [item.size for item in bucket.objects(f"{FOLDER}log/")]


@contextmanager
def before_each_change(worker_bucket: gcs.Bucket, work: Callable[[], None]) -> Iterator[None]:
    """Do something before each request that changes the bucket."""
    answer = worker_bucket._answer

    def watched(method: str, *rest: Any) -> Answer:
        if method != "GET":
            work()
        return answer(method, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_bucket, "_answer", watched)
        yield


class TestEveryMoment:
    """The bucket as it is before each change, and so after a kill there."""

    def test_has_each_line_once_for_whoever_reads_now(
        self, shipper: LogShipper, worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path
    ) -> None:
        folder, looks = tmp_path / "copy", list[str]()
        pull(StoredRun(bucket, "r2"), folder, looks.append)
        listed = [LogReader(attempt_of(bucket)) for _ in range(MUTATIONS + 1)]
        behind = [LogReader(attempt_of(bucket)) for _ in range(MUTATIONS + 1)]
        for one, other in zip(listed, behind, strict=True):
            one.look()
            assert [line.text for line in other.lines()] == LINES

        def check() -> None:
            number = len(looks)
            looks.append("")
            assert read(LogReader(attempt_of(bucket))) == LINES
            assert [line.text for line in listed[number].lines()] == LINES, "what was listed before"
            assert read(listed[number]) == read(behind[number]) == [], "nothing is read twice"
            tail = LogReader(attempt_of(bucket))
            tail.begin(3, None)
            assert [line.text for line in tail.present_lines()][-3:] == LINES[-3:]
            pull(StoredRun(bucket, "r2"), folder, lambda _: None)
            assert (folder / "logs/attempt-1-worker-3.log").read_text().splitlines() == LINES
            assert [one.name for one in verify(folder, bucket, bucket).differences] == ["code"], "it has none"

        looks.clear()
        with before_each_change(worker_bucket, check):
            shipper.join(is_over=True)
        assert len(looks) == MUTATIONS
        check()
        assert len(sizes(bucket)) == 3

    def test_can_be_that_of_a_kill_after_which_another_supervisor_goes_on(
        self, shipper: LogShipper, worker_bucket: gcs.Bucket, bucket: Bucket, log: Path
    ) -> None:
        left = iter([1, 1, 0])  # killed after the first object was deleted

        def kill() -> None:
            if not next(left):
                raise KeyboardInterrupt

        with before_each_change(worker_bucket, kill), pytest.raises(KeyboardInterrupt):
            shipper.join(is_over=True)
        assert len(sizes(bucket)) == CHUNKS - 1
        other = LogShipper(worker_bucket, FOLDER, 3, str(log))
        other.resume()
        print_line(other, log, "after it")
        other.join(is_over=True)
        assert other.chunks == CHUNKS + 1
        assert read(LogReader(attempt_of(bucket))) == [*LINES, "after it"]
        assert len(sizes(bucket)) == 3


def test_full_sets_are_joined_while_as_many_newer_chunks_stay(
    shipper: LogShipper, bucket: Bucket, log: Path
) -> None:
    assert shipper.is_full()
    shipper.join()
    assert len(sizes(bucket)) == 1 + 6
    assert not shipper.is_full()
    for number in range(2):
        assert not shipper.is_full()
        print_line(shipper, log, f"more {number}")
    assert shipper.is_full()
    shipper.join()
    assert len(sizes(bucket)) == 2 + 4


def test_a_log_of_few_chunks_stays_as_it_is(
    run: StoredRun, worker_bucket: gcs.Bucket, bucket: Bucket, log: Path
) -> None:
    shipper = LogShipper(worker_bucket, FOLDER, 3, str(log))
    for line in LINES[: reporting.FEW - 1]:
        print_line(shipper, log, line)
    shipper.join(is_over=True)
    assert len(sizes(bucket)) == reporting.FEW - 1


def test_chunks_beside_a_gap_are_not_joined_across_it(shipper: LogShipper, bucket: Bucket) -> None:
    (gone,) = [item for item in bucket.objects(f"{FOLDER}log/") if item.name.endswith("-000003.log")]
    bucket.remove(gone)
    shipper.join(is_over=True)
    named = [item.name[-10:-4] for item in bucket.objects(f"{FOLDER}log/")]
    assert named == ["000001", "000004", "000008"]
    assert read(LogReader(attempt_of(bucket))) == LINES[:2] + LINES[3:]


def test_workers_are_merged_as_they_wrote(
    shipper: LogShipper, worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path, log: Path
) -> None:
    other_log = tmp_path / "other"
    other = LogShipper(worker_bucket, FOLDER, 0, str(other_log))
    for number in range(3):
        print_line(other, other_log, f"other {number}")
        print_line(shipper, log, f"own {number}")

    def times() -> list[tuple[str, str]]:
        return [(line.text, line.time) for line in LogReader(attempt_of(bucket)).all_lines()]

    before = times()
    shipper.join(is_over=True)
    other.join(is_over=True)
    assert times() == before
    assert [text for text, _ in before[-6:]] == [f"{who} {n}" for n in range(3) for who in ("other", "own")]


def test_a_log_is_read_by_a_request_for_each_joined_object(
    shipper: LogShipper, bucket: Bucket, simulator: RunningSimulator
) -> None:
    shipper.join(is_over=True)
    attempt = attempt_of(bucket)
    assert attempt.record
    before = len(simulator.events.find(kind="request", service="storage"))
    assert [line.text for line in LogReader(attempt).lines()] == LINES
    assert len(simulator.events.find(kind="request", service="storage")) - before == 1 + 3


def test_a_bucket_that_keeps_its_objects_has_a_whole_log_and_is_asked_once(
    shipper: LogShipper, bucket: Bucket, wire: FaultyWire, log: Path
) -> None:
    bucket._bucket.retention_period = 3600
    bucket._bucket.patch()
    with pytest.raises(gcs.RefusedError, match="retention policy"):
        shipper.join()
    print_line(shipper, log, "more")
    wire.requests.clear()
    assert not shipper.is_full()
    shipper.join(is_over=True)
    assert wire.requests == []
    assert read(LogReader(attempt_of(bucket))) == [*LINES, "more"]


def test_a_chunk_that_is_held_is_read_once(shipper: LogShipper, bucket: Bucket) -> None:
    (item,) = [item for item in bucket.objects(f"{FOLDER}log/") if item.name.endswith("-000003.log")]
    held = bucket._bucket.blob(item.name)
    held.temporary_hold = True
    held.patch()
    with pytest.raises(gcs.RefusedError):
        shipper.join(is_over=True)
    assert read(LogReader(attempt_of(bucket))) == LINES
    held.temporary_hold = False
    held.patch()


@pytest.mark.parametrize("time", ["20260101T000000", "29990101T000000"])
def test_who_may_only_create_objects_hides_no_chunk(shipper: LogShipper, bucket: Bucket, time: str) -> None:
    first, *others = bucket.objects(f"{FOLDER}log/")
    file = f"{time}-0003-000001.log"
    own = Piece(file, 7, first.size, "2026-01-01T00:00:00Z")
    pieces = [
        Piece(item.name.rpartition("/")[2], item.generation, item.size, item.updated) for item in others
    ]
    blob = bucket._bucket.blob(f"{FOLDER}log/{file}")
    blob.metadata = {PIECES: pieces_text([own, *pieces])}
    blob.upload_from_string("-" * sum(item.size for item in (first, *others)))
    assert read(LogReader(attempt_of(bucket)))[: len(LINES)] == LINES


def test_who_may_only_create_objects_hides_no_chunk_behind_one_that_was_joined(
    shipper: LogShipper, bucket: Bucket
) -> None:
    """The second of four chunks that were joined has no object any more: one may have its number again."""
    shipper.join(is_over=True)
    *_, last = bucket.objects(f"{FOLDER}log/")
    file = "20260101T000000-0003-000002.log"
    own = [
        Piece(file.replace("2.log", f"{number}.log"), 7, 1, "2026-01-01T00:00:00Z") for number in range(2, 9)
    ]
    named = Piece(last.name.rpartition("/")[2], last.generation, last.size, last.updated)
    blob = bucket._bucket.blob(f"{FOLDER}log/{file}")
    blob.metadata = {PIECES: pieces_text([*own, named])}
    blob.upload_from_string("-" * (len(own) + last.size - 1) + "\n")
    assert set(LINES) <= set(read(LogReader(attempt_of(bucket))))


@pytest.mark.parametrize(
    "said",
    ["", "x", "{file} 7 55 2026-01-01T00:00:00Z", "{other} 7 10 2026-01-01T00:00:00Z",
     "{file} 7 10 2026-99-01T00:00:00Z", "{file} 7 4 2026-01-01T00:00:00Z,{file} 8 6 2026-01-01T00:00:00Z"],
)  # fmt: skip
def test_an_object_that_lies_about_its_pieces_is_one(run: StoredRun, bucket: Bucket, said: str) -> None:
    file, other = (f"20260101T000000-0003-00000{number}.log" for number in (1, 2))
    blob = bucket._bucket.blob(f"{FOLDER}log/{file}")
    blob.metadata = {PIECES: said.format(file=file, other=other)}
    blob.upload_from_string(b"two\nlines\n")
    assert read(LogReader(attempt_of(bucket))) == ["two", "lines"]
