"""What each zone offers: accelerator types, from the catalogue, and runtime versions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from tpuctl import accelerators
from tpuctl.accelerators import Accelerator
from tpuctl.sim.world.api_errors import problem

TENSORFLOW_VERSIONS = ("2.15.0", "2.16.0", "2.16.1", "2.17.0", "2.18.0")
TENSORFLOW_FORMS = ("", "-pjrt", "-pod", "-pod-pjrt")

RUNTIME_VERSIONS: tuple[str, ...] = (
    *accelerators.RUNTIME_BASES,
    *(f"tpu-vm-tf-{version}{form}" for version in TENSORFLOW_VERSIONS for form in TENSORFLOW_FORMS),
)
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
"""What a node gets that asks for no type (the proto's comment on accelerator_type)."""


@cache
def zones() -> tuple[str, ...]:
    """Return the zones that exist."""
    return tuple(accelerators.zones())


@cache
def types(zone: str) -> dict[str, Accelerator]:
    """Return the accelerator types of a zone by name."""
    return {name: one for name, one in accelerators.catalogue().items() if zone in one.zones}


def accelerator(zone: str, name: str) -> Accelerator:
    """Return the type called `name` in a zone; raises INVALID_ARGUMENT when it is not offered there."""
    if name not in types(zone):
        raise problem("type_not_in_zone", type=name, zone=zone)
    return types(zone)[name]


def chosen(zone: str, spec: Mapping[str, Any]) -> Accelerator:
    """Return the type that a node as sent asks for, by `acceleratorType` or by `acceleratorConfig`."""
    config = spec.get("acceleratorConfig")
    if spec.get("acceleratorType") or not config:
        return accelerator(zone, spec.get("acceleratorType") or DEFAULT_TYPE)
    wanted = (config.get("type"), config.get("topology"))
    for one in types(zone).values():
        if (CONFIG_TYPES[one.generation], one.topology) == wanted:
            return one
    raise problem("type_not_in_zone", type=" ".join(str(part) for part in wanted), zone=zone)


def require_runtime(name: str) -> None:
    """Raise INVALID_ARGUMENT unless there is such a runtime version."""
    if name not in RUNTIME_VERSIONS:
        raise problem("bad_runtime", runtime=name)
