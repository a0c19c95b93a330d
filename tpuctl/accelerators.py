"""What Google offers: accelerator types, their hosts, chips and cores, zones and runtime versions."""

from __future__ import annotations

import json
from collections.abc import Iterable
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
    """Zones in which the catalogue has seen it; the API has the last word."""
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
def catalogue() -> dict[str, Accelerator]:
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
    known = catalogue()
    if name.lower() in known:
        return known[name.lower()]
    close = _nearest_types(name, known)
    raise UsageError(
        f"There is no accelerator type '{name}'.",
        hint=f"The nearest are {', '.join(close)}." if close else f"Try {', '.join(_examples(known))}.",
        accelerator=name,
        nearest=close,
    )


def zones() -> list[str]:
    """Return every zone in the catalogue, sorted."""
    return sorted({zone for one in catalogue().values() for zone in one.zones})


def region(zone: str) -> str:
    """Return the region of a zone: `europe-west4-a` is in `europe-west4`."""
    return zone.rpartition("-")[0]


def tensorflow_runtimes(versions: Iterable[str], hosts: int) -> list[str]:
    """Return the TensorFlow images among `versions` that fit a slice of `hosts` hosts, newest first.

    Images of one host and of several differ (`...-pod`). Names: Cloud TPU documentation, runtime versions.
    """
    fitting = [name for name in versions if name.startswith("tpu-vm-tf-") and ("-pod" in name) == (hosts > 1)]
    return sorted(fitting, key=_version_key, reverse=True)


def _version_key(name: str) -> tuple[tuple[int, ...], bool]:
    number = name.removeprefix("tpu-vm-tf-").split("-")[0]
    return tuple(int(part) for part in number.split(".") if part.isdigit()), "pjrt" in name


def _nearest_types(name: str, known: dict[str, Accelerator]) -> list[str]:
    """Types of the same generation with the nearest size, else the nearest spelling."""
    prefix, _, size = name.rpartition("-")
    family = [one for one in known if one.rpartition("-")[0] == prefix]
    if family and size.isdigit():
        return sorted(family, key=lambda one: abs(int(one.rpartition("-")[2]) - int(size)))[:3]
    return nearest(name, known)


def _examples(known: dict[str, Accelerator]) -> list[str]:
    first_of_generation = {one.generation: one.type for one in reversed(known.values())}
    return sorted(first_of_generation.values())
