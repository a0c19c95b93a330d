"""Looks up accelerator types in the catalogue: hosts, chips, cores, zones and plain runtime versions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NoReturn

from tpuctl.errors import UsageError, nearest

ALIASES = {
    # what people, price lists and products call a generation: its types in the Cloud TPU API
    "v5e": "v5litepod", "v5lite": "v5litepod", "v5-lite": "v5litepod", "v5lite-pod": "v5litepod",
    "v6": "v6e", "trillium": "v6e",
    "v7": "tpu7x", "v7x": "tpu7x", "ironwood": "tpu7x",
}  # fmt: skip
TPU7X = "tpu7x"
"""A generation without types in the catalogue: Google's pages offer it on Compute Engine and GKE, and some
projects are given it through the Cloud TPU API: vllm-project/ci-infra#570."""
TYPE = re.compile(r"[a-z][a-z0-9]{0,19}-[1-9][0-9]{0,5}")
"""Names of types that the API may list although the catalogue does not know them."""
TOPOLOGY = re.compile(r"[1-9][0-9]{0,3}(x[1-9][0-9]{0,3}){1,2}")


@dataclass(frozen=True)
class Accelerator:
    """One accelerator type, as the Cloud TPU API names it (`v3-8`)."""

    type: str
    generation: str
    api_enum: str
    """The generation's name in the API's AcceleratorConfig: `V5LITE_POD`."""
    chips: int
    """0 for a type that the catalogue does not know."""
    hosts: int
    """0 for a type that the catalogue does not know."""
    topology: str
    cores_per_chip: int
    zones: tuple[str, ...]
    """Zones that offer the type according to the catalogue; the API decides."""
    base_runtime: str
    documented: tuple[str, ...] = ()
    """Those of them that Google's page of regions and zones names."""

    @property
    def is_known(self) -> bool:
        """Whether the catalogue has it; if not, the API may have it all the same."""
        return bool(self.chips)

    @property
    def places(self) -> str:
        """Where it is available, as a sentence for hints."""
        if self.zones:
            return f"It is available in {', '.join(self.zones)}."
        if self.generation == TPU7X:
            return (
                "TPU7x (Ironwood) is offered by Compute Engine and GKE; the Cloud TPU API has it in a few "
                "projects only."
            )
        return "'tpuctl types' lists what the API offers in each zone."

    @property
    def cores(self) -> int:
        """TensorCores."""
        return self.chips * self.cores_per_chip

    @property
    def chips_per_host(self) -> int:
        """Chips that one host sees as local devices."""
        return self.chips // self.hosts if self.hosts else 0


@cache
def catalogue() -> Mapping[str, Accelerator]:
    """Return every known accelerator type by name, smallest first within a generation."""
    text = Path(__file__).with_name("accelerators.json").read_text()
    return {
        name: Accelerator(
            type=name,
            generation=generation["name"],
            api_enum=generation["api_enum"],
            chips=chips,
            hosts=hosts,
            topology=topology,
            cores_per_chip=generation["cores_per_chip"],
            zones=tuple(
                generation["zones"] if hosts == 1 else generation.get("pod_zones", generation["zones"])
            ),
            base_runtime=generation["base_runtime"],
            documented=tuple(
                generation["documented"]
                if hosts == 1
                else generation.get("documented_pods", generation["documented"])
            ),
        )
        for generation in json.loads(text)["generations"]
        for name, chips, hosts, topology in generation["types"]
    }


def accelerator(name: str) -> Accelerator:
    """Return the accelerator type called `name`, also by a name of ALIASES or with `tpu-` in front.

    Of one that is not in the catalogue, what its name says: the API decides whether there is such a type.
    Raises UsageError for a name that can be none.
    """
    types = catalogue()
    family, size = _parts(name)
    canonical = f"{family}-{size}" if size else family
    if canonical in types:
        return types[canonical]
    return _unknown(canonical) if TYPE.fullmatch(canonical) else _refuse(name, family, size, types)


def known(name: str) -> Accelerator:
    """Return the type called `name` of the catalogue, or of TPU7x, whose types are not in it.

    Raises UsageError with the types or generations that the user may have meant.
    """
    kind = accelerator(name)
    if kind.is_known or kind.generation == TPU7X:
        return kind
    return _refuse(name, *_parts(name), catalogue())


def _unknown(name: str) -> Accelerator:
    """Return a type that is not in the catalogue, with what all types of its generation have."""
    for other in catalogue().values():
        if _family(other.type) == _family(name):
            return replace(other, type=name, chips=0, hosts=0, topology="")
    return Accelerator(name, _family(name), "", 0, 0, "", 1, (), "")


