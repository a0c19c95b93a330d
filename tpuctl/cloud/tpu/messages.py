"""Converts nodes of the Cloud TPU API to tpuctl's own records."""

from __future__ import annotations

from collections.abc import Mapping

from google.cloud import tpu_v2

from tpuctl import clock
from tpuctl.cloud.tpu.names import parse_node_name
from tpuctl.cloud.tpu.states import STATES, state_name
from tpuctl.nodes import Node, NodeState


def read_node(message: tpu_v2.Node) -> Node:
    """Return a node of the API as tpuctl's record."""
    state = state_name(tpu_v2.Node.pb(message).state)  # the message itself warns of new states
    return Node(
        id=parse_node_name(message.name, str(message.id)),
        state=STATES.get(state, NodeState.UNKNOWN),
        provider_state=state,
        accelerator=message.accelerator_type,
        runtime=message.runtime_version,
        created=_created(message),
        spot=message.scheduling_config.spot or message.scheduling_config.preemptible,
        health=tpu_v2.Node.Health(message.health).name if message.health else "",
        addresses=tuple(_address(endpoint) for endpoint in message.network_endpoints),
        labels=dict(message.labels),
        metadata=dict(message.metadata),
    )


def read_host_keys(message: tpu_v2.GetGuestAttributesResponse) -> Mapping[int, str]:
    """Return the ed25519 host key of each worker whose guest attributes hold one."""
    return {
        worker: str(attribute.value)
        for worker, attributes in enumerate(message.guest_attributes)
        for attribute in attributes.query_value.items
        if attribute.key == "ssh-ed25519"
    }


def _created(message: tpu_v2.Node) -> str:
    moment = message.create_time
    return clock.iso(moment) if moment else ""  # type: ignore[arg-type]  # proto-plus makes it a datetime


def _address(endpoint: tpu_v2.NetworkEndpoint) -> str:
    return str(endpoint.access_config.external_ip or endpoint.ip_address)
