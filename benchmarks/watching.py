"""An hour of `watch --all` over 20 runs on 20 nodes: requests to API and bucket, CPU and memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.following import NOW, Meter, _tpuctl
from benchmarks.measure import show
from benchmarks.own_simulator import own_simulator
from tpuctl.catalogue.prices import unknown
from tpuctl.cloud.endpoints import Cloud, connect
from tpuctl.config import load
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.recovery import watch
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.recovery.watch import Watcher
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission.plan import attempt_on
from tpuctl.flows.runs.submission.restart_policy import RestartRequest, machine_like
from tpuctl.host.worker.records import RUNNING, WorkerStatus, encode, status_type
from tpuctl.parallel import fanout
from tpuctl.recovery import Restarts
from tpuctl.runs import BY_WORKERS, SUCCEEDED, Run, Verdict

RUNS = 20
MINUTES = 10
HEARTBEAT = 10.0
"""Seconds between two statuses of a worker."""
PART = "--part"
"""Option of the process that watches."""


@dataclass(frozen=True)
class Hour:
    """What an hour of watching costs."""

    name: str
    api: int
    listings: int
    other_requests: int
    megabytes: float
    cpu: float
    peak_megabytes: float
    """Memory of the process at its largest."""


class _Enough(Exception):
    """The time to measure is over."""


def main() -> None:
    """Measure and report."""
    if PART in sys.argv:
        print(json.dumps(_watch(int(sys.argv[-1]))))
        return
    with own_simulator() as (folder, _):
        for number in range(RUNS):
            _tpuctl("up", "v3-8", "--name", f"n{number}", "--spot", "--yes")
        hours = [_measured(count, folder) for count in (1, RUNS)]
    lines = [
        f"  {hour.name:<10} {hour.api:6d} to the API {hour.listings:7d} listings {hour.other_requests:7d} "
        f"others {hour.megabytes:6.1f} MB {hour.cpu:6.1f} s CPU {hour.peak_megabytes:4.0f} MB memory"
        for hour in hours
    ]
    notes = [
        f"an hour: {MINUTES} minutes, times {60 // MINUTES}; workers write a status every {HEARTBEAT:.0f} s,"
        " nothing is preempted",
        "listings cost as much as twelve other requests: Cloud Storage's class A and B",
    ]
    show("watching", {"rows": [asdict(hour) for hour in hours]}, lines, notes)


def _measured(count: int, folder: Path) -> Hour:
    """Watch so many runs in a process of its own; the simulator's log tells the requests to the API."""
    events = folder / "sim" / "events.jsonl"
    before = _requests_to_the_api(events)
    command = [sys.executable, "-m", "benchmarks.watching", PART, str(count)]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    cost, scale = json.loads(result.stdout), 60 / MINUTES
    return Hour(
        f"{count} run{'s' if count > 1 else ''}",
        round((_requests_to_the_api(events) - before - cost["setup"]) * scale),
        round(cost["listings"] * scale),
        round(cost["others"] * scale),
        cost["megabytes"] * scale,
        cost["cpu"] * scale,
        cost["memory"],
    )


def _requests_to_the_api(events: Path) -> int:
    marks = ('"kind":"request"', '"service":"tpu"')
    return sum(all(mark in line for mark in marks) for line in events.read_text().splitlines())


def _watch(count: int) -> dict[str, float]:
    """Watch runs whose workers write in the pauses; returns what that cost."""
    writer, cloud = connect(load({})), connect(load({}))
    owner = load({}).require("owner")
    names = [f"r{count}-{number}" for number in range(count)]
    nodes = writer.provider.list_nodes("europe-west4-a").nodes
    for name, node in zip(names, nodes, strict=False):
        _record(writer, name, node, owner)
    meter, kinds = Meter(cloud.bucket), Counter[bool]()
    cloud.bucket._client._http.hooks["response"].append(
        lambda answer, **_: kinds.update([answer.request.path_url.partition("?")[0].endswith("/o")])
    )
    passed = spent = 0.0

    def sleep(seconds: float) -> None:
        """Let time pass, in which workers write."""
        nonlocal passed, spent
        began = time.process_time()
        passed += seconds
        watch_clock.now += seconds
        fanout(lambda name: _beat(writer, name), names)
        spent += time.process_time() - began
        if passed >= MINUTES * 60:
            raise _Enough

    watch_clock = _Clock()
    watch.time = watch_clock  # type: ignore[assignment]  # only `monotonic` is used
    tools = _tools(cloud)
    fanout(lambda name: _beat(writer, name), names)

    def work() -> None:
        try:
            for _ in Watcher(tools, sleep).all_events(owner):
                pass
        except _Enough:
            pass

    cost = meter.measure("", work)
    for name in names:
        StoredRun(writer.bucket, name).end(Verdict(name, SUCCEEDED, 1, NOW, "so", 0, BY_WORKERS))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "setup": 1,
        "listings": kinds[True],
        "others": kinds[False],
        "megabytes": cost.megabytes,
        "cpu": cost.cpu - spent,
        "memory": peak,
    }


class _Clock:
    """A clock that the pauses move."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def _tools(cloud: Cloud) -> Tools:
    witnesses = Witnesses(cloud.provider, lambda: cloud.ssh)
    return Tools(
        cloud.bucket, cloud.data_bucket.name, cloud.provider, cloud.ssh, witnesses,
        lambda creation: unknown("nobody asked"), f"benchmark ({os.getpid()})", lambda line: None,
    )  # fmt: skip


def _record(cloud: Cloud, name: str, node: object, owner: str) -> None:
    """Write a run that goes on, with restarts."""
    stored = StoredRun(cloud.bucket, name)
    machine = machine_like(node, RestartRequest(), "jax", owner)
    record = Run(
        name, NOW, "ada", "job.py", (), "0" * 64, "jax", "v3-8", (), {},
        restarts=Restarts(after_loss=None), machine=machine,
    )  # fmt: skip
    stored.create(record)
    stored.create_attempt(attempt_on(node, "jax", cloud.bucket.now()))


def _beat(cloud: Cloud, name: str) -> None:
    """Write the status of a run's worker."""
    status = WorkerStatus(0, 1, "7", RUNNING, NOW)
    path = StoredRun(cloud.bucket, name).paths.status(1, 0)
    cloud.bucket.upload(path, [encode(status)], status_type(status))


if __name__ == "__main__":
    main()
