"""The Cloud TPU API's client against the simulator: what it sends, what it makes of the answers."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tests.running_simulator import RunningSimulator
from tpuctl.cloud.provider import Operation
from tpuctl.cloud.request_log import showing
from tpuctl.cloud.tpu.client import CloudTpu
from tpuctl.errors import (
    ConfigError,
    ConflictError,
    DeadlineError,
    NotFoundError,
    PreemptedError,
    StockoutError,
    UsageError,
)
from tpuctl.nodes import (
    CreateNode,
    DeleteNode,
    Node,
    NodeId,
    NodeRequest,
    NodeState,
    SshKey,
    UpdateNode,
    owner_label,
)
from tpuctl.polling import Backoff
from tpuctl.sim.faults import grpc_fault
from tpuctl.sim.tpu import methods
from tpuctl.sim.world import resources

ZONE = "europe-west4-a"
NODE = NodeId("cloud-tpu", "sim-project", ZONE, "n1")
ADA, BOB = SshKey("ada", "ssh-ed25519 AAAA"), SshKey("bob", "ssh-ed25519 BBBB")
REQUEST = NodeRequest(
    id=NODE,
    accelerator="v3-8",
    runtime="tpu-ubuntu2204-base",
    spot=False,
    labels={"managed-by": "tpuctl", "tpuctl-owner": owner_label("ada")},
    ssh_key=ADA,
)


def wait(operation: Operation) -> None:
    """Wait until an operation is done; raises its error."""
    operation.wait("to be done", 30, backoff=Backoff(0.01, 0.05))


def create(provider: CloudTpu, request: NodeRequest = REQUEST) -> Node:
    """Create a node and return it as the API lists it."""
    wait(provider.begin(CreateNode(request)))
    return provider.get_node(request.id)


def key_change(provider: CloudTpu, node: Node, key: SshKey) -> UpdateNode:
    """Return the change that adds a key which a node does not accept yet."""
    change = provider.ssh_key_change(node, key)
    assert change is not None
    return change


def named(name: str, zone: str = ZONE) -> NodeRequest:
    """Return a request for a node of another name."""
    return msgspec.structs.replace(REQUEST, id=replace(NODE, name=name, zone=zone))


def test_a_node_has_what_was_requested(provider: CloudTpu) -> None:
    node = create(
        provider,
        msgspec.structs.replace(REQUEST, spot=True, service_account="sa@sim-project.iam.gserviceaccount.com"),
    )
    assert node.id == replace(NODE, uid=node.id.uid)
    assert (node.name, node.zone, node.state, node.provider_state) == ("n1", ZONE, NodeState.READY, "READY")
    assert (node.accelerator, node.runtime, node.spot) == ("v3-8", "tpu-ubuntu2204-base", True)
    assert node.labels == REQUEST.labels
    assert node.metadata == {"ssh-keys": "ada:ssh-ed25519 AAAA ada"}
    assert (node.managed, node.owner, node.is_owned_by("ada")) == (True, owner_label("ada"), True)
    assert len(node.addresses) == 1
    assert node.id.uid
    assert node.created.endswith("Z")


def test_the_identity_of_a_node_needs_no_request(provider: CloudTpu) -> None:
    assert provider.node_id(ZONE, "n1") == NODE


def test_a_node_of_several_hosts_has_as_many_addresses_and_keys(provider: CloudTpu) -> None:
    node = create(provider, msgspec.structs.replace(REQUEST, accelerator="v3-32"))
    keys = provider.host_keys(node.id)
    assert len(set(node.addresses)) == 4
    assert list(keys) == [0, 1, 2, 3]
    assert len(set(keys.values())) == 4
    assert all(key.startswith("AAAAC3NzaC1lZDI1NTE5") for key in keys.values())


def test_a_name_that_is_used_again_has_another_uid(provider: CloudTpu) -> None:
    first = create(provider)
    wait(provider.begin(DeleteNode(first.id)))
    with pytest.raises(NotFoundError, match="Node 'n1' in europe-west4-a does not exist"):
        provider.get_node(NODE)
    second = create(provider)
    assert second.id.uid != first.id.uid
    assert provider.get_node(second.id) == second
    with pytest.raises(NotFoundError, match="its name is another node's now"):
        provider.get_node(first.id)


def test_nodes_are_listed_by_zone_and_everywhere(provider: CloudTpu) -> None:
    create(provider)
    create(provider, named("n2", "us-central1-b"))
    assert {node.name for node in provider.list_nodes().nodes} == {"n1", "n2"}
    assert [node.zone for node in provider.list_nodes("us-central1-b").nodes] == ["us-central1-b"]
    assert provider.list_nodes("us-east5-a").nodes == ()
    assert provider.list_nodes().unreachable == ()


def test_every_page_of_a_list_is_read(
    provider: CloudTpu, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tpuctl.sim.world.nodes import service

    monkeypatch.setattr(
        service, "page", lambda items, key, _size, token: resources.page(items, key, 2, token)
    )
    names = [f"n{number}" for number in range(5)]
    operations = [provider.begin(CreateNode(named(name))) for name in names]
    for operation in operations:
        wait(operation)
    lines = list[str]()
    with showing(lines.append):
        listed = provider.list_nodes().nodes
    assert sorted(node.name for node in listed) == names
    assert [line.split(" ")[1] for line in lines] == ["ListNodes"] * 3, "a line for each page"


def test_every_page_of_the_zones_is_read(
    provider: CloudTpu, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = provider.list_zones()
    assert whole == sorted(set(whole))
    assert {ZONE, "us-central1-b", "us-east5-a"} <= set(whole)
    assert len(simulator.events.find(kind="request", what="ListLocations")) == 1
    monkeypatch.setattr(
        methods, "page", lambda items, key, _size, token: resources.page(items, key, 3, token)
    )
    assert provider.list_zones() == whole
    requests = len(simulator.events.find(kind="request", what="ListLocations"))
    assert requests == 1 + -(-len(whole) // 3)


def test_the_names_of_hosts_come_with_their_keys(provider: CloudTpu, simulator: RunningSimulator) -> None:
    def requests() -> int:
        return len(simulator.events.find(kind="request", what="GetGuestAttributes"))

    node = create(provider, msgspec.structs.replace(REQUEST, accelerator="v3-32")).id
    provider.host_keys(node)
    assert requests() == 1
    names = [provider.hostname(node, worker) for worker in range(4)]
    assert all(names)
    assert len(set(names)) == 4
    assert requests() == 1, "they are known already"
    assert provider.hostname(node, 4) is None
    assert requests() == 2, "it may have been published meanwhile"
    other = create(provider, named("n2")).id
    assert provider.hostname(other, 0) not in {None, *names}
    assert requests() == 3


def test_guest_attributes_that_are_not_there_yet_are_waited_for(
    provider: CloudTpu, simulator: RunningSimulator
) -> None:
    node = provider.node_id(ZONE, "n1")
    missing = "The resource 'hostkeys/' of type 'Guest Attribute' was not found."
    simulator.faults.add("error", method="GetGuestAttributes", code="NOT_FOUND", message=missing)
    with pytest.raises(NotFoundError, match="Node 'n1'"):
        provider.host_keys(node)
    create(provider)
    assert provider.host_keys(node) == {}
    assert provider.hostname(node, 0) is None
    assert provider.host_notes(node, "tpuctl", "keeper") == {}


def test_what_google_would_refuse_is_refused_before_it_is_sent(
    provider: CloudTpu, simulator: RunningSimulator
) -> None:
    with pytest.raises(UsageError):
        provider.check(CreateNode(msgspec.structs.replace(REQUEST, labels={"Team": "vision"})))
    assert simulator.events.find(kind="request") == []


def test_a_change_is_not_sent_again_after_that_of_another_client(
    provider: CloudTpu, simulator: RunningSimulator
) -> None:
    node = create(provider)
    simulator.faults.add(grpc_fault("tpu.UpdateNode", 10, "conflict", count=1))
    with pytest.raises(ConflictError, match="was changed by another client"):
        provider.begin(key_change(provider, node, BOB))
    simulator.faults.add(grpc_fault("tpu.GetNode", 10, "conflict", count=1))
    assert provider.get_node(NODE) == node


@pytest.mark.parametrize(("zone", "place"), [(ZONE, "zone europe-west4-a"), (None, "project sim-project")])
def test_an_error_about_a_list_names_the_place(
    provider: CloudTpu, simulator: RunningSimulator, zone: str | None, place: str
) -> None:
    for subject, method in (("nodes", "ListNodes"), ("queued resources", "ListQueuedResources")):
        simulator.faults.add(grpc_fault(f"tpu.{method}", 7, "no", count=1))
        listed = provider.list_nodes if subject == "nodes" else provider.list_queued_resources
        with pytest.raises(ConfigError, match=f"{subject} of {place}"):
            listed(zone)


def test_zones_that_do_not_answer_are_named(provider: CloudTpu, simulator: RunningSimulator) -> None:
    simulator.faults.add("unreachable", zone="us-east1-d")
    assert provider.list_nodes().unreachable == ("us-east1-d",)


def test_a_key_is_added_to_those_that_a_node_accepts(provider: CloudTpu) -> None:
    node = create(provider)
    assert provider.ssh_key_change(node, ADA) is None
    wait(provider.begin(key_change(provider, node, BOB)))
    node = provider.get_node(NODE)
    assert provider.ssh_key_change(node, ADA) is None
    assert provider.ssh_key_change(node, BOB) is None
    assert node.labels == REQUEST.labels


def test_other_metadata_stays_when_a_key_is_added(provider: CloudTpu) -> None:
    node = create(provider)
    wait(provider.begin(key_change(provider, replace(node, metadata={"colour": "red"}), BOB)))
    assert provider.get_node(NODE).metadata == {"colour": "red", "ssh-keys": "bob:ssh-ed25519 BBBB bob"}


def test_a_second_create_of_the_name_is_a_conflict(provider: CloudTpu) -> None:
    create(provider)
    with pytest.raises(ConflictError, match="exists already"):
        provider.begin(CreateNode(REQUEST))


def test_a_type_that_the_zone_lacks_is_bad_input(provider: CloudTpu) -> None:
    with pytest.raises(UsageError, match="v4-8 was not found in zone"):
        create(provider, msgspec.structs.replace(REQUEST, accelerator="v4-8"))


def test_a_create_is_never_sent_twice_by_itself(provider: CloudTpu, simulator: RunningSimulator) -> None:
    simulator.faults.add(grpc_fault("tpu.CreateNode", 14, "unavailable", count=1))
    with pytest.raises(DeadlineError, match="cannot be reached"):
        provider.begin(CreateNode(REQUEST))
    assert simulator.world.nodes.all() == []


def test_requests_that_may_be_repeated_are_retried(provider: CloudTpu, simulator: RunningSimulator) -> None:
    create(provider)
    for method in ("ListNodes", "GetNode", "GetGuestAttributes", "GetOperation", "ListAcceleratorTypes",
                   "ListRuntimeVersions", "UpdateNode", "DeleteNode"):  # fmt: skip
        simulator.faults.add(grpc_fault(f"tpu.{method}", 14, "unavailable", count=1))
    node = provider.get_node(NODE)
    assert provider.list_nodes().nodes == (node,)
    assert provider.host_keys(NODE)
    assert "v3-8" in provider.list_accelerator_types(ZONE)
    assert "tpu-ubuntu2204-base" in provider.list_runtimes(ZONE)
    wait(provider.begin(key_change(provider, node, BOB)))
    wait(provider.begin(DeleteNode(NODE)))
    assert simulator.faults.all() == []


def test_an_operation_that_fails_late_leaves_no_node(provider: CloudTpu, simulator: RunningSimulator) -> None:
    simulator.faults.add(grpc_fault("tpu.CreateNode", 8, "There is no more capacity in the zone", late=True))
    operation = provider.begin(CreateNode(REQUEST))
    with pytest.raises(StockoutError, match=r"^Node 'n1' \(v3-8\) in europe-west4-a: There is no more"):
        wait(operation)
    with pytest.raises(NotFoundError):
        provider.get_node(NODE)


def test_an_operation_that_takes_too_long_says_what_it_was_for(
    provider: CloudTpu, simulator: RunningSimulator
) -> None:
    simulator.faults.add("stuck-operation")
    operation = provider.begin(CreateNode(REQUEST))
    with pytest.raises(
        DeadlineError, match=r"Waited 0 s for Node 'n1' \(v3-8\) in \S+ to be created\."
    ) as late:
        operation.wait("to be created", 0, hint="Wait on.")
    assert late.value.hint == "Wait on."


def test_a_preempted_node_is_listed_and_cannot_be_updated(
    provider: CloudTpu, simulator: RunningSimulator
) -> None:
    node = create(provider, msgspec.structs.replace(REQUEST, spot=True))
    simulator.call(simulator.world.preempt(f"projects/sim-project/locations/{ZONE}/nodes/n1"))
    assert provider.get_node(NODE).state is NodeState.PREEMPTED
    with pytest.raises(PreemptedError):
        wait(provider.begin(key_change(provider, node, BOB)))
    with pytest.raises(PreemptedError, match=rf"^Node 'n1' in {ZONE} was preempted"):
        provider.host_keys(NODE)  # not its guest attributes were


def test_an_operation_that_does_not_exist_is_not_found(provider: CloudTpu) -> None:
    name = f"projects/sim-project/locations/{ZONE}/operations/operation-0"
    with pytest.raises(NotFoundError):
        provider.operation("It", name).is_done()


def test_the_requests_of_a_dry_run_are_those_that_would_be_sent(provider: CloudTpu) -> None:
    node = create(provider)
    changes = (CreateNode(REQUEST), DeleteNode(NODE), key_change(provider, node, BOB))
    assert [provider.http_request(change).method for change in changes] == ["POST", "DELETE", "PATCH"]


def test_the_creations_of_a_node_are_listed_those_that_failed_too(
    provider: CloudTpu, simulator: RunningSimulator
) -> None:
    assert provider.creations(NODE) == {}
    create(provider, named("n2"))
    simulator.faults.add(
        grpc_fault("tpu.CreateNode", 8, "There is no more capacity in the zone", late=True, count=1)
    )
    with pytest.raises(StockoutError):
        create(provider)
    (failed,) = provider.creations(NODE).values()
    with pytest.raises(StockoutError):
        wait(failed)
    create(provider)
    assert len(provider.creations(NODE)) == 2
