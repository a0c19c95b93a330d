"""Decides what hosts install for a run on their image, and refuses an image that the run cannot use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tpuctl import accelerators, images
from tpuctl.errors import StateError, UsageError
from tpuctl.host.worker import requirements
from tpuctl.host.worker.records import OWN
from tpuctl.images import JAX, TENSORFLOW, Distributions, Image, Place
from tpuctl.job_header import Header
from tpuctl.nodes import Node
from tpuctl.runs import Run, Tpu

_OF_FRAMEWORK = {
    JAX: {"jax"},
    TENSORFLOW: {"tensorflow", "tensorflow-tpu", "tf-nightly"},
    images.PYTORCH: {"torch", "torch-xla", "torch-tpu"},
}


def chosen(run: Run, tpu: Tpu, dependencies: Sequence[str]) -> Distributions:
    """Return what the hosts of a node install for a run's `dependencies`; raises UsageError."""
    asked = (run.python, run.requires_python)
    return _chosen(tpu, dependencies, run.framework, asked, run.packages, run.pins)


def check(node: Node, header: Header, locked: Iterable[str] = (), *, imports: bool = False) -> list[str]:
    """Return notes on what the hosts of a node install for a script; sends nothing.

    `locked` are the names in its lock file, if it has one; `imports` is whether it surely imports its
    framework, and no set-up command installs that. Raises StateError for an image on which the script
    cannot use the chips, UsageError for requirements that do not work there.
    """
    tpu, table = Tpu.of(node), header.tpuctl
    image, kind = images.image(tpu.runtime), accelerators.accelerator(tpu.accelerator)
    framework = table.framework
    if not framework:
        return []
    if framework == TENSORFLOW and kind.generation == accelerators.TPU7X:
        raise images.no_tensorflow(kind)
    if image and (reason := images.obstacle(image, framework, kind, tpu.hosts)):
        raise _unfit(tpu, framework, reason, is_planned=not node.created)
    asked = (table.python, header.requires_python)
    found = _chosen(tpu, header.dependencies, framework, asked, table.packages)
    notes = [f"Hosts install {found.reason}."] if found.reason else []
    names, lacks = set(locked), image is not None and image.framework != framework
    if lacks and framework == JAX and "jax" in names and names.isdisjoint(("libtpu", "libtpu-nightly")):
        raise UsageError(
            f"{table.requirements} has jax without libtpu: on {tpu.name} it would run on the hosts' CPUs.",
            hint="Lock jax[tpu]: uv pip compile --generate-hashes",
        )
    named = {requirements.parse(text).name for text in found.requirements} | names
    if lacks and imports and named.isdisjoint(_OF_FRAMEWORK[framework]):
        notes.append(
            f"Warning: {tpu.runtime} has no {images.NAMES[framework]}, and the header requires none."
            f' Write dependencies = ["{min(_OF_FRAMEWORK[framework], key=len)}"] into it.'
        )
    return notes


def present(
    node: Node, header: Header, locked: Iterable[str]
) -> tuple[Collection[str], Collection[str]] | None:
    """Return what hosts install for a script, and what their image has; None for an unknown image.

    `locked` are names in its lock file, or in a lock of its project.
    """
    tpu, table = Tpu.of(node), header.tpuctl
    image = images.image(tpu.runtime)
    if image is None:
        return None
    asked = (table.python, header.requires_python)
    wanted = _chosen(tpu, header.dependencies, table.framework, asked, table.packages).requirements
    seen = image.packages if _is_seen(image, asked, table.packages) else ()
    return {requirements.parse(text).name for text in wanted}.union(locked), seen


def _is_seen(image: Image, asked: tuple[str, str], packages: str) -> bool:
    """Return whether a script sees the packages of an image: not with its own, nor with another Python."""
    versions = (image.python, f"{image.python}.99")
    return packages != OWN and any(requirements.accepts_python(*asked, version) for version in versions)


def _chosen(
    tpu: Tpu,
    dependencies: Sequence[str],
    framework: str,
    asked: tuple[str, str],
    packages: str,
    pins: Mapping[str, str] = MappingProxyType({}),
) -> Distributions:
    image, (python, requires_python) = images.image(tpu.runtime), asked
    if image and not image.several_hosts and not _is_seen(image, asked, packages):
        image = replace(image, framework="")
    wanted = f"=={python}.*" if python else requires_python
    place = Place(image, accelerators.accelerator(tpu.accelerator), wanted)
    return images.distributions(dependencies, framework, place, pins)


def _unfit(tpu: Tpu, framework: str, reason: str, *, is_planned: bool) -> StateError:
    other = (
        f"Make a TPU for it: tpuctl up {tpu.accelerator} --framework {framework} --zone {tpu.zone} "
        f"--name {tpu.name[:50]}-{framework}"
    )
    return StateError(
        f"{images.NAMES[framework]} cannot use {tpu.name}, which has the image {tpu.runtime}: {reason}.",
        hint="Leave out --runtime: what the framework needs is chosen then." if is_planned else other,
        node=tpu.name,
        runtime=tpu.runtime,
    )