def is_generation(name: str) -> bool:
    """Whether `name` is a generation without a size, such as `v4` or `v5e`."""
    family, size = _parts(name)
    return not size and any(_family(other) == family for other in catalogue())


def of_topology(topology: str, name: str = "") -> Accelerator:
    """Return the type that has a topology; `name` is the type itself or a generation, '' for any.

    Raises UsageError for a topology of another number of chips, of no type, or of several.
    """
    if not TOPOLOGY.fullmatch(topology):
        raise UsageError(f"'{topology}' is no topology.", hint="It is chips by chips: 4x4, or 2x2x4.")
    if name and not is_generation(name):
        return _of_chips(known(name), topology)
    family = _parts(name)[0]
    types = [
        kind
        for kind in catalogue().values()
        if family in ("", _family(kind.type)) and kind.topology.split("x") == topology.split("x")
    ]
    if len(types) == 1:
        return types[0]
    members = ", ".join(kind.type for kind in types)
    if types:
        raise UsageError(f"{topology} is the topology of {members}.", hint="Name one of them.")
    others = [kind.topology for kind in catalogue().values() if family in ("", _family(kind.type))]
    raise UsageError(
        f"No type{f' of {name}' if name else ''} has the topology {topology}.",
        hint=f"There are {', '.join(dict.fromkeys(others))}.",
    )


def _of_chips(kind: Accelerator, topology: str) -> Accelerator:
    if not kind.is_known:
        raise UsageError(f"The topologies of {kind.type} are not known.", hint="Leave out --topology.")
    sides = [int(side) for side in topology.split("x")]
    if math.prod(sides) != kind.chips or len(sides) != kind.topology.count("x") + 1:
        raise UsageError(
            f"{topology} is no topology of {kind.type}: it has {kind.chips} chips, as {kind.topology}.",
            hint=f"Leave out --topology, or give one of {kind.chips} chips.",
            accelerator=kind.type,
        )
    return kind


def zones() -> list[str]:
    """Return every zone in the catalogue, sorted."""
    return sorted({zone for accelerator in catalogue().values() for zone in accelerator.zones})


def region(zone: str) -> str:
    """Return the region of a zone: `europe-west4-a` is in `europe-west4`."""
    return zone.rpartition("-")[0]


def _parts(name: str) -> tuple[str, str]:
    """Return the family of a type, as the API names it, and its size, which may be empty."""
    family, _, size = name.lower().removeprefix("tpu-").rpartition("-")
    if not (family and re.fullmatch("[0-9]{1,9}", size)):
        family, size = name.lower().removeprefix("tpu-"), ""
    return ALIASES.get(family, family), size


def _refuse(name: str, family: str, size: str, types: Mapping[str, Accelerator]) -> NoReturn:
    """Raise the error for a name that is no type, with what is nearest to it."""
    members = [other for other in types if _family(other) == family]
    message, close = f"There is no accelerator type '{name}'.", list[str]()
    if members and not size:
        message, close = f"'{name}' is a TPU generation without a size.", members
        hint = f"Choose one of its types: {', '.join(members[:4])}, ... {members[-1]}."
    elif family == TPU7X:
        hint = f"{_unknown(f'{TPU7X}-8').places} Name a size, as in {TPU7X}-8."
    else:
        close = _nearest_types(family, size, members, types)
        hint = f"The nearest are {', '.join(close)}." if close else f"{_generations(types)}."
    raise UsageError(message, hint=hint, accelerator=name, nearest=close[:6])


def _nearest_types(family: str, size: str, members: list[str], types: Mapping[str, Accelerator]) -> list[str]:
    """Types of the family with the nearest size, else of families that begin so, else of near spelling."""
    if members:
        return sorted(members, key=lambda other: abs(_size(other) - int(size)))[:3]
    if re.fullmatch(r"v\d+[a-z]?", family):
        examples = _examples(types).values()
        return [other for other in examples if other.startswith(family)]
    return nearest(f"{family}-{size}" if size else family, types)


def _generations(types: Mapping[str, Accelerator]) -> str:
    examples = ", ".join(f"{generation} ({example})" for generation, example in _examples(types).items())
    return f"The generations, each with a type: {examples}"


def _examples(types: Mapping[str, Accelerator]) -> dict[str, str]:
    """A type of eight cores or chips of each generation, the oldest first."""
    return {accelerator.generation: name for name, accelerator in types.items() if _size(name) == 8}


def _family(name: str) -> str:
    return name.rpartition("-")[0]


def _size(name: str) -> int:
    return int(name.rpartition("-")[2])
