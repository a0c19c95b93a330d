"""Describes the slice that a process sees: accelerator type, TensorFlow devices, hosts and mesh."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Generation:
    """How the number in an accelerator type's name is read."""

    number_per_chip: int
    """2 where the number counts TensorCores (v2 to v4, v5p), 1 where it counts chips."""
    devices_per_chip: int
    """TensorFlow's TPU devices: a core each in v2 and v3; later chips are one device each."""
    dimensions: int


# Cloud TPU documentation, "TPU architecture" and the page of each version.
GENERATIONS = {
    "v2": Generation(2, 2, 2),
    "v3": Generation(2, 2, 2),
    "v4": Generation(2, 1, 3),
    "v5p": Generation(2, 1, 3),
    "v5litepod": Generation(1, 1, 2),
    "v6e": Generation(1, 1, 2),
}


@dataclass(frozen=True)
class Slice:
    """A slice as TensorFlow sees it; `cores` is the number of devices and of replicas."""

    accelerator: str
    cores: int
    hosts: int
    chips: int
    dimensions: int
    node: str = ""
    """The node's name, for programs that name it instead of 'local'."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Slice:
        """Read TPUCTL_SIM_TPU, TPUCTL_SIM_CORES and TPUCTL_SIM_NODE; raises ValueError."""
        whole = cls.named(environ["TPUCTL_SIM_TPU"])
        cores = environ.get("TPUCTL_SIM_CORES") or str(whole.cores)
        if not cores.isdigit() or not 1 <= int(cores) <= whole.cores:
            raise ValueError(
                f"TPUCTL_SIM_CORES={cores} is not a number of cores from 1 to {whole.cores}, "
                f"which is what {whole.accelerator} has."
            )
        return whole.reduced(int(cores), environ.get("TPUCTL_SIM_NODE", ""))

    @classmethod
    def named(cls, accelerator: str) -> Slice:
        """Return the whole slice of an accelerator type such as `v3-8`; raises ValueError."""
        match = re.fullmatch(r"(\w+)-(\d+)", accelerator)
        generation = GENERATIONS.get(match.group(1)) if match else None
        if match is None or generation is None or int(match.group(2)) < generation.number_per_chip:
            raise ValueError(
                f"TPUCTL_SIM_TPU={accelerator} is not an accelerator type; examples are v3-8 and v5litepod-4."
            )
        chips = int(match.group(2)) // generation.number_per_chip
        # One host takes eight v5e or v6e chips; a slice of several hosts has four chips on each.
        most_on_one_host = 8 if generation.number_per_chip == 1 else 4
        return cls(
            accelerator=accelerator,
            cores=chips * generation.devices_per_chip,
            hosts=1 if chips <= most_on_one_host else chips // 4,
            chips=chips,
            dimensions=generation.dimensions,
        )

    def reduced(self, cores: int, node: str) -> Slice:
        """Return the slice with fewer cores: on as many hosts and whole chips as these fill."""
        per_chip = self.cores // self.chips
        chips = cores // per_chip if cores % per_chip == 0 else cores
        hosts = self.hosts if cores % self.hosts == 0 else 1
        return Slice(self.accelerator, cores, hosts, chips, self.dimensions, node)

    @property
    def cores_per_host(self) -> int:
        """TensorFlow devices of one host."""
        return self.cores // self.hosts

    @property
    def mesh(self) -> tuple[int, int, int, int]:
        """The shape x, y, z, core: as near a square or a cube as the chips allow."""
        sides = [1] * self.dimensions
        for factor in _prime_factors(self.chips):
            sides.sort()
            sides[0] *= factor
        x, y, z = [*sorted(sides), 1][:3]
        return (x, y, z, self.cores // self.chips)

    @property
    def coordinates(self) -> list[list[list[int]]]:
        """The place in the mesh of every core, by host and by core on the host."""
        shape = self.mesh
        flat = [
            [chip % shape[0], chip // shape[0] % shape[1], chip // (shape[0] * shape[1]), core]
            for chip in range(prod(shape[:3]))
            for core in range(shape[3])
        ]
        per_host = self.cores_per_host
        return [flat[host * per_host : (host + 1) * per_host] for host in range(self.hosts)]


def _prime_factors(number: int) -> list[int]:
    """The prime factors of `number`, largest first."""
    factors = []
    factor = 2
    while number > 1:
        while number % factor == 0:
            factors.append(factor)
            number //= factor
        factor += 1
    return factors[::-1]
