"""Watchers as processes: killed at random while they start a run again, and one a minute as by cron."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.runs.test_watch import Started, billing, until
from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.cloud.endpoints import Cloud
from tpuctl.flows.runs.recovery import lease as leases
from tpuctl.flows.runs.stored_run import StoredRun

Command = Callable[..., CommandResult]
QUICK_WATCHER = """
import sys
from tpuctl.flows.runs.evidence import decision
from tpuctl.flows.runs.recovery import lease, watch
from tpuctl.polling import Backoff
watch.INTERVAL, watch.PAUSES, lease.SECONDS = 0.2, Backoff(0.2, 0.5), 3
decision.CHECK_NODE_AFTER = decision.ASK_HOST_AFTER = 2.0
from tpuctl.cli.main import run
sys.exit(run(sys.argv[1:]))
"""
"""A program that is `tpuctl`, and looks often, asks about every silence at once, and holds short leases."""
KILLS = 2
"""Watchers that are killed for each preemption."""


class Watchers:
    """Three processes that watch a run; each that is killed has a successor."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._running = {process.pid: process for process in (self._start() for _ in range(3))}
        self.killed = 0

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            command = [sys.executable, "-c", QUICK_WATCHER, "watch", "r1"]
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill_holder(self, run: StoredRun, attempt: int, after: float) -> None:
        """Kill the watcher that holds the lease of an attempt, so long after it has taken that."""
        holder: list[int] = []

        def look() -> bool:
            lease = leases.read(run, attempt)
            if lease is None:
                return False
            pid = int(lease.holder.rpartition("(")[2].rstrip(")"))
            holder[:] = [pid] if pid in self._running and not lease.is_over else []
            return lease.is_over or bool(holder)

        until(look, f"a watcher that starts attempt {attempt}")
        if holder:
            time.sleep(after)
            self._end(self._running.pop(holder[0]))
            self.killed += 1
            successor = self._start()
            self._running[successor.pid] = successor

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()

    def wait(self) -> list[int]:
        """Wait until each ends by itself; return their exit codes."""
        return [process.wait() for process in self._running.values()]

    def close(self) -> None:
        for process in self._running.values():
            self._end(process)


@pytest.fixture
def watchers(tmp_path: Path, simulator: RunningSimulator) -> Iterator[Callable[[], Watchers]]:
    """A function that starts them."""
    started: list[Watchers] = []

    def start() -> Watchers:
        started.append(Watchers(tmp_path / "watchers.log"))
        return started[0]

    yield start
    for each in started:
        each.close()


def made(simulator: RunningSimulator) -> list[str]:
    """The nodes that were created, in order."""
    created = simulator.events.find(kind="transition", what="CREATING", resource="*/nodes/*")
    return [item.resource.rpartition("/")[2] for item in created]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 8])
def test_watchers_that_are_killed_at_random_make_one_restart_on_one_node_each_time(
    tpuctl: Command,
    simulator: RunningSimulator,
    cloud: Cloud,
    tmp_path: Path,
    watchers: Callable[[], Watchers],
    count: int,
) -> None:
    chance = random.Random(13)
    run = Started(tpuctl, simulator, tmp_path, attempts=count + 1)
    stored, three = StoredRun(cloud.bucket, "r1"), watchers()
    for attempt in range(2, count + 2):
        run.preempt()
        for _ in range(KILLS):
            three.kill_holder(stored, attempt, chance.uniform(0, 1.5))
        run.until_attempt(attempt)
    log = (tmp_path / "watchers.log").read_text
    assert three.wait() == [0, 0, 0], log()
    numbers = list(range(1, count + 2))
    assert run.attempts == [str(number) for number in numbers], log()
    assert stored.attempt_numbers() == numbers
    assert made(simulator) == ["n1", *(f"r1-{number}" for number in numbers[1:])], log()
    assert billing(simulator) == []
    assert three.killed


def test_a_step_a_minute_as_cron_takes_it_restarts_a_run_and_deletes_what_it_made(
    tpuctl: Command, simulator: RunningSimulator, cloud: Cloud, tmp_path: Path
) -> None:
    run = Started(tpuctl, simulator, tmp_path, attempts=2)
    stored = StoredRun(cloud.bucket, "r1")
    lines: list[str] = []

    def minute() -> None:
        """Let a minute pass, and take a step as a process of its own, with the environment of cron."""
        simulator.simulator.clock.advance(60)
        kept = ("HOME", "PATH", "TPUCTL_STATE", "TPUCTL_TARGET")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with commands.start("watch", "--all", "--once", **pipes, text=True, env=environment) as step:
            out, err = step.communicate(timeout=120)
        assert step.returncode == 0, err
        lines.extend(line.partition("  ")[2] for line in out.splitlines())

    minute()
    assert "r1: attempt 1 goes on" in lines[-1]
    run.preempt()
    while len(run.attempts) < 2:
        minute()
        if "restarted" in lines[-1]:
            run.until_attempt(2)
    until(lambda: stored.attempt(2).statuses()[0].is_finished, "the end of the script")
    minute()
    assert f"r1: attempt 2 ended: {runs.SUCCEEDED}" in lines[-1], lines
    assert run.attempts == ["1", "2"]
    assert made(simulator) == ["n1", "r1-2"]
    assert billing(simulator) == []
    before = len(lines)
    minute()
    assert lines[before:] == []
