"""Supervisors of one attempt, as on several hosts: they start together and end together."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.host.worker.host import Host
from tests.running_simulator import RunningSimulator
from tpuctl.bucket_layout import RunPaths
from tpuctl.host.worker.job import processes
from tpuctl.host.worker.records import WorkerStatus
from tpuctl.polling import Backoff, poll

WORKERS = 3
FAST = (
    "timing.HEARTBEAT = 0.2; timing.LOG_INTERVALS = ((float('inf'), 0.1),); timing.POLL_INTERVAL = 0.05;"
    " timing.PEER_INTERVAL = 0.2; timing.LONGEST_LOOK = 0.2"
)
WAIT = "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"
FAILING = (
    "import pathlib, sys, time\nprint('step 1', flush=True)\n"
    "while not pathlib.Path('../fail').exists():\n  time.sleep(0.02)\nsys.exit(7)\n"
)
MISSING = "no-such-package-of-tpuctl"


@pytest.fixture
def crew(host: Host) -> list[Host]:
    """Folders of workers of one attempt; they share a machine, which none of them notices."""
    host.environment["PIP_NO_INDEX"] = "1"
    runs = host.folder.parent.parent
    return [replace(host, folder=runs / f"w{worker}/r1/1", worker=worker) for worker in range(WORKERS)]


def prepare(host: Host, script: str, **changes: object) -> None:
    host.prepare(script, participants=list(range(WORKERS)), **changes)


def launch(host: Host, script: str, **changes: object) -> int:
    """Start one worker, and return the pid of its program."""
    prepare(host, script, **changes)
    answer = host.launch(FAST)
    assert answer.returncode == 0, answer.stdout
    return int(json.loads(answer.stdout)["pid"])


def wait_for(host: Host, state: str) -> WorkerStatus:
    """Wait until a worker says that it is in a state."""
    return poll(
        lambda: status if (status := host.status()).state == state else None,
        awaiting=state, timeout=120, backoff=Backoff(0.02, 0.1), hint=host.supervisor_log(),
    )  # fmt: skip


class TestStart:
    def test_no_script_starts_before_the_last_host_is_ready(self, crew: list[Host]) -> None:
        for host in crew[:-1]:
            launch(host, WAIT)
            assert wait_for(host, "ready").pid == 0
        assert [host.chunks() for host in crew[:-1]] == [[], []]
        launch(crew[-1], FAILING)
        for host in crew:
            host.wait_for_output(b"step 1")
        (crew[-1].folder / "fail").touch()
        assert [host.finished().exit_code for host in crew] == [143, 143, 7]

    def test_a_host_that_cannot_start_ends_all_with_its_reason(self, crew: list[Host]) -> None:
        """Those that are ready, and those that still prepare."""
        launch(crew[0], "print('never')")
        wait_for(crew[0], "ready")
        prepare(crew[1], "print('never')", dependencies=["numpy"])
        slow = "packages.ensure = lambda *rest: __import__('time').sleep(600)"
        slow = f"from tpuctl.host.worker.preparation import packages\n{slow}"
        assert crew[1].launch(f"{FAST}\n{slow}").returncode == 0
        launch(crew[2], "print('never')", dependencies=[MISSING])
        first, second, failed = [host.finished() for host in crew]
        assert failed.error.startswith(f"PackageError: pip could not install {MISSING}")
        assert failed.peer is None
        for status in (first, second):
            assert status.error.startswith("not started, because worker 2 could not start: PackageError: pip")
            assert (status.peer, status.pid, status.exit_code) == (2, 0, None)
        assert not any(b"never" in host.log() for host in crew)

    def test_one_that_is_stopped_while_all_wait_ends_all(self, crew: list[Host]) -> None:
        pids = [launch(host, "print('never')") for host in crew[:-1]]
        for host in crew[:-1]:
            wait_for(host, "ready")
        os.kill(pids[0], signal.SIGTERM)
        assert crew[0].finished().stopped == "SIGTERM"
        other = crew[1].finished()
        assert (other.stopped, other.peer) == ("", 0)
        assert other.error == "not started, because worker 0 was stopped by SIGTERM"
        launch(crew[2], "print('never')")
        assert crew[2].finished().peer == 0, "one that comes late does not start either"

    def test_one_whose_launch_was_killed_before_the_others_ends(self, crew: list[Host]) -> None:
        prepare(crew[0], "print('never')")
        brief = f"{FAST}; timing.NEIGHBOUR_INTERVAL = timing.LAUNCH_SILENCE = 0.2"
        assert crew[0].launch(brief).returncode == 0
        status = crew[0].finished()
        reason = "worker 1 was not started, and nobody starts it any more"
        assert (status.error, status.peer, status.pid) == (f"not started, because {reason}", 1, 0)

    @pytest.mark.parametrize("hours", [-1, 1])
    def test_a_clock_that_is_wrong_by_an_hour_changes_nothing(self, crew: list[Host], hours: int) -> None:
        """Ages are the bucket's; names of chunks, too."""
        wrong = f"{FAST}\nimport time; right = time.time; time.time = lambda: right() + {3600 * hours}"
        for host in crew:
            prepare(host, "print('ran', flush=True)")
            assert host.launch(wrong if host.worker == 1 else FAST).returncode == 0
        assert [host.finished().exit_code for host in crew] == [0, 0, 0]
        assert crew[0].log().count(b"ran") == WORKERS
        assert len({name.rpartition("/")[2][:11] for name in crew[0].chunks()}) <= 2

    def test_an_outage_of_the_bucket_delays_all(self, crew: list[Host], simulator: RunningSimulator) -> None:
        for host in crew[:-1]:
            launch(host, "print('ran')")
            wait_for(host, "ready")
        fault = simulator.faults.add("gcs-error", status=503, object="*/barrier/*")
        launch(crew[-1], "print('ran')")
        wait_for(crew[-1], "ready")
        simulator.faults.remove(fault.id)
        assert [host.finished().exit_code for host in crew] == [0, 0, 0]
        assert [host.log().count(b"ran") for host in crew][:1] == [WORKERS]


