"""Chooses the runtime version of the Cloud TPU API that a framework needs."""

from __future__ import annotations

from collections.abc import Iterable

from tpuctl.accelerators import Accelerator

TENSORFLOW_GENERATIONS = ("v2", "v3", "v4")
"""Generations for which Google builds images that contain TensorFlow."""
PREFIX = "tpu-vm-tf-"


def default_runtime(accelerator: Accelerator, framework: str, offered: Iterable[str]) -> str:
    """Return the newest TensorFlow image among `offered` for a TensorFlow job, else the plain image."""
    if framework == "tensorflow" and accelerator.generation in TENSORFLOW_GENERATIONS:
        for runtime in tensorflow_runtimes(offered, accelerator.hosts):
            return runtime
    return accelerator.base_runtime


def tensorflow_runtimes(versions: Iterable[str], hosts: int) -> list[str]:
    """Return the TensorFlow images among `versions` for a slice of `hosts` hosts, newest first.

    Images of one host and of several differ (`...-pod`). Names: Cloud TPU documentation, runtime versions.
    """
    images = [name for name in versions if name.startswith(PREFIX) and ("-pod" in name) == (hosts > 1)]
    return sorted(images, key=_version_key, reverse=True)


def _version_key(name: str) -> tuple[tuple[int, ...], bool]:
    number = name.removeprefix(PREFIX).split("-")[0]
    return tuple(int(part) for part in number.split(".") if part.isdigit()), "pjrt" in name
