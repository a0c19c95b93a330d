"""The status object: replaced by its creator alone, also when answers get lost."""

from __future__ import annotations

import json

import pytest

from tests.worker.faulty_wire import FaultyWire
from tests.worker.host import spec
from tpuctl import runs
from tpuctl.cloud.storage import Bucket
from tpuctl.worker import gcs, status
from tpuctl.worker.status import Status

NAME = "runs/r1/attempts/1/workers/0/status.json"


@pytest.fixture
def mine(own: gcs.Bucket) -> Status:
    return Status(own, spec())


def standing(bucket: Bucket) -> runs.WorkerStatus:
    return runs.decode(bucket.read(NAME), runs.WorkerStatus, NAME)


def test_what_it_writes_is_the_record_that_others_read(mine: Status, bucket: Bucket) -> None:
    mine.write(state="preparing", started=status.now())
    assert standing(bucket).tpu_uid == "77"
    mine.write(state="running", pid=7)
    mine.write(state="finished", exit_code=3, signal="", log_chunks=2)
    found = standing(bucket)
    assert (found.state, found.exit_code, found.log_chunks) == ("finished", 3, 2)
    assert found.started, "what was said once stays"


def test_a_write_whose_answer_was_lost_is_recognised(mine: Status, wire: FaultyWire, bucket: Bucket) -> None:
    wire.plan = ["lose"]
    mine.write(state="preparing")
    assert len(wire.requests) == 4, "put, put again (412), generation, get"
    wire.plan = ["", "lose"]
    mine.write(state="running")
    mine.write(state="finished")
    assert standing(bucket).state == "finished"


def test_a_lost_answer_before_an_outage_is_recognised_after_it(
    mine: Status, wire: FaultyWire, bucket: Bucket
) -> None:
    """What stands is then an older write than the one that fails, and still ours."""
    mine.write(state="preparing")
    wire.plan = ["lose", *[503] * (len(gcs.PAUSES) - 1)]
    with pytest.raises(gcs.GcsError):
        mine.write(state="running", heartbeat_of="the outage")
    mine.write(state="finished")
    assert standing(bucket).state == "finished"
    mine.write(log_chunks=9)
    assert standing(bucket).log_chunks == 9


def test_a_status_of_somebody_else_is_left_alone(mine: Status, bucket: Bucket) -> None:
    bucket.create(NAME, b'{"somebody": "else"}')
    with pytest.raises(gcs.PreconditionError):
        mine.write(state="preparing")
    assert bucket.read(NAME) == b'{"somebody": "else"}'


def test_a_status_that_somebody_has_replaced_is_left_alone(
    mine: Status, own: gcs.Bucket, bucket: Bucket
) -> None:
    mine.write(state="running")
    own.put(NAME, b"theirs")
    for _ in range(2):
        with pytest.raises(gcs.PreconditionError):
            mine.write(log_chunks=1)
    assert bucket.read(NAME) == b"theirs"


def test_a_status_that_was_deleted_is_not_made_again(mine: Status, simulator, bucket: Bucket) -> None:
    import requests

    mine.write(state="running")
    storage = simulator.simulator.endpoints["storage"]
    place = f"{storage}/storage/v1/b/{bucket.name}/o/{NAME.replace('/', '%2F')}"
    assert requests.delete(place, timeout=10).status_code == 204
    with pytest.raises(gcs.PreconditionError):
        mine.write(log_chunks=1)
    assert bucket.find(NAME) is None


def test_a_heartbeat_is_due_when_the_last_is_old(mine: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    mine.write(state="running")
    assert not mine.due()
    monkeypatch.setattr(status, "HEARTBEAT", 0.0)
    assert mine.due()


def test_the_content_is_json_that_people_can_read(mine: Status, bucket: Bucket) -> None:
    mine.write(state="running")
    data = bucket.read(NAME)
    assert data.endswith(b"}\n")
    assert json.loads(data)["schema"] == 1
