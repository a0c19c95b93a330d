"""What is read of the messages of the Cloud TPU API (google/cloud/tpu/v2/cloud_tpu.proto).

Every state of the API has a meaning.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from google.cloud import tpu_v2
from google.rpc import status_pb2

from tpuctl.cloud.tpu.messages import (
    STATES,
    enum_name,
    read_guest_attribute,
    read_host_keys,
    read_hostnames,
    read_node,
    read_queued_resource,
)
from tpuctl.cloud.tpu.rules import (
    parse_queued_resource_name,
    project_name,
    queued_resource_name,
    reservation_name,
)
from tpuctl.errors import ServiceError, StockoutError
from tpuctl.nodes import DataDisk, NodeId, NodeSpec, NodeState, QueuedResourceId, QueueState, Symptom

NAME = "projects/p/locations/us-east1-d/nodes/n1"
QUEUED = "projects/p/locations/us-east1-d/queuedResources/q1"
MOMENT = datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)
States = tpu_v2.QueuedResourceState.State


def node(**fields: Any) -> tpu_v2.Node:
    return tpu_v2.Node(name=NAME, **fields)


def endpoint(internal: str, external: str = "") -> tpu_v2.NetworkEndpoint:
    return tpu_v2.NetworkEndpoint(
        ip_address=internal, access_config=tpu_v2.AccessConfig(external_ip=external)
    )


def test_a_node_has_what_its_message_says() -> None:
    read = read_node(
        node(
            id=7,
            state=tpu_v2.Node.State.READY,
            accelerator_type="v3-32",
            runtime_version="tpu-vm-base",
            create_time=MOMENT,
            health_description="fine",
            network_endpoints=[endpoint("10.0.0.1", "34.1.2.3"), endpoint("10.0.0.2")],
            labels={"team": "a"},
            metadata={"key": "b"},
            queued_resource=QUEUED,
        )
    )
    assert read.id == NodeId("cloud-tpu", "p", "us-east1-d", "n1", "7")
    assert (read.state, read.provider_state) == (NodeState.READY, "READY")
    assert (read.accelerator, read.runtime) == ("v3-32", "tpu-vm-base")
    assert (read.created, read.created_at) == ("2026-01-31T12:00:00Z", MOMENT.timestamp())
    assert (read.spot, read.health, read.health_description, read.symptoms) == (False, "", "fine", ())
    assert (read.addresses, read.external) == (("34.1.2.3", "10.0.0.2"), (True, False))
    assert (dict(read.labels), dict(read.metadata), read.queued_resource) == (
        {"team": "a"},
        {"key": "b"},
        "q1",
    )


def test_a_host_with_several_networks_is_one_host() -> None:
    """gcloud takes each n-th endpoint of a node with n networks (ParseWorkerFlag)."""
    networks = [tpu_v2.NetworkConfig(network=name) for name in ("default", "second")]
    endpoints = [
        endpoint(f"10.{net}.0.{host}", f"34.0.0.{host}" if net == 0 else "")
        for host in (1, 2)
        for net in (0, 1)
    ]
    read = read_node(node(network_configs=networks, network_endpoints=endpoints))
    assert (read.addresses, read.external) == (("34.0.0.1", "34.0.0.2"), (True, True))


def test_a_message_that_says_little_leaves_the_rest_empty() -> None:
    read = read_node(node())
    assert (read.state, read.created, read.created_at, read.queued_resource) == (
        NodeState.UNKNOWN,
        "",
        0.0,
        "",
    )


@pytest.mark.parametrize(("spot", "preemptible"), [(True, False), (False, True), (True, True)])
def test_a_preemptible_node_is_spot(spot: bool, preemptible: bool) -> None:
    config = tpu_v2.SchedulingConfig(spot=spot, preemptible=preemptible)
    assert read_node(node(scheduling_config=config)).spot


def test_a_spot_node_that_is_stopped_never_runs_again() -> None:
    """Nobody can start it, and not every preemption leaves the state PREEMPTED (skypilot#1468)."""
    for fields in ({"spot": True}, {"preemptible": True}, {}):
        read = read_node(node(state=tpu_v2.Node.State.STOPPED, scheduling_config=fields))
        assert read.provider_state == "STOPPED"
        assert read.state is (NodeState.PREEMPTED if fields else NodeState.STOPPED)


def test_a_symptom_has_its_time() -> None:
    (symptom,) = read_node(node(symptoms=[tpu_v2.Symptom(create_time=MOMENT, worker_id="1")])).symptoms
    assert symptom.noticed == "2026-01-31T12:00:00Z"


@pytest.mark.parametrize(
    ("states", "ours"),
    [
        ("CREATING", NodeState.CREATING),
        ("STARTING RESTARTING REIMAGING UNHIDING", NodeState.STARTING),
        ("READY", NodeState.READY),
        ("REPAIRING", NodeState.REPAIRING),
        ("STOPPING HIDING", NodeState.STOPPING),
        ("STOPPED HIDDEN", NodeState.STOPPED),
        ("PREEMPTED TERMINATED", NodeState.PREEMPTED),
        ("DELETING", NodeState.DELETING),
        ("STATE_UNSPECIFIED UNKNOWN", NodeState.UNKNOWN),
    ],
)
def test_states_of_the_api_have_a_meaning(states: str, ours: NodeState) -> None:
    for state in states.split():
        assert read_node(node(state=tpu_v2.Node.State[state])).state is ours


def test_no_state_of_the_api_is_left_out() -> None:
    assert {*STATES} | {"STATE_UNSPECIFIED", "UNKNOWN"} == {state.name for state in tpu_v2.Node.State}


def settings(**fields: Any) -> NodeSpec:
    return read_node(node(**fields)).spec


def test_settings_are_what_the_creator_chose() -> None:
    read = settings(
        accelerator_type="v4-8",
        network_config=tpu_v2.NetworkConfig(
            network="projects/p/global/networks/lab",
            subnetwork="projects/q/regions/r/subnetworks/s",
            enable_external_ips=True,
        ),
        service_account=tpu_v2.ServiceAccount(email="a@p", scope=["x", "y"]),
        tags=["t"],
        data_disks=[
            tpu_v2.AttachedDisk(source_disk="d1", mode=tpu_v2.AttachedDisk.DiskMode.READ_WRITE),
            tpu_v2.AttachedDisk(source_disk="d2", mode=tpu_v2.AttachedDisk.DiskMode.READ_ONLY),
        ],
        shielded_instance_config=tpu_v2.ShieldedInstanceConfig(enable_secure_boot=True),
        scheduling_config=tpu_v2.SchedulingConfig(reserved=True),
        metadata={"startup-script": "echo", "ssh-keys": "k", "own": "v", "tpu-env": "x"},
    )
    assert read == NodeSpec(
        network="lab",
        subnetwork="projects/q/regions/r/subnetworks/s",
        external_ips=True,
        service_account="a@p",
        scopes=("x", "y"),
        tags=("t",),
        data_disks=(DataDisk("d1", read_only=False), DataDisk("d2", read_only=True)),
        secure_boot=True,
        reserved=True,
        metadata={"own": "v"},
        startup_script="echo",
    )


def test_settings_that_nobody_chose_are_the_defaults() -> None:
    assert settings() == NodeSpec(external_ips=False)
    assert (
        settings(network_config=tpu_v2.NetworkConfig(network="projects/pp/x/n")).network == "projects/pp/x/n"
    )


@pytest.mark.parametrize(
    ("kind", "topology", "expected"),
    [("v4-64", "2x4x4", ""), ("v4-64", "2x2x8", "2x2x8"), ("v9-9", "2x2x1", "2x2x1"), ("v4-64", "", "")],
)
def test_a_topology_is_kept_where_it_is_not_that_of_its_type(kind: str, topology: str, expected: str) -> None:
    config = tpu_v2.AcceleratorConfig(type_=tpu_v2.AcceleratorConfig.Type.V4, topology=topology)
    assert settings(accelerator_type=kind, accelerator_config=config).topology == expected


def attributes(*workers: list[tuple[str, str, str]]) -> tpu_v2.GetGuestAttributesResponse:
    """Return the guest attributes of workers: namespace, key and value of each."""
    return tpu_v2.GetGuestAttributesResponse(
        guest_attributes=[
            tpu_v2.GuestAttributes(
                query_value=tpu_v2.GuestAttributesValue(
                    items=[
                        tpu_v2.GuestAttributesEntry(namespace=namespace, key=key, value=value)
                        for namespace, key, value in items
                    ]
                )
            )
            for items in workers
        ]
    )


def test_host_keys_are_those_of_googles_agent() -> None:
    message = attributes(
        [("hostkeys", "ssh-rsa", "r"), ("hostkeys", "ssh-ed25519", "A")],
        [("mine", "ssh-ed25519", "B")],
        [("hostkeys", "ssh-ed25519", "C")],
    )
    assert read_host_keys(message) == {0: "A", 2: "C"}
    assert read_guest_attribute(message, "ssh-ed25519") == {0: "A", 1: "B", 2: "C"}


def test_hostnames_are_names_of_instances() -> None:
    names = ("t1v-n-1-w-0", "a", "a" * 63, "a" * 64, "Host", "a-", "1a", "a b", "a\n", "")
    message = attributes(*([("any", "hostname", name)] for name in names))
    assert read_hostnames(message) == {0: "t1v-n-1-w-0", 1: "a", 2: "a" * 63}


def queued(*specs: tpu_v2.QueuedResource.Tpu.NodeSpec, **fields: Any) -> tpu_v2.QueuedResource:
    return tpu_v2.QueuedResource(name=QUEUED, tpu=tpu_v2.QueuedResource.Tpu(node_spec=list(specs)), **fields)


def spec(name: str = "", prefix: str = "", count: int = 0) -> tpu_v2.QueuedResource.Tpu.NodeSpec:
    made = tpu_v2.QueuedResource.Tpu.NodeSpec(
        node_id=name,
        node=tpu_v2.Node(
            accelerator_type="v3-8", runtime_version="r", labels={"a": "b"}, metadata={"c": "d"}
        ),
    )
    if count:
        made.multislice_params = tpu_v2.QueuedResource.Tpu.NodeSpec.MultisliceParams(
            node_count=count, node_id_prefix=prefix
        )
    return made


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (spec("n1"), ["n1"]),
        (spec(), ["q1"]),
        (spec(prefix="s", count=3), ["s-0", "s-1", "s-2"]),
        (spec(count=2), ["q1-0", "q1-1"]),
    ],
)
def test_a_queued_resource_names_its_nodes_before_they_exist(
    made: tpu_v2.QueuedResource.Tpu.NodeSpec, names: list[str]
) -> None:
    nodes = read_queued_resource(queued(made)).nodes
    assert nodes == tuple(NodeId("cloud-tpu", "p", "us-east1-d", name) for name in names)


