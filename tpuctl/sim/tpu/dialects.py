"""Where the versions of the API differ in JSON; the world speaks v2 with v2alpha1's own fields added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

API_VERSIONS = {"v2": "V2", "v2alpha1": "V2_ALPHA1"}
"""What a node shows as its api_version: v2alpha1 has no V2."""

SEVERAL_NODES = {"v2": "multisliceParams", "v2alpha1": "multiNodeParams"}
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


def understood(version: str, queued: Mapping[str, Any]) -> dict[str, Any]:
    """Return a queued resource sent in this version as the world knows it."""
    return _renamed(queued, SEVERAL_NODES[version], SEVERAL_NODES["v2"])


def spoken(version: str, queued: Mapping[str, Any]) -> dict[str, Any]:
    """Return a queued resource of the world as this version shows it."""
    return _renamed(queued, SEVERAL_NODES["v2"], SEVERAL_NODES[version])


def _renamed(queued: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    specs = [
        {new if key == old else key: value for key, value in spec.items()}
        for spec in queued.get("tpu", {}).get("nodeSpec", [])
    ]
    return {**queued, "tpu": {"nodeSpec": specs}} if specs else dict(queued)
