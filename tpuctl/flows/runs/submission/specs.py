"""Builds the spec of each worker: of a run that is submitted, and of one that is started again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpuctl import accelerators
from tpuctl.bucket_layout import NodePaths, RunPaths, bundle
from tpuctl.flows.runs.submission import packages
from tpuctl.host.worker.records import Resumption, Spec
from tpuctl.runs import Attempt, Run


@dataclass(frozen=True)
class Launch:
    """What a script is started with besides its record; may hold secrets, so never in the bucket."""

    arguments: tuple[str, ...]
    dependencies: tuple[str, ...]
    environment: Mapping[str, str]
    """Variables that the script gets on top of the host's own."""
    setup: str = ""
    waits: bool = False
    """Whether it waits in the line of its node."""
    line_timeout: float = 0.0
    """Seconds that it waits there at most; 0 for no limit."""
    restarts: int = 0
    """So often its hosts resume it by themselves after a reboot; -1 without end."""


def specs(bucket: str, run: Run, attempt: Attempt, launch: Launch, bundle_size: int, key: str) -> list[Spec]:
    """Return the spec of each worker that runs the script, all with one secret `key`."""
    return [_spec(bucket, run, attempt, launch, bundle_size, worker, key) for worker in attempt.workers]


def _spec(
    bucket: str, run: Run, attempt: Attempt, launch: Launch, bundle_size: int, worker: int, key: str
) -> Spec:
    node = attempt.tpu.id.host(worker)[0]
    parts = attempt.tpu.id.parts
    line, number = NodePaths.of(node).runs, parts.index(node)
    others = tuple(NodePaths.of(part).runs for part in parts if part != node)
    of_slice = {"TPUCTL_SLICE": str(number), "TPUCTL_SLICES": str(len(parts))}
    if "MEGASCALE_NUM_SLICES" in launch.environment:
        of_slice["MEGASCALE_SLICE_ID"] = str(number)
    installed = packages.chosen(run, attempt.tpu, launch.dependencies)

    kind = accelerators.catalogue().get(attempt.tpu.accelerator)
    return Spec(
        bucket=bucket,
        run=run.run,
        attempt=attempt.attempt,
        token=attempt.token,
        worker=worker,
        workers=attempt.tpu.hosts,
        tpu_uid=node.uid,
        framework=run.framework,
        script=run.script,
        kind=run.kind,
        directory=run.directory,
        arguments=launch.arguments,
        dependencies=installed.requirements,
        choice=installed.reason,
        bundle=bundle(run.bundle_sha256),
        bundle_sha256=run.bundle_sha256,
        bundle_size=bundle_size,
        unpacked_size=run.unpacked_size,
        key=key,
        folder=RunPaths(run.run).worker(attempt.attempt, worker),
        environment={**of_slice, **launch.environment},
        requires_python=run.requires_python,
        requirements=run.requirements,
        packages=run.packages,
        constraints=run.constraints,
        sources=()
        if run.wheelhouse
        else (*run.sources, *(f"--find-links {page}" for page in installed.find_links)),
        python=run.python,
        python_archives=run.python_archives,
        participants=attempt.workers,
        line=line if launch.waits else "",
        line_timeout=launch.line_timeout,
        wheelhouse=run.wheelhouse,
        setup=launch.setup,
        setup_timeout=run.setup_timeout,
        chips=kind.chips_per_host if kind else 0,
        pins=tuple(f"{name}=={version}" for name, version in run.pins.items()),
        resumption=Resumption(launch.restarts, line, others) if launch.restarts else None,
    )
