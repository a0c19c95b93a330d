"""Plans a submission by reads only: the script, its header, its code, its dataset and its node."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl import accelerators, clock, job_header
from tpuctl.datasets import DatasetRef, PinnedDataset
from tpuctl.errors import UsageError
from tpuctl.flows.datasets.lookup import pin
from tpuctl.flows.nodes.lookup import find_ready
from tpuctl.flows.runs.code import bundles, imports
from tpuctl.flows.runs.code.syntax import check_syntax
from tpuctl.flows.runs.code.work_tree import git_state
from tpuctl.job_header import Header, ToolTable
from tpuctl.nodes import Node
from tpuctl.runs import Attempt, Git, Run, Tpu, check_name, submitter

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.storage import Bucket

SECRET = re.compile(r"(?i)(key|token|secret|password|credential)")
"""Names of variables whose values are kept out of the bucket."""


@dataclass(frozen=True)
class SubmitRequest:
    """What the user asks `submit` for; None leaves it to the script's header, or to tpuctl."""

    script: Path
    arguments: tuple[str, ...] = ()
    include: tuple[Path, ...] = ()
    name: str | None = None
    tpu: str | None = None
    accelerator: str | None = None
    dataset: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SubmitPlan:
    """A run that is ready to be written and started."""

    run: Run
    attempt: Attempt
    node: Node
    code: bundles.Bundle
    environment: Mapping[str, str]
    """Variables that the script gets on top of the host's own; holds secrets, so never in the bucket."""
    notes: tuple[str, ...] = ()
    """Sentences for the user."""


def plan_submit(
    data_bucket: Bucket, provider: Provider, owner: str, request: SubmitRequest, at: datetime
) -> SubmitPlan:
    """Read the script and its header, find its dataset and its node; sends reads only.

    Raises UsageError for a script or name that is not valid, also for a syntax error, NotFoundError for a
    missing dataset or node, StateError when no node of `owner` is READY.
    """
    code = bundles.pack(request.script, request.include)
    header = job_header.parse(_read(request.script), str(request.script))
    modules = imports.imported_files(request.script)
    notes = check_syntax([request.script, *modules], header)
    request = _with_header(request, header.tpuctl)

    def warn(line: str) -> None:
        notes.append(f"Warning: {line}")

    accelerator = accelerators.accelerator(request.accelerator).type if request.accelerator else None
    if accelerator and request.accelerator != accelerator:
        notes.append(f"{request.accelerator} is {accelerator} in the Cloud TPU API.")
    name = check_name(request.name) if request.name else _default_name(request.script, at)
    dataset = pin(data_bucket, DatasetRef.parse(request.dataset), warn) if request.dataset else None
    node = find_ready(provider, request.tpu, accelerator, owner)
    state = git_state(request.script.parent, code)
    notes += [state.note] if state.note else []
    record = _run(name, request, code, header, node, dataset, state.git, at)
    variables = _environment(data_bucket.name, header.tpuctl.framework, node, dataset)
    attempt = _first_attempt(node, header.tpuctl.framework, at)
    return SubmitPlan(record, attempt, node, code, {**variables, **request.environment}, tuple(notes))


def parse_environment(pairs: Sequence[str]) -> dict[str, str]:
    """Return `KEY=VALUE` pairs as a mapping; raises UsageError for anything else."""
    variables = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"'{pair}' is not KEY=VALUE.", hint="Write --env LEARNING_RATE=0.1")
        variables[key] = value
    return variables


def _with_header(request: SubmitRequest, table: ToolTable) -> SubmitRequest:
    """Return a request that has the header's values where the user gave none."""
    return replace(
        request,
        accelerator=request.accelerator or table.accelerator,
        dataset=request.dataset or table.dataset,
        environment={**table.env, **request.environment},
    )


def _read(script: Path) -> str:
    try:
        return script.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{script} is not a text file.", hint="Give the path of a Python script.") from error


def _default_name(script: Path, at: datetime) -> str:
    stem = re.sub(r"[^a-z0-9]+", "-", script.stem.lower()).strip("-")[:40] or "run"
    return f"{stem}-{at.strftime('%Y%m%d-%H%M%S')}"


def _run(
    name: str, request: SubmitRequest, code: bundles.Bundle, header: Header, node: Node,
    dataset: PinnedDataset | None, git: Git | None, at: datetime,
) -> Run:  # fmt: skip
    return Run(
        run=name,
        created=clock.iso(at),
        submitter=submitter(),
        script=code.script,
        arguments=request.arguments,
        bundle_sha256=code.sha256,
        framework=header.tpuctl.framework,
        accelerator=node.accelerator,
        dependencies=header.dependencies,
        environment={
            key: "***" if SECRET.search(key) else value for key, value in request.environment.items()
        },
        dataset=dataset,
        git=git,
    )


def _first_attempt(node: Node, framework: str, at: datetime) -> Attempt:
    machine = Tpu.of(node)
    # A TensorFlow slice is driven from worker 0; JAX and PyTorch wait for the same program on every host.
    workers = (0,) if framework == "tensorflow" else tuple(range(machine.hosts))
    return Attempt(attempt=1, created=clock.iso(at), tpu=machine, workers=workers)


def _environment(
    data_bucket: str, framework: str, node: Node, dataset: PinnedDataset | None
) -> dict[str, str]:
    """Return the variables that tpuctl sets for every worker of the run."""
    variables = {"TPUCTL_ACCELERATOR": node.accelerator}
    if framework == "tensorflow" and len(node.addresses) > 1:
        # Worker 0 drives all hosts. Their own servers hold the chips, so the script must not load the library
        # that takes them: Cloud TPU documentation, running TensorFlow on TPU pod slices.
        variables.update(TPU_NAME=node.name, TPU_LOAD_LIBRARY="0")
    if dataset:
        variables["TPUCTL_DATA_DIR"] = dataset.uri(data_bucket).rstrip("/")
    return variables
