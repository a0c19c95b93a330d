"""Shipping a script to the right hosts and starting it there, detached."""

from __future__ import annotations

import getpass
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl import accelerators, clock, job_header, runs
from tpuctl.bucket_layout import RunPaths, bundle, dataset, gs
from tpuctl.errors import ConflictError, TpuctlError, UsageError
from tpuctl.flows.datasets import lookup as datasets
from tpuctl.flows.nodes import lookup as nodes
from tpuctl.flows.runs import bundles, launch
from tpuctl.flows.runs import outcome as verdicts
from tpuctl.nodes import HttpRequest, Node
from tpuctl.parallel import fanout

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.cloud.storage import Bucket
    from tpuctl.cloud.tpu import TpuApi

SPEC_SCHEMA = 1
SECRET = re.compile(r"(?i)(key|token|secret|password|credential)")


@dataclass(frozen=True)
class Wanted:
    """What `submit` was asked for; None leaves it to the script's header."""

    script: Path
    arguments: tuple[str, ...] = ()
    include: tuple[Path, ...] = ()
    name: str | None = None
    tpu: str | None = None
    accelerator: str | None = None
    dataset: str | None = None
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True)
class SubmitPlan:
    """A run that is ready to be written and started."""

    run: runs.Run
    attempt: runs.Attempt
    node: Node
    code: bundles.Bundle
    environment: Mapping[str, str]
    """What the script finds beside the host's own environment; holds secrets, so never in the bucket."""


def plan(data_bucket: Bucket, tpu: TpuApi, ssh: Ssh, wanted: Wanted, at: datetime) -> SubmitPlan:
    """Read the script and its header, find its dataset and its node; sends reads only.

    Raises UsageError for a script that cannot be, NotFoundError for a dataset or node that is not there,
    StateError when no node is READY.
    """
    code = bundles.make(wanted.script, wanted.include)
    header = job_header.parse(_text(wanted.script), str(wanted.script))
    accelerator = wanted.accelerator or header.tpuctl.accelerator
    if accelerator:
        accelerators.accelerator(accelerator)
    name = runs.check_name(wanted.name) if wanted.name else _run_name(wanted.script, at)
    data_name = wanted.dataset or header.tpuctl.dataset
    data = datasets.resolve(data_bucket, data_name) if data_name else None
    node = nodes.find_ready(tpu, wanted.tpu, accelerator, ssh.user)
    framework = header.tpuctl.framework
    added = dict(wanted.environment or {})
    record = runs.Run(
        run=name,
        created=clock.iso(at),
        submitter=f"{getpass.getuser()}@{platform.node()}",
        script=code.script,
        arguments=wanted.arguments,
        bundle_sha256=code.sha256,
        framework=framework,
        accelerator=node.accelerator,
        dependencies=header.dependencies,
        environment={key: "***" if SECRET.search(key) else value for key, value in added.items()},
        dataset=data,
        git=bundles.git_state(wanted.script.resolve().parent),
    )
    places = {"TPUCTL_ACCELERATOR": node.accelerator}
    if data:
        places["TPUCTL_DATA_DIR"] = gs(data_bucket.name, dataset(data.name, data.version)).rstrip("/")
    variables = {**_resolver(framework, node), **places, **added}
    return SubmitPlan(record, _attempt(node, framework, at), node, code, variables)


def requests(bucket: Bucket, planned: SubmitPlan) -> list[HttpRequest]:
    """Return what `start` would send, for --dry-run."""
    paths = RunPaths(planned.run.run)
    names = (bundle(planned.code.sha256), paths.record, paths.attempt(planned.attempt.attempt))
    puts = [HttpRequest("PUT", gs(bucket.name, name)) for name in names]
    return puts + [
        HttpRequest("SSH", f"{planned.node.name} worker {worker}", f"start {planned.run.script}")
        for worker in planned.attempt.workers
    ]