def test_a_queued_resource_has_what_its_message_says() -> None:
    state = tpu_v2.QueuedResourceState(
        state=States.WAITING_FOR_RESOURCES,
        state_initiator=tpu_v2.QueuedResourceState.StateInitiator.SERVICE,
    )
    read = read_queued_resource(
        queued(
            spec("n1"),
            state=state,
            create_time=MOMENT,
            reservation_name="r1",
            spot=tpu_v2.QueuedResource.Spot(),
            queueing_policy=tpu_v2.QueuedResource.QueueingPolicy(valid_until_time=MOMENT),
        )
    )
    assert read.id == QueuedResourceId("cloud-tpu", "p", "us-east1-d", "q1")
    assert (read.state, read.provider_state) == (QueueState.WAITING, "WAITING_FOR_RESOURCES")
    assert (read.accelerator, read.runtime, read.spot, read.reservation) == ("v3-8", "r", True, "r1")
    assert (read.created, read.created_at) == ("2026-01-31T12:00:00Z", MOMENT.timestamp())
    assert (read.valid_until, read.initiator) == ("2026-01-31T12:00:00Z", "SERVICE")
    assert (read.error, read.error_kind, read.error_hint, read.failure) == ("", "", "", None)
    assert (dict(read.labels), dict(read.metadata)) == ({"a": "b"}, {"c": "d"})
    plain = read_queued_resource(queued())
    assert (plain.spot, plain.initiator, plain.valid_until, plain.accelerator) == (False, "", "", "")


