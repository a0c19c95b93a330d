"""Chooses the runtime version of the Cloud TPU API that a framework needs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tpuctl.accelerators import Accelerator

TENSORFLOW_GENERATIONS = ("v2", "v3", "v4")
"""Generations for which Google builds images that contain TensorFlow."""
PREFIX = "tpu-vm-tf-"


def default_runtime(accelerator: Accelerator, framework: str, offered: Iterable[str]) -> str:
    """Return the newest TensorFlow image among `offered` for a TensorFlow job, else the plain image.

    Of a generation that the catalogue does not know, the image that is named like it; '' without one.
    """
    if (
        framework == "tensorflow"
        and accelerator.generation in TENSORFLOW_GENERATIONS
        and accelerator.is_known
    ):
        for runtime in tensorflow_runtimes(offered, accelerator.hosts):
            return runtime
    return accelerator.base_runtime or _named_like(accelerator.generation, offered)


def _named_like(generation: str, offered: Iterable[str]) -> str:
    """Return the last image with the number of a generation: `v2-alpha-tpu7-ubuntu2404` for tpu7x."""
    number = re.search(r"\d+", generation)
    own = re.compile(rf"tpuv?{number[0]}(?!\d)") if number else None
    return max((name for name in offered if own and own.search(name)), default="")


def tensorflow_runtimes(versions: Iterable[str], hosts: int) -> list[str]:
    """Return the TensorFlow images among `versions` for a slice of `hosts` hosts, newest first.

    Images of one host and of several differ (`...-pod`). Names: Cloud TPU documentation, runtime versions.
    """
    images = [name for name in versions if name.startswith(PREFIX) and ("-pod" in name) == (hosts > 1)]
    return sorted(images, key=_version_key, reverse=True)


def _version_key(name: str) -> tuple[tuple[int, ...], bool]:
    number = name.removeprefix(PREFIX).split("-")[0]
    return tuple(int(part) for part in number.split(".") if part.isdigit()), "pjrt" in name
