"""The fields of a queued resource that a request may set: which nodes it asks for, and when it is valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from tpuctl.sim.world import names
from tpuctl.sim.world.api_errors import problem
from tpuctl.sim.world.nodes import specs

OUTPUT_ONLY = frozenset({"name", "createTime", "state"})

TIERS: dict[str, dict[str, bool]] = {
    "spot": {"spot": True},
    "bestEffort": {"preemptible": True},  # of v2alpha1; that its nodes are preemptible is ours
    "guaranteed": {},
}
"""The tier -> what it makes of the nodes' schedulingConfig."""

MOST_NODES = 256
"""Ours: a bound on what one request makes."""


def checked(parent: str, identifier: str, sent: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what to keep of a queued resource as sent, and the fields of each node it asks for by name.

    Raises INVALID_ARGUMENT.
    """
    spec = {name: value for name, value in sent.items() if name not in OUTPUT_ONLY}
    asked = spec.get("tpu", {}).get("nodeSpec", [])
    if not asked:
        raise problem("bad_field", what="a queued resource must have a node_spec")
    nodes: dict[str, Any] = {}
    kept = []
    for one in asked:
        if one.get("parent") != parent:
            raise problem("bad_field", what=f"node_spec.parent must be {parent}")
        node = specs.checked(names.place(parent)[1], one.get("node", {}))
        kept.append({**one, "node": node})
        for node_id in _node_ids(identifier, one):
            nodes[f"{parent}/nodes/{node_id}"] = _in_tier(spec, node)
    if len(nodes) > MOST_NODES:
        raise problem("bad_field", what=f"a queued resource has {MOST_NODES} nodes at most")
    return {**spec, "tpu": {"nodeSpec": kept}}, nodes


def validity(spec: Mapping[str, Any], now: float) -> tuple[float | None, float | None]:
    """Return from when and until when resources may be created, in seconds since 1970."""
    policy = spec.get("queueingPolicy", {})
    interval = policy.get("validInterval", {})
    after, until = interval.get("startTime"), interval.get("endTime")
    ends = {
        "after": _moment(policy.get("validAfterTime", after), policy.get("validAfterDuration"), now),
        "until": _moment(policy.get("validUntilTime", until), policy.get("validUntilDuration"), now),
    }
    if ends["until"] is not None and ends["until"] <= max(ends["after"] or now, now):
        raise problem("bad_field", what="queueing_policy leaves no time in which resources may be created")
    return ends["after"], ends["until"]


def _node_ids(identifier: str, asked: Mapping[str, Any]) -> Iterator[str]:
    """One id, or `PREFIX-0` to `PREFIX-<n-1>`."""
    several: Mapping[str, Any] = asked.get("multisliceParams", {})
    if bool(several) == bool(asked.get("nodeId")):
        raise problem("bad_field", what="node_spec needs either a node_id or the parameters of several nodes")
    prefix = asked.get("nodeId") or several.get("nodeIdPrefix") or identifier
    if not names.IDENTIFIER.fullmatch(prefix):
        raise problem("bad_id", id=prefix)
    if not several:
        yield prefix
        return
    count = several.get("nodeCount", 0)
    if count <= 1:
        raise problem("bad_field", what="node_count must be greater than 1")
    yield from (f"{prefix}-{number}" for number in range(count))


def _in_tier(spec: Mapping[str, Any], node: Mapping[str, Any]) -> dict[str, Any]:
    tier = next((TIERS[name] for name in TIERS if name in spec), {})
    reserved = spec.get("reservationName") or spec.get("guaranteed", {}).get("reserved")
    scheduling = {**node.get("schedulingConfig", {}), **tier, **({"reserved": True} if reserved else {})}
    return {**node, "schedulingConfig": scheduling} if scheduling else dict(node)


def _moment(time: str | None, duration: str | None, now: float) -> float | None:
    """From protobuf's JSON: `2026-01-31T12:00:00.5Z`, `3600s`."""
    if duration is not None:
        return now + float(duration.removesuffix("s"))
    if time is None:
        return None
    whole, _, fraction = time.removesuffix("Z").partition(".")
    moment = datetime.fromisoformat(whole).replace(tzinfo=UTC)
    return moment.timestamp() + float(f"0.{fraction or 0}")
