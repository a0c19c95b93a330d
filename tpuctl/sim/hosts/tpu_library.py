"""The distribution `libtpu` on simulated hosts: what `jax[tpu]` requires, and the emulated TPU stands for."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from tpuctl.atomic_files import READABLE, replace_file

NAME = "libtpu"


def install(folder: Path) -> Path:
    """Write the distribution's metadata, for the JAX of this machine, and return the folder for PYTHONPATH.

    An empty folder without JAX. `pip` and `importlib.metadata` then find the version that JAX asks for: else
    each host downloads a library of 160 MB for chips that it does not have.
    """
    version = _version()
    if version:
        place = folder / f"{NAME}-{version}.dist-info"
        place.mkdir(parents=True, exist_ok=True)
        content = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\nSummary: tpuctl's emulated TPU\n"
        replace_file(place / "METADATA", [content.encode()], mode=READABLE)
        replace_file(place / "INSTALLER", [b"tpuctl\n"], mode=READABLE)
    return folder


@cache
def _version() -> str:
    """Return the lowest version that the installed JAX takes for its extra `tpu`; empty without JAX."""
    try:
        required = [Requirement(text) for text in metadata.requires("jax") or ()]
    except metadata.PackageNotFoundError:
        return ""
    versions = [
        specifier.version.removesuffix(".*")
        for requirement in required
        if requirement.name == NAME and requirement.marker and requirement.marker.evaluate({"extra": "tpu"})
        for specifier in requirement.specifier
        if specifier.operator in ("==", ">=", "~=")
    ]
    return min(versions, key=Version, default="")
