"""Converts JSON between versions of the API; the world uses v2 with v2alpha1's own fields."""

from __future__ import annotations

from collections.abc import Mapping

from tpuctl.sim.world.api_json import MessageFields

API_VERSIONS = {"v2": "V2", "v2alpha1": "V2_ALPHA1"}
"""The api_version that a node shows: v2alpha1 has no V2."""

MULTISLICE_PARAMS = {"v2": "multisliceParams", "v2alpha1": "multiNodeParams"}
"""The parameters of several nodes in a NodeSpec, the same in all but name (and v2alpha1's workloadType)."""

SHOWS_DELETED = frozenset({"v2alpha1"})
"""Versions in which the result of deleting a queued resource is the queued resource; in v2 it is empty."""

STATES_WITH_DATA = frozenset(
    {
        "CREATING",
        "ACCEPTED",
        "PROVISIONING",
        "FAILED",
        "DELETING",
        "ACTIVE",
        "SUSPENDING",
        "SUSPENDED",
    }
)
"""States of a queued resource with a message of their own in `state_data`."""


def to_v2(version: str, queued: Mapping[str, object]) -> MessageFields:
    """Return a queued resource sent in this version as the world reads it."""
    return _renamed(queued, MULTISLICE_PARAMS[version], MULTISLICE_PARAMS["v2"])


def from_v2(version: str, queued: Mapping[str, object]) -> MessageFields:
    """Return a queued resource of the world as this version shows it."""
    return _renamed(queued, MULTISLICE_PARAMS["v2"], MULTISLICE_PARAMS[version])


def _renamed(queued: Mapping[str, object], old: str, new: str) -> MessageFields:
    tpu = queued.get("tpu")
    node_specs = tpu.get("nodeSpec") if isinstance(tpu, Mapping) else None
    if not node_specs:
        return dict(queued)
    renamed = [
        {new if key == old else key: value for key, value in node_spec.items()} for node_spec in node_specs
    ]
    return {**queued, "tpu": {"nodeSpec": renamed}}