@pytest.mark.parametrize(
    ("states", "ours"),
    [
        ("CREATING ACCEPTED WAITING_FOR_RESOURCES", QueueState.WAITING),
        ("PROVISIONING", QueueState.PROVISIONING),
        ("ACTIVE", QueueState.ACTIVE),
        ("SUSPENDING", QueueState.SUSPENDING),
        ("SUSPENDED", QueueState.SUSPENDED),
        ("FAILED", QueueState.FAILED),
        ("DELETING", QueueState.DELETING),
        ("STATE_UNSPECIFIED", QueueState.UNKNOWN),
    ],
)
def test_states_of_the_queue_have_a_meaning(states: str, ours: QueueState) -> None:
    for state in states.split():
        message = queued(state=tpu_v2.QueuedResourceState(state=States[state]))
        assert read_queued_resource(message).state is ours


@pytest.mark.parametrize(("initiator", "word"), [("USER", "USER"), ("SERVICE", "SERVICE")])
def test_who_brought_it_into_its_state_is_told(initiator: str, word: str) -> None:
    kind = tpu_v2.QueuedResourceState.StateInitiator[initiator]
    message = queued(state=tpu_v2.QueuedResourceState(state_initiator=kind))
    assert read_queued_resource(message).initiator == word


def test_a_failure_is_an_error_with_its_kind_and_hint() -> None:
    error = status_pb2.Status(code=8, message='There is no more capacity in the zone "us-east1-d"')
    state = tpu_v2.QueuedResourceState(
        state=States.FAILED, failed_data=tpu_v2.QueuedResourceState.FailedData(error=error)
    )
    read = read_queued_resource(queued(state=state))
    assert (read.error, read.error_kind) == (error.message, "stockout")
    assert read.error_hint
    assert isinstance(read.failure, StockoutError)
    assert read.failure.message.startswith("Queued resource 'q1' in us-east1-d: There is no more capacity")
    error.code, error.message = 4, "It could not be provisioned within the time it was valid."
    state.failed_data.error = error
    expired = read_queued_resource(queued(state=state)).failure
    assert isinstance(expired, StockoutError), "an answer, not the lack of one"
    assert expired.message == f"Queued resource 'q1' in us-east1-d: {error.message}"
    assert expired.hint == "Delete it: tpuctl down q1"
    state.state = States.SUSPENDED
    assert read_queued_resource(queued(state=state)).failure is None


