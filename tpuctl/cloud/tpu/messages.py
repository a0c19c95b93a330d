"""Converts nodes and queued resources of the Cloud TPU API to tpuctl's own records.

- Maps the states of nodes and queued resources in the Cloud TPU API to tpuctl's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import IntEnum

from google.cloud import tpu_v2
from google.rpc import code_pb2

from tpuctl import accelerators, clock
from tpuctl.accelerators import catalogue
from tpuctl.cloud.tpu.error_mapping import CREATING, operation_error
from tpuctl.cloud.tpu.rules import RESERVED, STARTUP_SCRIPT, parse_node_name, parse_queued_resource_name
from tpuctl.errors import ServiceError, StockoutError, TpuctlError
from tpuctl.nodes import (
    CLOUD_TPU,
    DataDisk,
    Node,
    NodeId,
    NodeSpec,
    NodeState,
    QueuedResource,
    QueuedResourceId,
    QueueState,
    Symptom,
)

STATES: Mapping[str, NodeState] = {
    "CREATING": NodeState.CREATING,
    "STARTING": NodeState.STARTING,
    "RESTARTING": NodeState.STARTING,
    "REIMAGING": NodeState.STARTING,
    "UNHIDING": NodeState.STARTING,
    "READY": NodeState.READY,
    "REPAIRING": NodeState.REPAIRING,
    "STOPPING": NodeState.STOPPING,
    "HIDING": NodeState.STOPPING,
    "STOPPED": NodeState.STOPPED,
    "HIDDEN": NodeState.STOPPED,
    "PREEMPTED": NodeState.PREEMPTED,
    "TERMINATED": NodeState.PREEMPTED,  # by maintenance, or at the end of a preemptible node's life
    "DELETING": NodeState.DELETING,
}
"""Any other state, also one that the API gets later, is UNKNOWN."""
SPOT_STATES = {**STATES, "STOPPED": NodeState.PREEMPTED}
"""Of a spot or preemptible node: nobody can start it again, and Google does not always say PREEMPTED."""

QUEUE_STATES: Mapping[str, QueueState] = {
    "CREATING": QueueState.WAITING,
    "ACCEPTED": QueueState.WAITING,
    "WAITING_FOR_RESOURCES": QueueState.WAITING,
    "PROVISIONING": QueueState.PROVISIONING,
    "ACTIVE": QueueState.ACTIVE,
    "SUSPENDING": QueueState.SUSPENDING,
    "SUSPENDED": QueueState.SUSPENDED,
    "FAILED": QueueState.FAILED,
    "DELETING": QueueState.DELETING,
}
"""Any other state is UNKNOWN."""


def enum_name(enum: type[IntEnum], value: int) -> str:
    """Return the API's name of a value, and its number when this client does not know it."""
    try:
        return enum(value).name
    except ValueError:
        return str(value)


HOST_KEYS = "hostkeys"
"""The namespace of guest attributes into which Google's agent writes a host's keys."""
INSTANCE_NAME = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
"""Of Compute Engine. Each program on a host can write guest attributes: another text is no name."""
EXPIRED = re.compile(r"(?i)(?=.*\brequest\b).*\bexpired\b")
"""Of a request in the queue: there was no capacity for as long as it was valid."""
INITIATORS = {1: "USER", 2: "SERVICE"}
"""QueuedResourceState.StateInitiator of google/cloud/tpu/v2/cloud_tpu.proto."""


