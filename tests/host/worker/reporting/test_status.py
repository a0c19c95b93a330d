"""The status object: no other program stops its writer, and responses may get lost."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cloud.faulty_wire import FaultyWire
from tests.host.worker.host import SPEC
from tpuctl import runs
from tpuctl.cloud.storage import Bucket
from tpuctl.host import gcs, timing
from tpuctl.host.worker.errand import Errand
from tpuctl.host.worker.records import WorkerStatus, read_status_type
from tpuctl.host.worker.reporting import LARGEST_STATUS, AnotherSupervisorError, Reporter, StatusWriter, now
from tpuctl.host.worker.signals import Signals

NAME = "runs/r1/attempts/1/workers/0/status.json"


@pytest.fixture
def writer(worker_bucket: gcs.Bucket) -> StatusWriter:
    return StatusWriter(worker_bucket, SPEC)


def update(writer: StatusWriter, **changes: object) -> None:
    """Write the last status with changes, as the supervisor does."""
    writer.write(replace(writer.last, **changes))


def stored(bucket: Bucket) -> WorkerStatus:
    return runs.decode(bucket.read(NAME), WorkerStatus, NAME)


def test_the_laptop_reads_the_record_that_the_worker_writes(writer: StatusWriter, bucket: Bucket) -> None:
    update(writer, state="preparing", started=now())
    assert stored(bucket).tpu_uid == "77"
    update(writer, state="running", pid=7)
    update(writer, state="finished", exit_code=3, signal="", log_chunks=2)
    status = stored(bucket)
    assert (status.state, status.exit_code, status.log_chunks) == ("finished", 3, 2)
    assert status.started, "a field stays as it was written"


def test_a_write_whose_response_was_lost_is_recognised(
    writer: StatusWriter, wire: FaultyWire, bucket: Bucket
) -> None:
    wire.plan = ["lose"]
    update(writer, state="preparing")
    assert len(wire.requests) == 4, "put, put again (412), generation, get"
    wire.plan = ["", "lose"]
    update(writer, state="running")
    update(writer, state="finished")
    assert stored(bucket).state == "finished"


def test_a_lost_response_before_an_outage_is_recognised_after_it(
    writer: StatusWriter, wire: FaultyWire, bucket: Bucket
) -> None:
    """The object then holds an older write than the one that fails, and still ours."""
    update(writer, state="preparing")
    wire.plan = ["lose", *[503] * (len(timing.REQUEST_PAUSES) - 1)]
    with pytest.raises(gcs.GcsError):
        update(writer, state="running", log_chunks=5)
    update(writer, state="finished")
    assert stored(bucket).state == "finished"
    update(writer, log_chunks=9)
    assert stored(bucket).log_chunks == 9


FOREIGN = [
    b'{"another": "writer"}',
    b"",
    b"\xff no text",
    b"[" * 60_000,
    b'{"supervisor": "x", "seal": "y"}',
    b'{"supervisor": 1, "seal": "\\ud800"}',
    b"x" * (LARGEST_STATUS + 1),
]
"""What another program may write into the status object."""


@pytest.mark.parametrize("data", FOREIGN, ids=range(len(FOREIGN)))
class TestAnotherProgram:
    def test_cannot_stop_the_first_status(
        self, writer: StatusWriter, bucket: Bucket, data: bytes, capfd: pytest.CaptureFixture[str]
    ) -> None:
        bucket.upload(NAME, [data], "application/json")
        update(writer, state="preparing")
        assert stored(bucket).supervisor == writer.last.supervisor
        assert "another program has changed gs://sim-project-tpuctl/runs/r1/" in capfd.readouterr().err

    def test_cannot_stop_a_later_one(self, writer: StatusWriter, bucket: Bucket, data: bytes) -> None:
        update(writer, state="preparing")
        for pid in (1, 2):
            bucket.upload(NAME, [data], "application/json")
            update(writer, state="running", pid=pid)
            assert stored(bucket).pid == pid


def test_a_bucket_that_has_refused_for_minutes_is_told_until_it_takes_one(
    writer: StatusWriter, wire: FaultyWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        wire.plan = [403]
        with pytest.raises(gcs.RefusedError):
            update(writer)

    refuse()
    writer.check_taken()
    monkeypatch.setattr(timing, "REFUSED_TIMEOUT", -1.0)
    update(writer)
    refuse()
    with pytest.raises(gcs.RefusedError, match="403 the wire says no"):
        writer.check_taken()
    update(writer)
    writer.check_taken()


def test_a_large_object_is_replaced_and_not_read(
    writer: StatusWriter, bucket: Bucket, wire: FaultyWire
) -> None:
    bucket.upload(NAME, [b"x" * (LARGEST_STATUS + 1)], "application/json")
    update(writer, state="preparing")
    assert not [request for request in wire.requests if "alt=media" in request]


def test_a_copy_of_an_own_status_is_replaced(writer: StatusWriter, bucket: Bucket) -> None:
    update(writer, state="preparing")
    earlier = bucket.read(NAME)
    update(writer, state="running")
    bucket.upload(NAME, [earlier], "application/json")
    update(writer, state="running", pid=7)
    assert stored(bucket).pid == 7


def test_the_status_of_another_run_is_replaced(
    writer: StatusWriter, worker_bucket: gcs.Bucket, bucket: Bucket
) -> None:
    """A seal is valid for one name only, even with the same key."""
    other = StatusWriter(worker_bucket, replace(SPEC, folder=SPEC.folder.replace("/r1/", "/r2/")))
    update(other, state="running")
    bucket.upload(NAME, [bucket.read(NAME.replace("/r1/", "/r2/"))], "application/json")
    update(writer, state="preparing")
    assert stored(bucket).supervisor == writer.last.supervisor


def test_a_deleted_status_is_written_again(
    writer: StatusWriter, bucket: Bucket, capfd: pytest.CaptureFixture[str]
) -> None:
    update(writer, state="running")
    stat = bucket.stat(NAME)
    assert stat
    bucket.remove(stat)
    update(writer, log_chunks=1)
    assert stored(bucket).log_chunks == 1
    assert "another program has deleted gs://" in capfd.readouterr().err


def test_the_status_of_another_supervisor_of_the_attempt_is_left_alone(
    writer: StatusWriter, worker_bucket: gcs.Bucket, bucket: Bucket
) -> None:
    update(StatusWriter(worker_bucket, SPEC), state="running", pid=1)
    for _ in range(2):
        with pytest.raises(AnotherSupervisorError, match="of the same attempt"):
            update(writer, state="preparing")
    assert stored(bucket).pid == 1


def test_a_supervisor_that_another_of_the_attempt_has_replaced_writes_no_more(
    writer: StatusWriter, worker_bucket: gcs.Bucket, bucket: Bucket
) -> None:
    """It could start because the status of the first was deleted."""
    update(writer, state="running", pid=1)
    stat = bucket.stat(NAME)
    assert stat
    bucket.remove(stat)
    update(StatusWriter(worker_bucket, SPEC), state="running", pid=2)
    with pytest.raises(AnotherSupervisorError):
        update(writer, log_chunks=1)
    assert stored(bucket).pid == 2


def test_a_program_that_writes_without_end_is_named_and_the_next_write_succeeds(
    writer: StatusWriter, worker_bucket: gcs.Bucket, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = worker_bucket.put

    def late(name: str, data: bytes, if_generation: int | None, kind: str) -> int:
        """Write after another program, as its next write may always come first."""
        bucket.upload(NAME, [b"theirs"], "application/json")
        return put(name, data, if_generation, kind)

    with monkeypatch.context() as patch:
        patch.setattr(worker_bucket, "put", late)
        with pytest.raises(gcs.GcsError, match="another program keeps writing gs://"):
            update(writer, state="running", pid=1)
    update(writer, pid=2)
    assert stored(bucket).pid == 2


def test_a_heartbeat_is_due_when_the_last_is_old(
    writer: StatusWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    update(writer, state="running")
    assert not writer.due()
    monkeypatch.setattr(timing, "HEARTBEAT", 0.0)
    assert writer.due()


def test_the_content_is_json_that_people_can_read(writer: StatusWriter, bucket: Bucket) -> None:
    update(writer, state="running")
    data = bucket.read(NAME)
    assert data.endswith(b"}\n")
    assert json.loads(data)["schema"] == 1


def test_an_errand_that_fails_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(timing, "POLL_INTERVAL", 0.001)
    turns, is_done = iter([ValueError("no JSON"), KeyError("generation")]), threading.Event()

    def work() -> None:
        error = next(turns, None)
        if error:
            raise error
        is_done.set()

    reporter = Reporter(gcs.Bucket(SPEC.bucket), SPEC, str(tmp_path), Signals())
    errand = Errand(lambda: True, lambda: reporter.attempt(work))
    errand.start()
    try:
        assert is_done.wait(60)
    finally:
        errand.end()
    assert capsys.readouterr().err.splitlines() == [
        "[tpuctl] ValueError: no JSON",
        "[tpuctl] KeyError: 'generation'",
    ]


def test_the_listing_tells_whether_a_status_says_something_new(writer: StatusWriter, bucket: Bucket) -> None:
    def label() -> tuple[str, int] | None:
        return read_status_type(bucket.objects(NAME)[0].content_type)

    update(writer, state="running", pid=1)
    first = label()
    assert first
    update(writer, log_chunks=7)
    assert label() == (first[0], 7), "a heartbeat says nothing new"
    update(writer, exit_code=0)
    assert label() != (first[0], 7)