def test_a_failure_without_words_says_that_there_are_none() -> None:
    subject, hint = "Queued resource 'q1' in us-east1-d", "Delete it: tpuctl down q1"
    failed = tpu_v2.QueuedResourceState(state=States.FAILED)
    for state in (failed, tpu_v2.QueuedResourceState(state=States.FAILED, failed_data={})):
        failure = read_queued_resource(queued(state=state)).failure
        assert isinstance(failure, ServiceError)
        assert (failure.message, failure.hint) == (f"{subject} has FAILED, and Google gives no reason.", hint)
    policy = tpu_v2.QueuedResource.QueueingPolicy(valid_until_time=MOMENT)
    expired = read_queued_resource(queued(state=failed, queueing_policy=policy)).failure
    assert isinstance(expired, StockoutError)
    assert expired.message == (
        f"{subject} has FAILED, and Google gives no reason; it was wanted until 2026-01-31T12:00:00Z."
    )
    words = status_pb2.Status(code=9, message="The request has expired.")
    failed.failed_data.error = words
    told = read_queued_resource(queued(state=failed)).failure
    assert isinstance(told, StockoutError)
    assert (told.message, told.hint) == (f"{subject}: {words.message}", hint)


@pytest.mark.parametrize(
    ("generation", "topology", "expected"),
    [("V4", "2x2x4", "v4-32"), ("V5LITE_POD", "4x4", "v5litepod-16"), ("V4", "", ""), ("V4", "9x9x9", "")],
)
def test_a_request_by_generation_and_topology_has_a_type(
    generation: str, topology: str, expected: str
) -> None:
    """As gcloud's --type and --topology ask for it; the service names the type once there is a node."""
    config = tpu_v2.AcceleratorConfig(type_=generation, topology=topology)
    asked = tpu_v2.QueuedResource.Tpu.NodeSpec(node=tpu_v2.Node(accelerator_config=config))
    assert read_queued_resource(queued(asked)).accelerator == expected


