"""The status object: replaced by its creator alone, also when responses get lost."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.worker.faulty_wire import FaultyWire
from tests.worker.host import SPEC
from tpuctl import runs
from tpuctl.cloud.storage import Bucket
from tpuctl.worker import gcs, timing
from tpuctl.worker.records import WorkerStatus
from tpuctl.worker.status import StatusWriter, now

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


def test_a_status_of_another_process_is_left_alone(writer: StatusWriter, bucket: Bucket) -> None:
    bucket.create(NAME, b'{"another": "writer"}')
    with pytest.raises(gcs.PreconditionError):
        update(writer, state="preparing")
    assert bucket.read(NAME) == b'{"another": "writer"}'


def test_a_status_that_another_process_has_replaced_is_left_alone(
    writer: StatusWriter, worker_bucket: gcs.Bucket, bucket: Bucket
) -> None:
    update(writer, state="running")
    worker_bucket.put(NAME, b"theirs")
    for _ in range(2):
        with pytest.raises(gcs.PreconditionError):
            update(writer, log_chunks=1)
    assert bucket.read(NAME) == b"theirs"


def test_a_deleted_status_is_not_written_again(writer: StatusWriter, simulator, bucket: Bucket) -> None:
    import requests

    update(writer, state="running")
    storage = simulator.simulator.endpoints["storage"]
    place = f"{storage}/storage/v1/b/{bucket.name}/o/{NAME.replace('/', '%2F')}"
    assert requests.delete(place, timeout=10).status_code == 204
    with pytest.raises(gcs.PreconditionError):
        update(writer, log_chunks=1)
    assert bucket.find(NAME) is None


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