class TestEnd:
    @pytest.mark.parametrize("fault", ["exit", "kill"])
    def test_a_script_that_fails_ends_the_others(
        self, crew: list[Host], fault: str, wait_for_end: Callable[[int], None]
    ) -> None:
        scripts = (WAIT, FAILING, WAIT)
        for host, script in zip(crew, scripts, strict=True):
            launch(host, script)
        pids = [wait_for(host, "running").pid for host in crew]
        if fault == "exit":
            (crew[1].folder / "fail").touch()
            clause = "worker 1's script ended with exit code 7"
        else:
            os.kill(pids[1], signal.SIGKILL)
            clause = "worker 1's script was ended by SIGKILL"
        first, failed, third = [host.finished() for host in crew]
        assert (failed.peer, failed.error, failed.exit_code) == (None, "", 7 if fault == "exit" else 137)
        for status in (first, third):
            assert (status.peer, status.error, status.stopped) == (1, f"stopped, because {clause}", "")
            assert (status.exit_code, status.signal) == (143, "SIGTERM")
        for pid in pids:
            wait_for_end(pid)

    @pytest.mark.parametrize("phase", ["ready", "running"])
    def test_a_supervisor_that_is_killed_ends_the_others(self, crew: list[Host], phase: str) -> None:
        """By the word of its guard; nobody waits for a silence to be long enough."""
        started = crew if phase == "running" else crew[:-1]
        pids = [launch(host, WAIT) for host in started]
        for host in started:
            wait_for(host, phase)
        os.kill(pids[0], signal.SIGKILL)
        killed, other = crew[0].finished(), crew[1].finished()
        assert (killed.peer, killed.error) == (None, "the program that runs the script was ended by SIGKILL")
        start = "not started" if phase == "ready" else "stopped"
        how = "could not start" if phase == "ready" else "was not watched to its end"
        assert other.error == f"{start}, because worker 0 {how}: {killed.error}"
        assert other.peer == 0
        for host in started:
            host.finished()
        marks = [f"TPUCTL_REPORT_DIR={host.folder}/reports" for host in crew]
        assert not processes.with_variable(processes.running(), marks)

    def test_of_two_that_fail_at_once_one_is_the_cause(self, crew: list[Host]) -> None:
        for host in crew:
            launch(host, "raise SystemExit(3)")
        ended = [host.finished() for host in crew]
        causes = [status.worker for status in ended if status.peer is None]
        assert len(causes) == 1
        assert {status.peer for status in ended} == {None, causes[0]}

    def test_success_ends_nobody(self, crew: list[Host]) -> None:
        launch(crew[0], "print('done')")
        launch(crew[1], "print('done')")
        launch(crew[2], FAILING.replace("sys.exit(7)", "sys.exit(0)"))
        assert [host.finished().exit_code for host in crew[:2]] == [0, 0]
        assert wait_for(crew[2], "running").peer is None
        (crew[2].folder / "fail").touch()
        assert crew[2].finished().exit_code == 0
        name = f"{RunPaths('r1').attempts}1/barrier/decision.json"
        assert json.loads(crew[0].bucket.read(name))["state"] == "go"

    def test_a_worker_alone_writes_nothing_for_others(self, host: Host) -> None:
        host.start("raise SystemExit(3)", participants=[0])
        assert host.finished().exit_code == 3
        assert host.bucket.objects(f"{RunPaths('r1').attempts}1/barrier/") == []
