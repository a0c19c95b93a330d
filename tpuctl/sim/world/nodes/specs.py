"""The fields of a node that a request may set, in the API's JSON form: which are kept, checked, changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tpuctl.sim.world.api_errors import problem
from tpuctl.sim.world.capacity import availability

OUTPUT_ONLY = frozenset(
    {
        "name",
        "state",
        "healthDescription",
        "createTime",
        "networkEndpoints",
        "health",
        "id",
        "apiVersion",
        "symptoms",
        "queuedResource",
        "multisliceNode",
        "upcomingMaintenance",
    }
)
"""Fields of a node that only the service writes; as with Google, they are ignored when sent."""

UPDATABLE: dict[str, tuple[str, Any]] = {
    "description": ("description", ""),
    "labels": ("labels", {}),
    "metadata": ("metadata", {}),
    "tags": ("tags", []),
    "data_disks": ("dataDisks", []),
    "network_config.enable_external_ips": ("networkConfig.enableExternalIps", False),
}
"""Paths that an update's mask may name -> the path in JSON, the value when the request leaves it out."""

LONGEST_DESCRIPTION = 512


def checked(zone: str, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return what to keep of a node as sent, its accelerator filled in; raises INVALID_ARGUMENT."""
    spec = {name: value for name, value in sent.items() if name not in OUTPUT_ONLY}
    chosen = availability.chosen(zone, spec)
    _check(spec, chosen.hosts)
    availability.require_runtime(spec.get("runtimeVersion", ""))
    config = {"type": availability.CONFIG_TYPES[chosen.generation], "topology": chosen.topology}
    return {**spec, "acceleratorType": chosen.type, "acceleratorConfig": config}


def changes(sent: Mapping[str, Any], mask: Sequence[str], *, hosts: int) -> dict[str, Any]:
    """Return the new values by JSON path that an update of a node asks for; raises INVALID_ARGUMENT."""
    unknown = [path for path in mask if path not in UPDATABLE]
    if unknown or not mask:
        raise problem("bad_mask", paths=", ".join(unknown) or "it is empty", known=", ".join(UPDATABLE))
    wanted = {path: _at(sent, path, default) for path, default in map(UPDATABLE.__getitem__, mask)}
    _check(wanted, hosts)
    return wanted


def _check(spec: Mapping[str, Any], hosts: int) -> None:
    if len(spec.get("description", "")) > LONGEST_DESCRIPTION:
        raise problem("bad_field", what=f"description has more than {LONGEST_DESCRIPTION} characters")
    if spec.get("networkConfig") and spec.get("networkConfigs"):
        raise problem("bad_field", what="network_config and network_configs are mutually exclusive")
    if len(spec.get("networkConfigs", [])) > 1:
        raise problem("unimplemented", what="nodes with several networks")
    if hosts > 1 and any(disk.get("mode") == "READ_WRITE" for disk in spec.get("dataDisks", [])):
        raise problem("bad_field", what="a data disk of a slice of several hosts is read-only")


def _at(sent: Mapping[str, Any], path: str, default: Any) -> Any:
    value: Any = sent
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return default if value is None else value
