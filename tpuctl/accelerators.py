"""The catalogue of accelerator types: hosts, chips, cores, zones and plain runtime versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tpuctl.errors import UsageError, nearest

RUNTIME_BASES = ("tpu-ubuntu2204-base", "v2-alpha-tpuv5-lite", "v2-alpha-tpuv5", "v2-alpha-tpuv6e")
"""Runtime versions without a framework, for JAX and PyTorch."""


@dataclass(frozen=True)
class Accelerator:
    """One accelerator type, as the Cloud TPU API names it (`v3-8`)."""

    type: str
    generation: str
    chips: int
    hosts: int
    topology: str
    cores_per_chip: int
    zones: tuple[str, ...]
    """Zones that offer the type according to the catalogue; the API decides."""
    base_runtime: str

    @property
    def cores(self) -> int:
        """TensorCores."""
        return self.chips * self.cores_per_chip

    @property
    def chips_per_host(self) -> int:
        """Chips that one host sees as local devices."""
        return self.chips // self.hosts


@cache
def catalogue() -> Mapping[str, Accelerator]:
    """Return every known accelerator type by name, smallest first within a generation."""
    text = Path(__file__).with_name("accelerators.json").read_text()
    return {
        name: Accelerator(
            type=name,
            generation=generation["name"],
            chips=chips,
            hosts=hosts,
            topology=topology,
            cores_per_chip=generation["cores_per_chip"],
            zones=tuple(
                generation["zones"] if hosts == 1 else generation.get("pod_zones", generation["zones"])
            ),
            base_runtime=generation["base_runtime"],
        )
        for generation in json.loads(text)["generations"]
        for name, chips, hosts, topology in generation["types"]
    }


def accelerator(name: str) -> Accelerator:
    """Return the accelerator type called `name`; raises UsageError with the nearest names."""
    types = catalogue()
    if name.lower() in types:
        return types[name.lower()]
    close = _nearest_types(name, types)
    raise UsageError(
        f"There is no accelerator type '{name}'.",
        hint=f"The nearest are {', '.join(close)}." if close else f"Try {', '.join(_examples(types))}.",
        accelerator=name,
        nearest=close,
    )


def zones() -> list[str]:
    """Return every zone in the catalogue, sorted."""
    return sorted({zone for accelerator in catalogue().values() for zone in accelerator.zones})


def region(zone: str) -> str:
    """Return the region of a zone: `europe-west4-a` is in `europe-west4`."""
    return zone.rpartition("-")[0]


def _nearest_types(name: str, types: Mapping[str, Accelerator]) -> list[str]:
    """Types of the same generation with the nearest size, else the nearest spelling."""
    prefix, _, size = name.rpartition("-")
    family = {other: _size(other) for other in types if other.rpartition("-")[0] == prefix}
    if family and size.isdigit():
        return sorted(family, key=lambda other: abs(family[other] - int(size)))[:3]
    return nearest(name, types)


def _size(name: str) -> int:
    return int(name.rpartition("-")[2])


def _examples(types: Mapping[str, Accelerator]) -> list[str]:
    """The smallest type of each generation."""
    smallest = {accelerator.generation: name for name, accelerator in reversed(list(types.items()))}
    return sorted(smallest.values())
