"""Long-running operations while they run: seen, waited for, cancelled, overtaken, preempted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.longrunning import operations_pb2
from google.protobuf import duration_pb2

from tests.sim.tpu.api import POLLING, Api
from tests.sim.tpu.recorded_hosts import ManualTime
from tpuctl.sim.settings import Profile
from tpuctl.sim.tpu.service import Service
from tpuctl.sim.world import Operation

PARENT = "projects/rehearsal/locations/europe-west4-a"
NODE = f"{PARENT}/nodes/one"
State = tpu_v2.Node.State
DELAYS = {"create": 60, "update": 5, "delete": 20, "failure": 10}


@pytest.fixture
def time() -> ManualTime:
    return ManualTime()


@pytest.fixture
def api(database: Path, time: ManualTime) -> Iterator[Api]:
    """An API in which nothing ends before the clock is moved."""
    served = Api(database, Profile(DELAYS, clock=time.clock, sleep=time.sleep))
    yield served
    served.close()


def begin(client: tpu_v2.TpuClient) -> Any:
    node = tpu_v2.Node(accelerator_type="v3-8", runtime_version="tpu-ubuntu2204-base")
    return client.create_node(parent=PARENT, node_id="one", node=node)


def relabel(client: tpu_v2.TpuClient, **labels: str) -> Any:
    return client.update_node(node=tpu_v2.Node(name=NODE, labels=labels), update_mask="labels")


def make_ready(client: tpu_v2.TpuClient, api: Api, time: ManualTime) -> None:
    operation = begin(client)
    api.run(time.advance(60))
    operation.result(polling=POLLING)


def test_a_node_is_creating_until_its_time_has_passed(
    client: tpu_v2.TpuClient, api: Api, time: ManualTime
) -> None:
    operation = begin(client)
    api.run(time.advance(59))
    assert client.get_node(name=NODE).state == State.CREATING
    assert not operation.done()
    assert not api.world.idle()
    api.run(time.advance(1))
    assert operation.result(polling=POLLING).state == State.READY


def test_operations_are_listed_read_and_deleted_once_they_have_ended(
    client: tpu_v2.TpuClient, api: Api, time: ManualTime
) -> None:
    name = begin(client).operation.name
    assert name.startswith(f"{PARENT}/operations/operation-1800000000000-")
    with pytest.raises(exceptions.BadRequest, match="still running"):
        client.delete_operation({"name": name})
    api.run(time.advance(60))
    api.run(api.world.operations.wait(name, 5))
    assert client.get_operation({"name": name}).done
    assert [operation.name for operation in client.list_operations({"name": PARENT}).operations] == [name]
    client.delete_operation({"name": name})
    assert not client.list_operations({"name": PARENT}).operations


def test_a_wait_ends_with_the_operation_or_with_its_timeout(
    grpc_client: tpu_v2.TpuClient, channel: grpc.Channel, api: Api, time: ManualTime
) -> None:
    wait = channel.unary_unary(
        "/google.longrunning.Operations/WaitOperation",
        request_serializer=operations_pb2.WaitOperationRequest.SerializeToString,
        response_deserializer=operations_pb2.Operation.FromString,
    )
    name = begin(grpc_client).operation.name
    short = duration_pb2.Duration(nanos=1_000_000)
    assert not wait(operations_pb2.WaitOperationRequest(name=name, timeout=short)).done
    waiting = wait.future(operations_pb2.WaitOperationRequest(name=name))
    api.run(time.advance(60))
    assert waiting.result(timeout=60).done


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        (duration_pb2.Duration(seconds=90, nanos=500_000_000), 90.5),
        (duration_pb2.Duration(nanos=1_000_000), 0.001),
        (duration_pb2.Duration(), 0.0),
        (None, None),
    ],
)
def test_a_wait_lasts_as_long_as_the_request_says(
    api: Api, monkeypatch: pytest.MonkeyPatch, timeout: duration_pb2.Duration | None, seconds: float | None
) -> None:
    """The wait itself is recorded: a real one of 90 s would take as long."""
    waits = list[float | None]()
    operation = api.run(begun(api))

    async def wait(name: str, limit: float | None) -> Operation:
        waits.append(limit)
        return operation

    monkeypatch.setattr(api.world.operations, "wait", wait)
    request = operations_pb2.WaitOperationRequest(name=operation.name, timeout=timeout)
    api.run(Service(api.world).call("WaitOperation", request))
    assert waits == [seconds]


async def begun(api: Api) -> Operation:
    fields = {"acceleratorType": "v3-8", "runtimeVersion": "tpu-ubuntu2204-base"}
    return api.world.nodes.create(PARENT, "one", fields)


def test_a_cancelled_create_ends_as_cancelled_and_its_node_is_deleted(
    client: tpu_v2.TpuClient, api: Api
) -> None:
    operation = begin(client)
    client.cancel_operation({"name": operation.operation.name})
    with pytest.raises(exceptions.Cancelled):
        operation.result(polling=POLLING)
    assert operation.metadata.cancel_requested
    assert api.world.idle()


def test_a_cancelled_update_runs_to_its_end(
    grpc_client: tpu_v2.TpuClient, api: Api, time: ManualTime
) -> None:
    make_ready(grpc_client, api, time)
    operation = relabel(grpc_client, a="b")
    grpc_client.cancel_operation({"name": operation.operation.name})
    api.run(time.advance(5))
    assert dict(operation.result(polling=POLLING).labels) == {"a": "b"}
    grpc_client.cancel_operation({"name": operation.operation.name})


def test_an_update_during_another_conflicts(client: tpu_v2.TpuClient, api: Api, time: ManualTime) -> None:
    make_ready(client, api, time)
    first = relabel(client, a="1")
    with pytest.raises(exceptions.Conflict) as raised:
        relabel(client, a="2")
    assert raised.value.code == 409
    api.run(time.advance(5))
    assert dict(first.result(polling=POLLING).labels) == {"a": "1"}


def test_a_stockout_is_creating_first(grpc_client: tpu_v2.TpuClient, api: Api, time: ManualTime) -> None:
    api.faults.add("stockout", zone="europe-west4-a", count=1)
    operation = begin(grpc_client)
    assert grpc_client.get_node(name=NODE).state == State.CREATING
    api.run(time.advance(10))
    with pytest.raises(exceptions.ResourceExhausted):
        operation.result(polling=POLLING)


def test_a_node_without_capacity_uses_none_of_others(
    grpc_client: tpu_v2.TpuClient, api: Api, time: ManualTime
) -> None:
    capacity = api.world.capacity
    capacity.limits["europe-west4-a", "v3-8"] = 0
    without_room = begin(grpc_client)
    capacity.limits["europe-west4-a", "v3-8"] = 1
    node = tpu_v2.Node(accelerator_type="v3-8", runtime_version="tpu-ubuntu2204-base")
    with_room = grpc_client.create_node(parent=PARENT, node_id="two", node=node)
    assert capacity.used("europe-west4-a", "v3-8") == 1
    api.run(time.advance(60))
    assert with_room.result(polling=POLLING).state == State.READY
    with pytest.raises(exceptions.ResourceExhausted):
        without_room.result(polling=POLLING)


def test_a_delete_cancels_the_create(client: tpu_v2.TpuClient, api: Api, time: ManualTime) -> None:
    creating = begin(client)
    deleting = client.delete_node(name=NODE)
    assert client.get_node(name=NODE).state == State.DELETING
    with pytest.raises(exceptions.Cancelled):
        creating.result(polling=POLLING)
    api.run(time.advance(20))
    deleting.result(polling=POLLING)
    assert api.world.idle()
    assert ("start", "one") not in api.hosts.calls


def test_a_preemption_while_creating_ends_the_create_as_google_does(
    client: tpu_v2.TpuClient, api: Api
) -> None:
    operation = begin(client)
    api.run(api.world.preempt(NODE))
    with pytest.raises(exceptions.InvalidArgument, match="not supported while in state PREEMPTED"):
        operation.result(polling=POLLING)
    assert client.get_node(name=NODE).state == State.PREEMPTED
