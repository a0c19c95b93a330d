"""Shipping a script to the right hosts and starting it there, detached."""

from __future__ import annotations

import getpass
import io
import json
import platform
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl import __version__, accelerators, clock, jobheader, runs
from tpuctl.errors import ConflictError, HostError, TpuctlError, UsageError
from tpuctl.fanout import fanout
from tpuctl.flows import bundles, datasets, nodes, verdicts
from tpuctl.nodes import HttpRequest, Node
from tpuctl.uris import RunPaths, bundle, dataset, gs

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.cloud.storage import Bucket
    from tpuctl.cloud.tpu import TpuApi

SPEC_SCHEMA = 1
LAUNCH_TIMEOUT = 180.0
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


def plan(bucket: Bucket, tpu: TpuApi, ssh: Ssh, wanted: Wanted, at: datetime) -> SubmitPlan:
    """Read the script and its header, find its dataset and its node; sends reads only.

    Raises UsageError for a script that cannot be, NotFoundError for a dataset or node that is not there,
    StateError when no node is READY.
    """
    code = bundles.make(wanted.script, wanted.include)
    header = jobheader.parse(_text(wanted.script), str(wanted.script))
    accelerator = wanted.accelerator or header.tpuctl.accelerator
    if accelerator:
        accelerators.accelerator(accelerator)
    name = runs.check_name(wanted.name) if wanted.name else _run_name(wanted.script, at)
    data_name = wanted.dataset or header.tpuctl.dataset
    data = datasets.resolve(bucket, data_name) if data_name else None
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
    places = (
        {"TPUCTL_DATA_DIR": gs(bucket.name, dataset(data.name, data.version)).rstrip("/")} if data else {}
    )
    return SubmitPlan(record, _attempt(node, framework, at), node, code, {**places, **added})


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
    bucket.create(paths.record, runs.encode(planned.run))
    bucket.create(paths.attempt(planned.attempt.attempt), runs.encode(planned.attempt))
    program = worker_program()
    keys = tpu.host_keys(planned.node)

    def launch(worker: int) -> int:
        return _launch(ssh, bucket.name, planned, worker, keys[worker], program)

    results = fanout(launch, planned.attempt.workers)
    failed = [one for one in results if one.error]
    if failed and failed[0].error:
        for one in results:
            if one.value:
                _stop(ssh, planned.node, one.item, keys[one.item], one.value)
        _give_up(bucket, planned, failed[0].error)
        raise failed[0].error


def worker_program() -> bytes:
    """Return the program for the hosts as a zip that `python3` runs; the same source gives the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _write(archive, "__main__.py", ENTRY)
        _write(archive, "tpuctl/__init__.py", f'__version__ = "{__version__}"\n'.encode())
        for name, source in _sources():
            _write(archive, f"tpuctl/worker/{name}", source)
    return buffer.getvalue()


ENTRY = b"import sys\nfrom tpuctl.worker.main import main\nsys.exit(main(sys.argv[1:]))\n"


def _sources() -> list[tuple[str, bytes]]:
    folder = resources.files("tpuctl").joinpath("worker")
    return sorted((one.name, one.read_bytes()) for one in folder.iterdir() if one.name.endswith(".py"))


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)


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


def _create_bundle(bucket: Bucket, code: bundles.Bundle) -> None:
    """Content-addressed: what is there under the name is the same code."""
    name = bundle(code.sha256)
    if not any(one.name == name for one in bucket.objects(name, most=1)):
        try:
            bucket.create(name, code.data, "application/gzip")
        except ConflictError:
            pass


def _launch(ssh: Ssh, bucket: str, planned: SubmitPlan, worker: int, host_key: str, program: bytes) -> int:
    """Put program and spec on one host and start it; return the pid."""
    run, attempt = planned.run.run, planned.attempt.attempt
    folder = f".tpuctl/runs/{run}/{attempt}"
    with ssh.connect(planned.node, worker, host_key) as session:
        made = session.run(["mkdir", "-p", "-m", "700", folder])
        if made.code:
            raise HostError(
                f"Worker {worker} cannot make {folder}: {made.err.strip()}.", hint="Is its disk full?"
            )
        session.put(program, f"{folder}/worker.zip")
        session.put(_spec(bucket, planned, worker), f"{folder}/spec.json")
        done = session.run(
            ["python3", f"{folder}/worker.zip", "launch", f"{folder}/spec.json"], timeout=LAUNCH_TIMEOUT
        )
    return _pid(done.out, done.err, worker)


def _pid(out: str, err: str, worker: int) -> int:
    try:
        answer = json.loads(out.strip().splitlines()[-1])
        return int(answer["pid"])
    except (IndexError, ValueError):
        said = err.strip().splitlines() or ["nothing"]
        text = said[-1]
    except KeyError:
        text = answer["error"]
    raise HostError(f"Worker {worker} could not start the script: {text}.", hint="Check the host's python3.")


def _spec(bucket: str, planned: SubmitPlan, worker: int) -> bytes:
    run, attempt = planned.run, planned.attempt
    content = {
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
    return json.dumps(content).encode()


def _stop(ssh: Ssh, node: Node, worker: int, host_key: str, pid: int) -> None:
    try:
        with ssh.connect(node, worker, host_key) as session:
            session.run(["kill", "-TERM", str(pid)])
    except HostError:
        pass  # the verdict stands; a worker that cannot be reached cannot be told


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