def start(bucket: Bucket, tpu: TpuApi, ssh: Ssh, planned: SubmitPlan) -> None:
    """Write the run into the bucket and start it on every worker that runs the script.

    Raises ConflictError when the name is taken, HostError when a worker could not start it: the run is
    then ended with that verdict, and what had started is stopped.
    """
    paths = RunPaths(planned.run.run)
    _create_bundle(bucket, planned.code)
    try:
        bucket.create(paths.record, runs.encode(planned.run))
    except ConflictError as error:
        raise ConflictError(
            f"There is a run '{planned.run.run}' already: its record exists.", hint="Choose another --name."
        ) from error
    bucket.create(paths.attempt(planned.attempt.attempt), runs.encode(planned.attempt))
    program = launch.worker_program()
    keys = tpu.host_keys(planned.node)

    def one(worker: int) -> int:
        spec = _spec(bucket.name, planned, worker)
        return launch.launch(ssh, planned.node, keys[worker], program, spec)

    results = fanout(one, planned.attempt.workers)
    failed = [result for result in results if result.error]
    if failed and failed[0].error:
        for result in results:
            if result.value:
                launch.stop(ssh, planned.node, result.item, keys[result.item], result.value)
        _give_up(bucket, planned, failed[0].error)
        raise failed[0].error


def _text(script: Path) -> str:
    try:
        return script.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{script} is not a text file.", hint="Give the path of a Python script.") from error


def _run_name(script: Path, at: datetime) -> str:
    stem = re.sub(r"[^a-z0-9]+", "-", script.stem.lower()).strip("-")[:40] or "run"
    return f"{stem}-{at.strftime('%Y%m%d-%H%M%S')}"


def _attempt(node: Node, framework: str, at: datetime) -> runs.Attempt:
    hosts = len(node.addresses)
    machine = runs.Tpu(
        name=node.name,
        uid=node.uid,
        project=node.project,
        zone=node.zone,
        accelerator=node.accelerator,
        runtime=node.runtime,
        hosts=hosts,
        spot=node.spot,
    )
    # A TensorFlow slice is driven from worker 0; JAX and PyTorch wait for the same program on every host.
    workers = (0,) if framework == "tensorflow" else tuple(range(hosts))
    return runs.Attempt(attempt=1, created=clock.iso(at), tpu=machine, workers=workers)


def _resolver(framework: str, node: Node) -> dict[str, str]:
    """Return what leads TensorFlow on worker 0 to all hosts of a slice; one host needs nothing from here.

    The workers' own servers have the chips, so the script must not load the library that takes them: Cloud
    TPU documentation, running TensorFlow on TPU pod slices.
    """
    if framework != "tensorflow" or len(node.addresses) == 1:
        return {}
    return {"TPU_NAME": node.name, "TPU_LOAD_LIBRARY": "0"}


def _create_bundle(bucket: Bucket, code: bundles.Bundle) -> None:
    """Content-addressed: what is there under the name is the same code."""
    name = bundle(code.sha256)
    if not any(one.name == name for one in bucket.objects(name, most=1)):
        try:
            bucket.create(name, code.data, "application/gzip")
        except ConflictError:
            pass


def _spec(bucket: str, planned: SubmitPlan, worker: int) -> launch.Spec:
    run, attempt = planned.run, planned.attempt
    return {
        "schema": SPEC_SCHEMA,
        "bucket": bucket,
        "run": run.run,
        "attempt": attempt.attempt,
        "worker": worker,
        "workers": attempt.tpu.hosts,
        "tpu_uid": attempt.tpu.uid,
        "framework": run.framework,
        "script": run.script,
        "arguments": list(run.arguments),
        "dependencies": list(run.dependencies),
        "bundle": bundle(run.bundle_sha256),
        "bundle_sha256": run.bundle_sha256,
        "folder": RunPaths(run.run).worker(attempt.attempt, worker),
        "environment": dict(planned.environment),
    }


def _give_up(bucket: Bucket, planned: SubmitPlan, error: TpuctlError) -> None:
    evidence = f"it could not be started: {error.message}"
    at = clock.iso(clock.now())
    verdicts.write(bucket, runs.Verdict(planned.run.run, runs.FAILED, planned.attempt.attempt, at, evidence))


def parse_environment(pairs: Sequence[str]) -> dict[str, str]:
    """Return `KEY=VALUE` pairs as a mapping; raises UsageError for anything else."""
    result = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"'{pair}' is not KEY=VALUE.", hint="Write --env LEARNING_RATE=0.1")
        result[key] = value
    return result
