"""The Cloud TPU API's client against the simulator: what it sends, what it makes of the answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tpuctl.cloud.tpu import Operation, TpuApi, create_request, delete_request
from tpuctl.errors import ConflictError, NotFoundError, PreemptedError, StockoutError, UsageError
from tpuctl.nodes import Node, NodeRequest
from tpuctl.polling import Backoff, poll
from tpuctl.sim.faults import grpc_fault

ZONE = "europe-west4-a"
REQUEST = NodeRequest(
    name="n1",
    project="sim-project",
    zone=ZONE,
    accelerator="v3-8",
    runtime="tpu-ubuntu2204-base",
    spot=False,
    network="default",
    service_account=None,
    labels={"managed-by": "tpuctl", "tpuctl-user": "ada"},
    metadata={"ssh-keys": "ada:ssh-ed25519 AAAA ada"},
)


def end(tpu: TpuApi, operation: Operation) -> None:
    """Wait until an operation is over; raises its error."""
    poll(
        lambda: tpu.finished(operation) or None,
        awaiting=operation.what,
        timeout=30,
        backoff=Backoff(0.01, 0.05),
    )


def made(tpu: TpuApi, request: NodeRequest = REQUEST) -> Node:
    end(tpu, tpu.create(request))
    return tpu.node(request.zone, request.name)


def test_a_node_comes_as_it_was_asked_for(tpu: TpuApi) -> None:
    node = made(tpu, replace(REQUEST, spot=True, service_account="sa@sim-project.iam.gserviceaccount.com"))
    assert (node.name, node.project, node.zone, node.state) == ("n1", "sim-project", ZONE, "READY")
    assert (node.accelerator, node.runtime, node.spot) == ("v3-8", "tpu-ubuntu2204-base", True)
    assert node.labels == REQUEST.labels
    assert node.metadata == REQUEST.metadata
    assert (node.managed, node.owner) == (True, "ada")
    assert len(node.addresses) == 1
    assert node.uid
    assert node.created.endswith("Z")


def test_a_node_of_several_hosts_has_as_many_addresses_and_keys(tpu: TpuApi) -> None:
    node = made(tpu, replace(REQUEST, accelerator="v3-32"))
    keys = tpu.host_keys(node)
    assert len(set(node.addresses)) == 4
    assert list(keys) == [0, 1, 2, 3]
    assert len(set(keys.values())) == 4
    assert all(key.startswith("AAAAC3NzaC1lZDI1NTE5") for key in keys.values())


def test_a_name_that_comes_back_has_another_uid(tpu: TpuApi) -> None:
    first = made(tpu)
    end(tpu, tpu.delete(first))
    with pytest.raises(NotFoundError, match="Node 'n1' in europe-west4-a does not exist"):
        tpu.node(ZONE, "n1")
    assert made(tpu).uid != first.uid


def test_nodes_are_listed_per_zone_and_everywhere(tpu: TpuApi) -> None:
    made(tpu)
    made(tpu, replace(REQUEST, name="n2", zone="us-central1-b"))
    assert {one.name for one in tpu.nodes().nodes} == {"n1", "n2"}
    assert [one.zone for one in tpu.nodes("us-central1-b").nodes] == ["us-central1-b"]
    assert tpu.nodes("us-east5-a").nodes == ()
    assert tpu.nodes().unreachable == ()


def test_every_page_of_a_list_is_read(tpu: TpuApi, simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    from tpuctl.sim.world import pages
    from tpuctl.sim.world.nodes import service as fleet

    monkeypatch.setattr(fleet, "page", lambda items, key, _size, token: pages.page(items, key, 2, token))
    wanted = [f"n{number}" for number in range(5)]
    operations = [tpu.create(replace(REQUEST, name=name)) for name in wanted]
    for operation in operations:
        end(tpu, operation)
    assert sorted(one.name for one in tpu.nodes().nodes) == wanted
    assert len(simulator.world.nodes()) == 5


def test_another_zones_silence_is_told(tpu: TpuApi, simulator) -> None:
    simulator.faults.add("unreachable", zone="us-east1-d")
    assert [one.rpartition("/")[2] for one in tpu.nodes().unreachable] == ["us-east1-d"]


def test_the_metadata_is_replaced_as_a_whole(tpu: TpuApi) -> None:
    node = made(tpu)
    end(tpu, tpu.update_metadata(node, {"colour": "red"}))
    assert tpu.node(ZONE, "n1").metadata == {"colour": "red"}
    assert tpu.node(ZONE, "n1").labels == REQUEST.labels


def test_a_second_create_of_the_name_is_a_conflict(tpu: TpuApi) -> None:
    made(tpu)
    with pytest.raises(ConflictError, match="exists already"):
        tpu.create(REQUEST)


def test_a_type_that_the_zone_lacks_is_bad_input(tpu: TpuApi) -> None:
    with pytest.raises(UsageError, match="v4-8 was not found in zone"):
        end(tpu, tpu.create(replace(REQUEST, accelerator="v4-8")))


def test_a_create_is_never_sent_twice_by_itself(tpu: TpuApi, simulator) -> None:
    from tpuctl.errors import DeadlineError

    simulator.faults.add(grpc_fault("tpu.CreateNode", 14, "unavailable", count=1))
    with pytest.raises(DeadlineError, match="cannot be reached"):
        tpu.create(REQUEST)
    assert simulator.world.nodes() == []


def test_what_changes_nothing_is_asked_again(tpu: TpuApi, simulator) -> None:
    made(tpu)
    for method in ("ListNodes", "GetNode", "GetGuestAttributes", "GetOperation", "ListAcceleratorTypes",
                   "ListRuntimeVersions"):  # fmt: skip
        simulator.faults.add(grpc_fault(f"tpu.{method}", 14, "unavailable", count=1))
    node = tpu.node(ZONE, "n1")
    assert tpu.nodes().nodes == (node,)
    assert tpu.host_keys(node)
    assert "v3-8" in tpu.accelerator_types(ZONE)
    assert "tpu-ubuntu2204-base" in tpu.runtimes(ZONE)
    end(tpu, tpu.delete(node))
    assert simulator.faults.all() == []


def test_an_operation_that_fails_late_leaves_no_node(tpu: TpuApi, simulator) -> None:
    simulator.faults.add(grpc_fault("tpu.CreateNode", 8, "There is no more capacity in the zone", late=True))
    operation = tpu.create(REQUEST)
    with pytest.raises(StockoutError, match=r"^Node 'n1' \(v3-8\) in europe-west4-a: There is no more"):
        end(tpu, operation)
    with pytest.raises(NotFoundError):
        tpu.node(ZONE, "n1")


def test_a_node_that_was_taken_back_is_listed_as_such_and_cannot_be_updated(tpu: TpuApi, simulator) -> None:
    node = made(tpu, replace(REQUEST, spot=True))
    simulator.call(simulator.world.preempt(f"projects/sim-project/locations/{ZONE}/nodes/n1"))
    assert tpu.node(ZONE, "n1").state == "PREEMPTED"
    with pytest.raises(PreemptedError):
        end(tpu, tpu.update_metadata(node, {}))


def test_an_operation_that_is_not_there_is_not_found(tpu: TpuApi) -> None:
    with pytest.raises(NotFoundError):
        tpu.finished(Operation(f"projects/sim-project/locations/{ZONE}/operations/operation-0", "It"))


def test_a_dry_run_shows_what_a_create_would_send() -> None:
    shown = create_request(replace(REQUEST, spot=True, service_account="sa@x"))
    assert shown.method == "POST"
    assert shown.url == (
        "https://tpu.googleapis.com/v2/projects/sim-project/locations/europe-west4-a/nodes?nodeId=n1"
    )
    assert shown.body["acceleratorType"] == "v3-8"
    assert shown.body["schedulingConfig"] == {"spot": True}
    assert shown.body["networkConfig"] == {"network": "default", "enableExternalIps": True}
    assert shown.body["serviceAccount"]["email"] == "sa@x"


def test_a_dry_run_shows_what_a_delete_would_send(tpu: TpuApi) -> None:
    assert delete_request(made(tpu)).url == (
        "https://tpu.googleapis.com/v2/projects/sim-project/locations/europe-west4-a/nodes/n1"
    )
