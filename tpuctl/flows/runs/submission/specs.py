"""Builds the spec of each worker: of a run that is submitted, and of one that is started again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from tpuctl import accelerators
from tpuctl.bucket_layout import NodePaths, RunPaths, bundle
from tpuctl.flows.runs.submission import packages
from tpuctl.host.worker.records import Resumption, Spec
from tpuctl.runs import NOT_STORED, Attempt, Run


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


AS_RECORDED = ({field.name for field in fields(Spec)} & set(Run.__struct_fields__)) - {
    "arguments",
    "dependencies",
    "environment",
    "pins",
    "schema",
    "setup",
    "sources",
    "token",
}
"""Fields of a spec that are those of the record; it may lack what is secret in the others."""


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
    environment = {**of_slice, **launch.environment}
    installed = packages.chosen(run, attempt.tpu, launch.dependencies)

    kind = accelerators.catalogue().get(attempt.tpu.accelerator)
    return Spec(
        **{name: getattr(run, name) for name in AS_RECORDED},
        bucket=bucket,
        attempt=attempt.attempt,
        token=attempt.token,
        worker=worker,
        workers=attempt.tpu.hosts,
        tpu_uid=node.uid,
        arguments=launch.arguments,
        dependencies=installed.requirements,
        choice=installed.reason,
        bundle=bundle(run.bundle_sha256),
        bundle_size=bundle_size,
        key=key,
        folder=RunPaths(run.run).worker(attempt.attempt, worker),
        environment=environment,
        stored=tuple(
            name for name in environment if run.environment.get(name) != NOT_STORED or name in run.of_header
        ),
        sources=()
        if run.wheelhouse
        else (*run.sources, *(f"--find-links {page}" for page in installed.find_links)),
        participants=attempt.workers,
        line=line if launch.waits else "",
        line_timeout=launch.line_timeout,
        setup=launch.setup,
        chips=kind.chips_per_host if kind else 0,
        pins=tuple(f"{name}=={version}" for name, version in run.pins.items()),
        resumption=Resumption(launch.restarts, line, others) if launch.restarts else None,
    )