def read_node(message: tpu_v2.Node) -> Node:
    """Return a node of the API as tpuctl's record."""
    plain = tpu_v2.Node.pb(message)  # the message itself warns of values that this client does not know
    state, health = enum_name(tpu_v2.Node.State, plain.state), plain.health
    is_spot = plain.scheduling_config.spot or plain.scheduling_config.preemptible
    networks = len(message.network_configs) or 1  # side by side, each host has an endpoint in every one
    endpoints = list(message.network_endpoints)[::networks]
    return Node(
        id=parse_node_name(message.name, str(message.id)),
        state=(SPOT_STATES if is_spot else STATES).get(state, NodeState.UNKNOWN),
        provider_state=state,
        accelerator=message.accelerator_type,
        runtime=message.runtime_version,
        created=_time(message.create_time),
        created_at=_seconds(message.create_time),
        spot=is_spot,
        health=enum_name(tpu_v2.Node.Health, health) if health else "",
        health_description=message.health_description,
        symptoms=tuple(_symptom(symptom) for symptom in message.symptoms),
        addresses=tuple(_address(endpoint) for endpoint in endpoints),
        external=tuple(bool(endpoint.access_config.external_ip) for endpoint in endpoints),
        internal=tuple(str(endpoint.ip_address) for endpoint in endpoints),
        labels=dict(message.labels),
        metadata=dict(message.metadata),
        queued_resource=message.queued_resource.rpartition("/")[2],
        multislice=plain.multislice_node,
        spec=read_spec(message),
    )


def read_host_keys(message: tpu_v2.GetGuestAttributesResponse) -> Mapping[int, str]:
    """Return the ed25519 host key of each worker whose guest attributes hold one."""
    return read_guest_attribute(message, "ssh-ed25519", HOST_KEYS)


def read_hostnames(message: tpu_v2.GetGuestAttributesResponse) -> Mapping[int, str]:
    """Return the name of each worker's instance: its key `hostname`, in any namespace, as for gcloud."""
    names = read_guest_attribute(message, "hostname")
    return {worker: name for worker, name in names.items() if re.fullmatch(INSTANCE_NAME, name)}


def read_guest_attribute(
    message: tpu_v2.GetGuestAttributesResponse, key: str, namespace: str = ""
) -> Mapping[int, str]:
    """Return the value of a key of each worker that has one, in any namespace or in this one."""
    return {
        worker: str(attribute.value)
        for worker, attributes in enumerate(message.guest_attributes)
        for attribute in attributes.query_value.items
        if attribute.key == key and namespace in ("", attribute.namespace)
    }


def read_queued_resource(message: tpu_v2.QueuedResource) -> QueuedResource:
    """Return a queued resource of the API as tpuctl's record."""
    identity = parse_queued_resource_name(message.name)
    state = enum_name(tpu_v2.QueuedResourceState.State, tpu_v2.QueuedResource.pb(message).state.state)
    initiator = tpu_v2.QueuedResource.pb(message).state.state_initiator
    failed = tpu_v2.QueuedResource.pb(message).state.failed_data.error
    subject = f"Queued resource '{identity.name}'"
    failure = operation_error(subject, failed, CREATING) if failed.code else None
    specs, valid_until = list(message.tpu.node_spec), message.queueing_policy.valid_until_time
    pattern = specs[0].node if specs else tpu_v2.Node()
    return QueuedResource(
        id=identity,
        state=QUEUE_STATES.get(state, QueueState.UNKNOWN),
        provider_state=state,
        nodes=tuple(node for spec in specs for node in _nodes_of(identity, spec)),
        accelerator=pattern.accelerator_type or _type_of(pattern.accelerator_config),
        runtime=pattern.runtime_version,
        created=_time(message.create_time),
        created_at=_seconds(message.create_time),
        spot="spot" in message,
        reservation=message.reservation_name,
        valid_until=_time(valid_until),
        initiator=INITIATORS.get(initiator, ""),
        error=message.state.failed_data.error.message,
        error_kind=failure.kind if failure else "",
        error_hint=failure.hint if failure else "",
        failure=_failure(
            identity, tpu_v2.QueuedResource.pb(message).state, message.queueing_policy.valid_until_time
        ),
        labels=dict(pattern.labels),
        metadata=dict(pattern.metadata),
    )


def _symptom(message: tpu_v2.Symptom) -> Symptom:
    kind = tpu_v2.Symptom.pb(message).symptom_type
    return Symptom(
        worker=message.worker_id,
        kind=enum_name(tpu_v2.Symptom.SymptomType, kind),
        details=message.details,
        noticed=_time(message.create_time),
    )


