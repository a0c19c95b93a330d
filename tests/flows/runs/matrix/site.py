"""A run on one or four hosts that stands still in a phase of its life, and what may befall it there."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from google.api_core.exceptions import Conflict
from google.cloud import storage

from tests.flows.runs.matrix import client, phases, programs
from tests.flows.runs.matrix.phases import BARRIER, ENDING, HELD_BY, PREPARING, QUEUED, RUNNING, SAVING
from tests.forks import commands
from tests.paths import ROOT
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud import google_clients
from tpuctl.cloud.endpoints import Cloud
from tpuctl.errors import BucketMissingError, DeadlineError
from tpuctl.flows.runs.evidence import decision, witnesses
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.state import RunState
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch
from tpuctl.host.worker.control import is_held_in
from tpuctl.host.worker.job import processes
from tpuctl.host.worker.job.processes import variable
from tpuctl.host.worker.records import LOCK_FILE, ORDERED_LOG, StopRequest, encode
from tpuctl.host.worker.reporting import read_last
from tpuctl.nodes import NodeState
from tpuctl.polling import Backoff, poll
from tpuctl.runs import Verdict

T = TypeVar("T")

LIMIT = 120.0
"""Seconds for which an event is waited for, on a busy machine."""
SILENCES = {
    decision: ("CHECK_NODE_AFTER", "ASK_HOST_AFTER", "LOST_AFTER", "NEVER_STARTED_AFTER"),
    witnesses: ("INTERVAL", "ANSWER_TIMEOUT"),
}
"""Times of a reader that `shorten` divides."""


@dataclass
class Site:
    """The run, its hosts, and who looks at it."""

    tpuctl: Callable[..., CommandResult]
    cloud: Cloud
    simulator: RunningSimulator
    monkeypatch: pytest.MonkeyPatch
    hosts: int
    condition: str = ""
    """Of the laptop's clock: `ahead`, `behind`, or empty for a true one."""
    client: subprocess.Popen[bytes] | None = None
    """What submitted the run and follows it, where it is a process of its own."""
    is_attached: bool = False
    terminal: int = -1
    """Of the client, where it has one: our end of it."""

    def shorten(self) -> None:
        """Divide the product's times of silence, on hosts and in readers, by FACTOR."""
        self.change_program(programs.SHORTENING)
        for module, names in SILENCES.items():
            for name in names:
                self.monkeypatch.setattr(module, name, getattr(module, name) / programs.FACTOR)

    def ask_early(self) -> None:
        """Have a reader ask about a silence of five seconds; what follows from it stays."""
        for name in ("CHECK_NODE_AFTER", "ASK_HOST_AFTER"):
            self.monkeypatch.setattr(decision, name, 5.0)

    def change_program(self, appendices: Mapping[str, str]) -> None:
        """Ship a program with text at the end of some modules."""
        program = programs.changed(appendices)
        self.monkeypatch.setattr(launch, "worker_program", lambda: program)

    def make_tpu(self) -> None:
        """Make the node."""
        type_ = "v3-8" if self.hosts == 1 else "v3-32"
        up = self.tpuctl("up", type_, "--name", "tpu", "--framework", "jax", "--spot", "--yes")
        assert up.code == 0, up.err
        Path("job.py").write_text(phases.SCRIPT)
        self.run = StoredRun(self.cloud.bucket, "r1")

    def start(self, phase: str) -> None:
        """Submit a run and return once it stands still in the phase."""
        self.make_tpu()
        options = ["--setup", phases.SETUP[phase]] if phase in phases.SETUP else []
        if phase == QUEUED:
            Path("earlier.py").write_text(phases.EARLIER)
            assert self.tpuctl("submit", "earlier.py", "--name", "r0").code == 0
            options = ["--queue"]
        if phase in HELD_BY:
            self.simulator.faults.add("gcs-stall", **HELD_BY[phase])
        self.submit(*options, "job.py", "--name", "r1", "--", phase)
        self.until(lambda: self.is_in(phase), phase)
        if phase == SAVING:
            stop = StopRequest("r1", "ada@example.com", "2026-01-01T12:00:00Z", 600)
            self.cloud.bucket.create(self.run.paths.stop, encode(stop))
            self.until(lambda: all((folder / "phase").exists() for folder in self.folders), phase)

    def submit(self, *arguments: str) -> None:
        """Submit the run, as the laptop of this site does it; its hosts do not resume it after a reboot."""
        arguments = ("--restarts", "0", *arguments)
        if self.terminal >= 0:
            self.terminal, theirs = pty.openpty()
            words = ["setsid", "--ctty", "env", "--default-signal=HUP", sys.executable, "-m", "tpuctl"]
            command = [*words, "submit", "--attach", *arguments]
            self.client = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
            os.close(theirs)
            return
        if self.is_attached:
            with Path("client.output").open("wb") as output:
                self.client = commands.start("submit", "--attach", *arguments, stdout=output, stderr=output)
            return
        code, output = self.command("submit", *arguments)
        assert code == 0, output

    def command(self, *arguments: str) -> tuple[int, str]:
        """Run tpuctl on a laptop with this site's clock; return its exit code and output."""
        if self.condition:
            return self.run_client(self.condition, *arguments)
        result = self.tpuctl(*arguments)
        return result.code, result.out + result.err

    @staticmethod
    def run_client(condition: str, *arguments: str) -> tuple[int, str]:
        """Run tpuctl in a process of its own: see client.py."""
        path = Path("client.output")
        with open(os.devnull) as nothing, path.open("w") as output:
            descriptors = [nothing.fileno(), output.fileno(), output.fileno()]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            code = commands.run(("-m", client.__name__, condition, *arguments), environment, descriptors)
        return code, path.read_text()

    def is_in(self, phase: str) -> bool:
        """Whether it stands still in the phase; for SAVING, whether it can be stopped."""
        if not self.run.attempt_numbers():
            return False
        folders = self.folders
        states = [status.state if status else "" for status in self.run.last_attempt().statuses()]
        if phase in (QUEUED, PREPARING):
            return states == [phase] * self.hosts
        if phase == BARRIER:
            return states[:-1] == ["ready"] * (self.hosts - 1)
        if phase in (RUNNING, SAVING):
            return states == ["running"] * self.hosts and all((each / "running").exists() for each in folders)
        if phase == ENDING:
            lasts = [read_last(str(folder)) or {} for folder in folders]
            return [last.get("exit_code") for last in lasts] == [0] * self.hosts
        return len(folders) == self.hosts and all((folder / "phase").exists() for folder in folders)

    def go_on(self) -> None:
        """Let requests to the bucket and scripts go on that stand still; other faults stay."""
        for fault in self.simulator.faults.all():
            if fault.kind == "gcs-stall":
                self.simulator.faults.remove(fault.id)
        for folder in (*self.folders, *self.folders_of("r0")):
            (folder / "go").touch()

    def folders_of(self, run: str) -> list[Path]:
        """The folder of a run's attempt on each host that has it, in the order of workers."""
        homes = sorted(Path(self.simulator.folder, "hosts").glob("*/w*/home"))
        return [folder for home in homes if (folder := home / f".tpuctl/runs/{run}/1").exists()]

    @property
    def folders(self) -> list[Path]:
        """Those of the run."""
        return self.folders_of("r1")

    @property
    def last(self) -> Path:
        """The folder on the last host."""
        return self.folders[-1]

    def kill_supervisor(self) -> None:
        """Kill that of the last host."""
        os.kill(int((self.last / "started").read_text().split()[0]), signal.SIGKILL)

    def stop_supervisor(self) -> None:
        """Stop that of the last host and its guard, as a debugger does, and cancel the run by force."""
        supervisor = int((self.last / "started").read_text().split()[0])
        for pid in (supervisor, processes.running()[supervisor].parent):
            os.kill(pid, signal.SIGSTOP)
        with Path("client.output").open("wb") as output:
            words = ("cancel", "r1", "--yes", "--force")
            self.client = commands.start(*words, stdout=output, stderr=output)

    @contextmanager
    def _google_bucket(self) -> Iterator[storage.Bucket]:
        """The bucket as Google's own client has it."""
        endpoint = self.cloud.endpoints.storage
        client = google_clients.storage_client("sim-project", self.cloud.credentials, endpoint)
        yield client.bucket(self.cloud.bucket.name)
        client.close()

    def retain(self) -> None:
        """Have the bucket keep each object as it is."""
        with self._google_bucket() as bucket:
            bucket.retention_period = 3600
            bucket.patch()

    def hold(self) -> None:
        """Have the bucket put a hold on what is written; returns once the statuses cannot be overwritten."""
        with self._google_bucket() as bucket:
            bucket.default_event_based_hold = True
            bucket.patch()
            names = [self.run.paths.status(1, worker) for worker in range(self.hosts)]
            self.until(lambda: all(bucket.get_blob(name).event_based_hold for name in names), "the holds")

    def forget_records(self) -> None:
        """Delete what is written once, as a lifecycle rule does; what removes things leaves the run alone."""
        self._delete("runs/r1/run.json", "runs/r1/attempts/1/attempt.json", "nodes/*/runs/r1/1.json")
        self.clear_up()

    def empty_bucket(self) -> None:
        """Delete all objects of the bucket; what removes things leaves the run alone."""
        self._delete("**")
        self.clear_up()

    def _delete(self, *globs: str) -> None:
        for glob in globs:
            for item in self.cloud.bucket.objects("", glob=glob):
                self.cloud.bucket.remove(item)

    def delete_bucket(self) -> None:
        """Delete the bucket with what is in it; what removes things leaves the run alone."""

        def delete() -> bool:
            self._delete("**")
            with self._google_bucket() as bucket, suppress(Conflict):
                bucket.delete()
                return True
            return False  # a worker has written meanwhile

        self.until(delete, "the end of the bucket")
        self.clear_up()

    def configure_another_bucket(self) -> None:
        """Remove, from a laptop with another bucket, what no run needs: this one is left alone."""
        with self._google_bucket() as bucket, self.monkeypatch.context() as patch:
            bucket.client.create_bucket("other-bucket", location="europe-west4")
            patch.setenv("TPUCTL_BUCKET", "other-bucket")
            self.clear_up()

    def clear_up(self) -> None:
        """Remove what no run needs, and try to start another one: the run keeps working, its TPU stays."""
        commands = [
            ("rm", "r1", "--yes"), ("runs", "gc", "--keep", "0", "--yes"), ("watch", "--all", "--once"),
            ("reap", "--without-run", "1s", "--yes"),
        ]  # fmt: skip
        if not any(fault.kind == "gcs-stall" for fault in self.simulator.faults.all()):  # it would wait, too
            Path("other.py").write_text(f"{phases.EARLIER}print('other')\n")
            commands.append(("submit", "other.py", "--name", "r9"))
        for words in commands:
            self.tpuctl(*words)
            assert self._node_state() is NodeState.READY, words
            assert all(is_held_in(str(folder), LOCK_FILE) for folder in self.folders), words
        assert not any((folder / "started").exists() for folder in self.folders_of("r9"))

    def withdraw_rights(self) -> None:
        """Let nobody write into the folder of the run any more."""
        self.simulator.faults.add(
            "gcs-error", status=403, method="storage.objects.create", object="runs/r1/*"
        )

    def close_terminal(self) -> None:
        """Close the terminal on which the run was submitted and is followed."""
        assert self.client
        os.close(self.terminal)
        self.until(lambda: self.client and self.client.poll() is not None, "the end of the command")

    def maintain(self) -> None:
        """Let the hosts have maintenance of which nobody is told; returns once the node is READY again."""
        self.add("maintenance")
        self.until(lambda: self.simulator.events.find(kind="transition", what="REPAIRING"), "maintenance")
        self.until(lambda: self._node_state() is NodeState.READY, "its end")

    def preempt(self) -> None:
        """Let the node be preempted; returns once the provider says so."""
        self.add("preemption", grace=0.0)
        self.until(lambda: self._node_state() is NodeState.PREEMPTED, "the preemption")

    def _node_state(self) -> NodeState:
        return {node.name: node.state for node in self.cloud.provider.list_nodes().nodes}["tpu"]

    def kill_script(self) -> None:
        """Kill that of the last host."""
        status = self.run.last_attempt().statuses()[-1]
        assert status
        assert status.pid
        os.kill(status.pid, signal.SIGKILL)

    def kill_client(self) -> None:
        """Kill what submitted the run and follows it."""
        assert self.client
        assert self.client.poll() is None
        self.client.kill()
        self.client.wait()

    def storm(self) -> None:
        """Answer 503 to whatever is asked of the bucket until ten requests have failed."""
        storm = self.simulator.faults.add("gcs-error", status=503, count=10)
        self.until(lambda: not self.simulator.faults.find(storm.id), "the storm")

    def add(self, kind: str, **options: object) -> None:
        """Let something befall the node."""
        self.simulator.faults.add(kind, node="tpu", **options)

    def strike_last(self, kind: str, **options: object) -> None:
        """Let something befall the last host."""
        self.add(kind, worker=str(self.hosts - 1), **options)
        self.until(lambda: self.simulator.events.find(kind="fault", what=kind), kind)

    def kill_host(self) -> None:
        """Let the last host die."""
        self.strike_last("host-death")
        self.until(lambda: not is_held_in(str(self.last), LOCK_FILE), "the end of its programs")

    def look(self) -> None:
        """Look at the run from the laptop of this site: it goes on."""
        code, output = self.command("runs", "--json")
        assert code == 0, output
        assert self.run.verdict() is None, output

    def until(self, condition: Callable[[], object], awaiting: str) -> None:
        """Wait for an event."""
        self._poll(lambda: True if condition() else None, awaiting, Backoff(0.05, 0.3))

    def _poll(self, look: Callable[[], T | None], awaiting: str, backoff: Backoff) -> T:
        try:
            return poll(look, awaiting=awaiting, timeout=LIMIT, backoff=backoff)
        except DeadlineError as error:
            raise AssertionError(f"{error.message}\n{self.supervisor_logs()}") from error

    def state(self) -> RunState:
        """Look at the run as `tpuctl runs` does."""
        return settle(self.run, self._witnesses)

    @property
    def _witnesses(self) -> witnesses.Witnesses:
        if not hasattr(self, "_asked"):
            self._asked = witnesses.Witnesses(self.cloud.provider, lambda: self.cloud.ssh)
        return self._asked

    def verdict(self, meanwhile: str = "") -> Verdict:
        """Return how the run ended; until then it has no verdict, or the outcome `meanwhile`."""

        def look() -> Verdict | None:
            verdict = self.state().verdict
            return verdict if verdict and verdict.outcome != meanwhile else None

        return self._poll(look, "a verdict", Backoff(0.1, 0.5))

    def have_all_finished(self) -> bool:
        """Whether each worker has said its last word."""
        return all(status and status.is_finished for status in self.run.last_attempt().statuses())

    def supervisor_logs(self) -> str:
        """Return what the supervisors say."""
        paths = [Path("client.output"), *(folder / "supervisor.log" for folder in self.folders)]
        return "\n".join(path.read_text() for path in paths if path.exists())

    def log(self, worker: int) -> bytes:
        """Return a worker's log as it is in the bucket."""
        folder = self.run.paths.ordered_logs(1)
        try:
            names = [item.name for item in self.cloud.bucket.objects(folder)]
        except BucketMissingError:
            return b""
        matches = [(name, ORDERED_LOG.fullmatch(name.removeprefix(folder))) for name in names]
        own = sorted((int(match[2]), name) for name, match in matches if match and int(match[1]) == worker)
        return b"".join(self.cloud.bucket.read(name) for _, name in own)

    def own_lines(self, worker: int) -> bytes:
        """Return the lines of the script in a worker's log."""
        return b"".join(line for line in self.log(worker).splitlines(True) if line.startswith(b"step"))

    def is_clean(self) -> bool:
        """Whether nothing of the run is left on any host: no process, and no supervisor."""
        table, folders = processes.running(), self.folders
        if processes.with_variable(table, [variable(str(folder)) for folder in folders]):
            return False
        return not any(is_held_in(str(folder), LOCK_FILE) for folder in folders)

    def close(self) -> None:
        """End what may be left: processes of this test, and the earlier run."""
        self.simulator.faults.clear()
        if self.client and self.client.poll() is None:
            self.client.kill()
            self.client.wait()