def test_names_of_queued_resources_and_reservations() -> None:
    identity = QueuedResourceId("cloud-tpu", "p", "us-east1-d", "q1")
    assert (queued_resource_name(identity), parse_queued_resource_name(QUEUED)) == (QUEUED, identity)
    for bad in (NAME, f"{QUEUED}/x", "q1"):
        with pytest.raises(ValueError, match="is not the name of a queued resource"):
            parse_queued_resource_name(bad)
    assert project_name("p") == "projects/p"
    full = "projects/p/locations/z/reservations/r"
    assert [reservation_name(name, "p", "z") for name in ("r", full, "a/b")] == [full, full, "a/b"]


def test_the_table_names_every_state_of_the_api() -> None:
    unspecified = {"STATE_UNSPECIFIED", "UNKNOWN"}
    assert {state.name for state in tpu_v2.Node.State} - unspecified == set(STATES)


def test_a_state_that_this_client_does_not_know_is_unknown_and_shown_by_its_number() -> None:
    assert enum_name(tpu_v2.Node.State, 99) == "99"
    node = read_node(tpu_v2.Node(name=NAME, state=99))
    assert (node.state, node.provider_state) == (NodeState.UNKNOWN, "99")


def test_the_apis_own_word_is_kept_to_be_shown() -> None:
    node = read_node(tpu_v2.Node(name=NAME, state=tpu_v2.Node.State.TERMINATED))
    assert (node.state, node.provider_state) == (NodeState.PREEMPTED, "TERMINATED")


def test_ill_health_is_kept_with_the_worker_it_was_noticed_on() -> None:
    kinds = tpu_v2.Symptom.SymptomType
    symptom = tpu_v2.Symptom(worker_id="3", symptom_type=kinds.OUT_OF_MEMORY, details="oom-killer")
    timeout = tpu_v2.Node.Health.TIMEOUT
    node = read_node(
        tpu_v2.Node(name=NAME, health=timeout, health_description="no answer", symptoms=[symptom])
    )
    assert (node.health, node.health_description) == ("TIMEOUT", "no answer")
    assert node.symptoms == (Symptom("3", "OUT_OF_MEMORY", "oom-killer", ""),)


def test_health_and_symptoms_that_this_client_does_not_know_are_shown_by_their_numbers() -> None:
    node = read_node(tpu_v2.Node(name=NAME, health=99, symptoms=[tpu_v2.Symptom(symptom_type=98)]))
    assert node.health == "99"
    assert [symptom.kind for symptom in node.symptoms] == ["98"]