def _nodes_of(
    queued_resource: QueuedResourceId, spec: tpu_v2.QueuedResource.Tpu.NodeSpec
) -> Iterator[NodeId]:
    prefix = spec.node_id or spec.multislice_params.node_id_prefix or queued_resource.name
    count = spec.multislice_params.node_count
    for name in [f"{prefix}-{number}" for number in range(count)] or [prefix]:
        yield NodeId(CLOUD_TPU, queued_resource.project, queued_resource.zone, name)


def _time(moment: object) -> str:
    return clock.iso(moment) if isinstance(moment, datetime) else ""


def _seconds(moment: object) -> float:
    return moment.timestamp() if isinstance(moment, datetime) else 0.0


def _failure(
    identity: QueuedResourceId, state: tpu_v2.QueuedResourceState, valid_until: object
) -> TpuctlError | None:
    """Return the error of a queued resource that has failed."""
    if QUEUE_STATES.get(enum_name(tpu_v2.QueuedResourceState.State, state.state)) is not QueueState.FAILED:
        return None
    subject, error = f"Queued resource '{identity.name}' in {identity.zone}", state.failed_data.error
    hint = f"Delete it: tpuctl down {identity.name}"
    if error.code == code_pb2.DEADLINE_EXCEEDED or EXPIRED.match(error.message):
        # the request's own time: the service has answered
        return StockoutError(f"{subject}: {error.message}", hint=hint, words=error.message)
    if error.code or error.message:
        return operation_error(subject, error, CREATING)
    told = f"{subject} has FAILED, and Google gives no reason"
    if isinstance(valid_until, datetime):  # whether it is over, this machine's clock cannot say
        return StockoutError(f"{told}; it was wanted until {_time(valid_until)}.", hint=hint)
    return ServiceError(f"{told}.", hint=hint)


def _type_of(config: tpu_v2.AcceleratorConfig) -> str:
    """Return the type that a generation and a topology mean; empty for one that nobody knows."""
    plain = tpu_v2.AcceleratorConfig.pb(config)
    sides = plain.topology.split("x")
    if not all(side.isdecimal() for side in sides):
        return ""
    generation, chips = enum_name(tpu_v2.AcceleratorConfig.Type, plain.type_), math.prod(map(int, sides))
    kinds = accelerators.catalogue().values()
    return next((kind.type for kind in kinds if (kind.api_enum, kind.chips) == (generation, chips)), "")


def _address(endpoint: tpu_v2.NetworkEndpoint) -> str:
    return str(endpoint.access_config.external_ip or endpoint.ip_address)


# Reads what the creator of a node chose of it, so that another one like it can be made.


def read_spec(message: tpu_v2.Node) -> NodeSpec:
    """Return the settings of a node of the API: names in its own project without the project."""
    plain = tpu_v2.Node.pb(message)
    network, account = plain.network_config, plain.service_account
    own = f"projects/{parse_node_name(plain.name, '').project}/"
    return NodeSpec(
        network=_short(network.network, own) or "default",
        subnetwork=_short(network.subnetwork, own),
        external_ips=network.enable_external_ips,
        service_account=account.email,
        scopes=tuple(account.scope),
        tags=tuple(plain.tags),
        data_disks=tuple(
            DataDisk(disk.source_disk, disk.mode != tpu_v2.AttachedDisk.DiskMode.READ_WRITE)
            for disk in plain.data_disks
        ),
        topology=_topology(plain.accelerator_type, plain.accelerator_config.topology),
        secure_boot=plain.shielded_instance_config.enable_secure_boot,
        reserved=plain.scheduling_config.reserved,
        metadata={key: value for key, value in plain.metadata.items() if key not in RESERVED},
        startup_script=plain.metadata.get(STARTUP_SCRIPT, ""),
    )


def _short(name: str, own: str) -> str:
    """Return a network by which the project's other regions know it, too; another project's stays whole."""
    return name.rpartition("/")[2] if name.startswith(own) else name


def _topology(accelerator: str, topology: str) -> str:
    """Return a topology that is not the one that the type has by itself."""
    known = catalogue().get(accelerator)
    return "" if known and known.topology == topology else topology
