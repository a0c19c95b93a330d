"""A run on one or four hosts that stands still in a phase of its life, and what may befall it there."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.bucket_layout import ORDERED_LOG_CHUNK
from tpuctl.cloud.endpoints import Cloud
from tpuctl.flows.runs.evidence import decision
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.polling import Backoff, poll
from tpuctl.runs import Verdict
from tpuctl.worker.job import processes
from tpuctl.worker.job.leftovers import variable
from tpuctl.worker.records import StopRequest, encode
from tpuctl.worker.reporting.status import read_last

INSTALLING, BARRIER, RUNNING, SAVING, ENDING = (
    "installing", "barrier", "running", "saving", "ending",
)  # fmt: skip
HELD_BY = {ENDING: ("storage.objects.create", "*/log/*")}
"""Phase -> method and objects of the bucket that do not answer meanwhile."""
HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
SCRIPT = (
    HEADER
    + """
import os, pathlib, signal, subprocess, sys, time
phase = sys.argv[1]
here = pathlib.Path("..")
def wait():
    while not (here / "go").exists():
        time.sleep(0.02)
def save(*_):
    print("saving", flush=True)
    (here / "phase").touch()
    wait()
    sys.exit(0)
signal.signal(signal.SIGTERM, save if phase == "saving" else signal.SIG_DFL)
subprocess.Popen(["setsid", "sleep", "600"])
for step in range(200):
    print("step", step, flush=True)
(here / "running").touch()
while phase != "ending" and not (here / "go").exists():
    (here / "work").write_text("work")
    time.sleep(0.02)
(here / "phase").touch()
"""
)
LINES = b"".join(b"step %d\n" % step for step in range(200))
SETUP = {
    INSTALLING: "touch ../phase; while [ ! -e ../go ]; do sleep 0.05; done",
    BARRIER: "[ $TPUCTL_WORKER != 3 ] || while [ ! -e ../go ]; do sleep 0.05; done",
}
"""Phase -> the set-up command that holds the run there."""
LIMIT = 90.0
"""Seconds within which a run has to end, on a busy machine."""


@dataclass
class Site:
    """The run, its hosts, and who looks at it."""

    tpuctl: Callable[..., CommandResult]
    cloud: Cloud
    simulator: RunningSimulator
    hosts: int

    def start(self, phase: str) -> None:
        """Submit a run and return once it stands still in the phase."""
        type_ = "v3-8" if self.hosts == 1 else "v3-32"
        up = self.tpuctl("up", type_, "--name", "tpu", "--framework", "jax", "--spot", "--yes")
        assert up.code == 0, up.err
        Path("job.py").write_text(SCRIPT)
        if phase in HELD_BY:
            method, objects = HELD_BY[phase]
            self.simulator.faults.add("gcs-stall", method=method, object=objects)
        options = ["--setup", SETUP[phase]] if phase in SETUP else []
        submitted = self.tpuctl("submit", *options, "job.py", "--name", "r1", "--", phase)
        assert submitted.code == 0, submitted.err
        self.run = StoredRun(self.cloud.bucket, "r1")
        self.until(lambda: self.is_in(phase), phase)
        if phase == SAVING:
            stop = StopRequest("r1", "ada@example.com", "2026-01-01T12:00:00Z", 600)
            self.cloud.bucket.create(self.run.paths.stop, encode(stop))
            self.until(lambda: all((folder / "phase").exists() for folder in self.folders), phase)

    def is_in(self, phase: str) -> bool:
        """Whether it stands still in the phase; for SAVING, whether it can be stopped."""
        folders = self.folders
        states = [status.state if status else "" for status in self.run.last_attempt().statuses()]
        if phase == BARRIER:
            return states[:-1] == ["ready"] * (self.hosts - 1)
        if phase in (RUNNING, SAVING):
            return states == ["running"] * self.hosts and all((each / "running").exists() for each in folders)
        if phase == ENDING:
            lasts = [read_last(str(folder)) or {} for folder in folders]
            return [last.get("exit_code") for last in lasts] == [0] * self.hosts
        return all((folder / "phase").exists() for folder in folders)

    def release(self) -> None:
        """Have the bucket answer whatever is asked of it."""
        self.simulator.faults.clear()

    def go_on(self) -> None:
        """Let whatever stands still go on."""
        self.release()
        for folder in self.folders:
            (folder / "go").touch()

    @property
    def folders(self) -> list[Path]:
        """The attempt's folder on each host, in the order of workers."""
        homes = Path(self.simulator.folder, "hosts").glob("*/w*/home")
        return [home / ".tpuctl/runs/r1/1" for home in sorted(homes)]

    @property
    def last(self) -> Path:
        """The folder on the last host."""
        return self.folders[-1]

    def kill_supervisor(self) -> None:
        """Kill that of the last host."""
        os.kill(int((self.last / "started").read_text()), signal.SIGKILL)

    def kill_script(self) -> None:
        """Kill that of the last host."""
        status = self.run.last_attempt().statuses()[-1]
        assert status
        assert status.pid
        os.kill(status.pid, signal.SIGKILL)

    def storm(self) -> None:
        """Answer 503 to whatever is asked of the bucket until ten requests have failed."""
        storm = self.simulator.faults.add("gcs-error", status=503, count=10)
        self.until(lambda: not self.simulator.faults.find(storm.id), "the storm")
        self.go_on()

    def fill_disk(self) -> None:
        """Fill the disks."""
        self.simulator.faults.add("disk-full", node="tpu")

    def add(self, kind: str, **options: object) -> None:
        """Let something befall the node."""
        self.simulator.faults.add(kind, node="tpu", **options)

    def until(self, condition: Callable[[], object], awaiting: str) -> None:
        """Wait for an event."""
        poll(
            lambda: True if condition() else None,
            awaiting=awaiting, timeout=LIMIT, backoff=Backoff(0.05, 0.3),
        )  # fmt: skip

    def verdict(self, monkeypatch: pytest.MonkeyPatch) -> tuple[Verdict, float]:
        """Return how the run ended, and after how many seconds; every silence is asked about at once."""
        for name in ("CHECK_NODE_AFTER", "ASK_HOST_AFTER"):
            monkeypatch.setattr(decision, name, 5.0)
        begin = time.monotonic()
        witnesses = Witnesses(self.cloud.provider, lambda: self.cloud.ssh)
        verdict = poll(
            lambda: settle(self.run, witnesses).verdict,
            awaiting="a verdict", timeout=LIMIT, backoff=Backoff(0.1, 0.5), hint=self.supervisor_logs(),
        )  # fmt: skip
        return verdict, time.monotonic() - begin

    def have_all_finished(self) -> bool:
        """Whether each worker has said its last word."""
        return all(status and status.is_finished for status in self.run.last_attempt().statuses())

    def supervisor_logs(self) -> str:
        """Return what the supervisors say."""
        paths = [folder / "supervisor.log" for folder in self.folders]
        return "\n".join(path.read_text() for path in paths if path.exists())

    def log(self, worker: int) -> bytes:
        """Return a worker's log as it is in the bucket."""
        folder = self.run.paths.ordered_logs(1)
        names = [item.name for item in self.cloud.bucket.objects(folder)]
        matches = [(name, ORDERED_LOG_CHUNK.fullmatch(name.removeprefix(folder))) for name in names]
        own = sorted((int(match[2]), name) for name, match in matches if match and int(match[1]) == worker)
        return b"".join(self.cloud.bucket.read(name) for _, name in own)

    def is_clean(self) -> bool:
        """Whether nothing of the run is left on any host."""
        table = processes.running()
        return not processes.with_variable(table, [variable(str(folder)) for folder in self.folders])
