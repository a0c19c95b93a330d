"""Lists the accelerator types (from the catalogue) and the runtime versions of each zone."""

from __future__ import annotations

from functools import cache

from tpuctl import accelerators
from tpuctl.accelerators import Accelerator
from tpuctl.images import IMAGES
from tpuctl.sim.world.api_errors import api_error
from tpuctl.sim.world.resources import NodeFields

RUNTIME_VERSIONS = tuple(IMAGES)
"""The same in every zone."""

CONFIG_TYPES = {
    "v2": "V2",
    "v3": "V3",
    "v4": "V4",
    "v5e": "V5LITE_POD",
    "v5p": "V5P",
    "v6e": "V6E",
}
"""Generation in the catalogue -> AcceleratorConfig.Type."""

DEFAULT_TYPE = "v2-8"
"""The type of a node whose request names none (the proto's comment on accelerator_type)."""


@cache
def zones() -> tuple[str, ...]:
    """Return the zones that exist."""
    return tuple(accelerators.zones())


@cache
def accelerator_types(zone: str) -> dict[str, Accelerator]:
    """Return the accelerator types of a zone by name."""
    catalogue = accelerators.catalogue().items()
    return {name: accelerator for name, accelerator in catalogue if zone in accelerator.zones}


def accelerator(zone: str, name: str) -> Accelerator:
    """Return the type called `name` in a zone; raises INVALID_ARGUMENT when the zone does not offer it."""
    if name not in accelerator_types(zone):
        raise api_error("type_not_in_zone", type=name, zone=zone)
    return accelerator_types(zone)[name]


def requested_accelerator(zone: str, node: NodeFields) -> Accelerator:
    """Return the type that a node requests by `acceleratorType` or by `acceleratorConfig`."""
    config = node.get("acceleratorConfig")
    if node.get("acceleratorType") or not config:
        return accelerator(zone, node.get("acceleratorType") or DEFAULT_TYPE)
    requested = (config.get("type"), config.get("topology"))
    for offered in accelerator_types(zone).values():
        if (CONFIG_TYPES[offered.generation], offered.topology) == requested:
            return offered
    raise api_error("type_not_in_zone", type=" ".join(str(part) for part in requested), zone=zone)


def require_runtime_version(name: str) -> None:
    """Raise INVALID_ARGUMENT unless there is such a runtime version."""
    if name not in RUNTIME_VERSIONS:
        raise api_error("bad_runtime", runtime=name)
