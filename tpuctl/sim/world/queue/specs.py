"""The fields of a queued resource that a request may set: the nodes it requests, and when it is valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from tpuctl.sim.world import names
from tpuctl.sim.world.api_errors import api_error
from tpuctl.sim.world.api_json import (
    NodeFields,
    NodeSpec,
    QueuedResourceFields,
    SchedulingConfig,
    queued_resource_fields,
)
from tpuctl.sim.world.nodes import specs as node_specs

MAX_NODES = 256
"""Ours: a bound on the nodes of one request."""


def checked(
    parent: str, identifier: str, sent: Mapping[str, object]
) -> tuple[QueuedResourceFields, dict[str, NodeFields]]:
    """Return the fields of a queued resource as sent, and those of each requested node by its full name.

    Raises INVALID_ARGUMENT.
    """
    spec = queued_resource_fields(sent)
    requested = spec.get("tpu", {}).get("nodeSpec", [])
    if not requested:
        raise api_error("bad_field", reason="a queued resource must have a node_spec")
    nodes: dict[str, NodeFields] = {}
    node_specs_checked: list[NodeSpec] = []
    for node_spec in requested:
        if node_spec.get("parent") != parent:
            raise api_error("bad_field", reason=f"node_spec.parent must be {parent}")
        node = node_specs.checked(names.parse(parent).zone, node_spec.get("node", {}))
        node_specs_checked.append({**node_spec, "node": node})
        for node_id in _node_ids(identifier, node_spec):
            nodes[f"{parent}/nodes/{node_id}"] = _in_tier(spec, node)
    if len(nodes) > MAX_NODES:
        raise api_error("bad_field", reason=f"a queued resource has {MAX_NODES} nodes at most")
    return {**spec, "tpu": {"nodeSpec": node_specs_checked}}, nodes


def validity(spec: QueuedResourceFields, now: float) -> tuple[float | None, float | None]:
    """Return from when and until when resources may be created, in seconds since 1970."""
    policy = spec.get("queueingPolicy", {})
    interval = policy.get("validInterval", {})
    start, end = interval.get("startTime"), interval.get("endTime")
    after = _moment(policy.get("validAfterTime", start), policy.get("validAfterDuration"), now)
    until = _moment(policy.get("validUntilTime", end), policy.get("validUntilDuration"), now)
    if until is not None and until <= max(after or now, now):
        raise api_error(
            "bad_field", reason="queueing_policy leaves no time in which resources may be created"
        )
    return after, until


def _node_ids(identifier: str, node_spec: NodeSpec) -> Iterator[str]:
    """Yield one id, or `PREFIX-0` to `PREFIX-<n-1>`."""
    multislice = node_spec.get("multisliceParams", {})
    if bool(multislice) == bool(node_spec.get("nodeId")):
        reason = "node_spec needs either a node_id or the parameters of several nodes"
        raise api_error("bad_field", reason=reason)
    prefix = node_spec.get("nodeId") or multislice.get("nodeIdPrefix") or identifier
    if not multislice:
        names.require_identifier(prefix)
        yield prefix
        return
    count = multislice.get("nodeCount", 0)
    if count <= 1:
        raise api_error("bad_field", reason="node_count must be greater than 1")
    names.require_identifier(f"{prefix}-{count - 1}")
    yield from (f"{prefix}-{number}" for number in range(count))


def _in_tier(spec: QueuedResourceFields, node: NodeFields) -> NodeFields:
    """Return a node's fields with the schedulingConfig of the queued resource's tier."""
    scheduling: SchedulingConfig = {**node.get("schedulingConfig", {}), **_tier(spec)}
    if spec.get("reservationName") or spec.get("guaranteed", {}).get("reserved"):
        scheduling["reserved"] = True
    return {**node, "schedulingConfig": scheduling} if scheduling else node


def _tier(spec: QueuedResourceFields) -> SchedulingConfig:
    if "spot" in spec:
        return {"spot": True}
    if "bestEffort" in spec:  # of v2alpha1; that its nodes are preemptible is ours
        return {"preemptible": True}
    return {}


def _moment(time: str | None, duration: str | None, now: float) -> float | None:
    """Return seconds since 1970 from protobuf's JSON: `2026-01-31T12:00:00.5Z`, `3600s`."""
    if duration is not None:
        return now + float(duration.removesuffix("s"))
    if time is None:
        return None
    seconds, _, fraction = time.removesuffix("Z").partition(".")
    moment = datetime.fromisoformat(seconds).replace(tzinfo=UTC)
    return moment.timestamp() + float(f"0.{fraction or 0}")
