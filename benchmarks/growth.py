"""How requests and CPU seconds of commands grow with the runs of a bucket and the pieces of a log."""

from __future__ import annotations

import math
import os
import sqlite3
import sys
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

from benchmarks.following import JOB, NOW, Workers
from benchmarks.measure import show, side_by_side
from benchmarks.own_simulator import own_simulator
from tpuctl.bucket_layout import RunPaths
from tpuctl.cloud.endpoints import Cloud, connect
from tpuctl.cloud.simulator.event_log import EventLog
from tpuctl.config import load
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission.plan import attempt_on
from tpuctl.host import gcs
from tpuctl.host.worker.records import FINISHED, WorkerStatus, encode, status_type
from tpuctl.host.worker.reporting import LogShipper
from tpuctl.parallel import fanout
from tpuctl.recovery import Machine
from tpuctl.runs import BY_WORKERS, SUCCEEDED, Run, Verdict

SIZES = (10, 100, 1000)
"""Runs that have ended on one node, and pieces of one log."""
LINES = 100
"""In a piece of a log."""
NODE = "n1"
LEAST_REQUESTS, LEAST_CPU = 1, 0.05
"""What counts as no growth: the second is noise."""


@dataclass(frozen=True)
class Growth:
    """What a command costs without history and at each size; k: cost on top is as the k-th power of size."""

    command: str
    requests: list[int]
    """To the simulator, those of its hosts included."""
    cpu: list[float]
    requests_k: float
    cpu_k: float


def main() -> None:
    """Measure and report."""
    sizes = [int(size) for size in sys.argv[1:]] or [*SIZES]
    with own_simulator() as (folder, _):
        growths = _measure(sizes, folder)
    head = "  ".join(f"{size:>6d}" for size in (0, *sizes))
    lines = [f"  {'requests, CPU seconds':<32} {head}    k  |  {head}    k"]
    for growth in growths:
        requests = "  ".join(f"{count:6d}" for count in growth.requests)
        seconds = "  ".join(f"{cpu:6.2f}" for cpu in growth.cpu)
        lines.append(
            f"  {growth.command:<32} {requests} {growth.requests_k:4.1f}  |  {seconds} {growth.cpu_k:4.1f}"
        )
    notes = [f"k: of what comes on top of size 0, between sizes {sizes[0]} and {sizes[-1]}"]
    notes.append("sizes: runs that ended a day ago on one node; for `logs`, pieces of 100 lines of one log")
    show("growth", {"sizes": [0, *sizes], "rows": [asdict(growth) for growth in growths]}, lines, notes)


def _measure(sizes: list[int], folder: Path) -> list[Growth]:
    job = folder / "job.py"
    job.write_text(JOB)
    events = EventLog(folder / "sim")
    _run("up", "v3-8", "--name", NODE, "--yes")
    cloud = connect(load({}))
    costs = dict[str, list[tuple[int, float]]]()
    for before, size in zip([0, 0, *sizes], [0, *sizes], strict=False):
        fanout(lambda number: _write_run(cloud, f"old-{number}"), range(before, size))
        workers = Workers(cloud.bucket, f"pieces-{size}", 1)
        for _ in range(size):
            workers.print(b"step 1: loss 0.5\n" * LINES)
        _join(cloud, RunPaths(f"pieces-{size}").attempt_folder(1))
        workers.beat(FINISHED, 0)
        _run("runs", "--limit", "1")  # the run of the log has ended
        _make_old(folder)
        for name, words in _commands(size, str(job)).items():
            events.new()
            cpu = _run(*words)
            requests = sum(event.kind == "request" for event in events.new())
            costs.setdefault(name, []).append((requests, cpu))
        _run("wait", f"new-{size}")
    cloud.close()
    return [_growth(name, measured, sizes) for name, measured in costs.items()]


def _join(cloud: Cloud, folder: str) -> None:
    """Join the pieces of a log, as its worker does."""
    os.environ[gcs.EMULATOR] = cloud.bucket._client.api_endpoint
    with closing(gcs.Bucket(cloud.bucket.name)) as bucket:
        bucket._token = SimpleNamespace(header=lambda: "Bearer token")  # type: ignore[assignment]
        LogShipper(bucket, folder, 0, "").join(is_over=True)
    del os.environ[gcs.EMULATOR]


def _commands(size: int, job: str) -> dict[str, list[str]]:
    return {
        "ls": ["ls"],
        "runs": ["runs"],
        "runs gc --keep 0 --dry-run": ["runs", "gc", "--keep", "0", "--dry-run"],
        "cost --since 1h": ["cost", "--since", "1h"],
        "cost --since 30d": ["cost", "--since", "30d"],
        "reap --without-run 1s --dry-run": ["reap", "--without-run", "1s", "--dry-run"],
        f"why {NODE}": ["why", NODE],
        "logs": ["logs", f"pieces-{size}"],
        "submit": ["submit", job, "--name", f"new-{size}", "--tpu", NODE],
    }


def _write_run(cloud: Cloud, name: str) -> None:
    """Write what a run of one worker leaves that has succeeded."""
    owner = load({}).require("owner")
    (node,) = cloud.provider.list_nodes("europe-west4-a").nodes
    run = StoredRun(cloud.bucket, name)
    machine = Machine("v3-8", (node.zone,), False, "base", owner)
    run.create(Run(name, NOW, "ada", "job.py", (), "0" * 64, "jax", "v3-8", (), {}, machine=machine))
    attempt = attempt_on(node, "jax", cloud.bucket.now())
    run.create_attempt(attempt)
    status = WorkerStatus(0, 1, node.id.uid, FINISHED, NOW, NOW, NOW, 1, exit_code=0)
    cloud.bucket.upload(run.paths.status(1, 0), [encode(status)], status_type(status))
    run.end(Verdict(name, SUCCEEDED, 1, NOW, "so", 0, BY_WORKERS, ended=NOW, tpu=attempt.tpu, started=NOW))


def _make_old(folder: Path) -> None:
    """Date all objects back by a day."""
    (path,) = (folder / "sim").rglob("metadata.db")
    with sqlite3.connect(path) as database:
        database.execute("update objects set updated = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-1 day')")


def _run(*words: str) -> float:
    """Run a command, and return its CPU seconds."""
    command = [sys.executable, "-m", "tpuctl", *words]
    ((_, cpu),) = side_by_side({"": command}, runs=1, environment=os.environ, warm_up=False)[""]
    return cpu


def _growth(name: str, measured: list[tuple[int, float]], sizes: list[int]) -> Growth:
    requests, cpu = [count for count, _ in measured], [seconds for _, seconds in measured]
    return Growth(
        name, requests, cpu, _exponent(requests, sizes, LEAST_REQUESTS), _exponent(cpu, sizes, LEAST_CPU)
    )


def _exponent(costs: list[int] | list[float], sizes: list[int], least: float) -> float:
    first, last = (max(least, cost - costs[0]) for cost in (costs[1], costs[-1]))
    return math.log(last / first) / math.log(sizes[-1] / sizes[0])


if __name__ == "__main__":
    main()
