"""A supervisor that is killed: its guard ends what it started, ships the rest of the log, and says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.host.worker.host import Host
from tests.paths import ROOT
from tests.running_simulator import RunningSimulator
from tpuctl import runs
from tpuctl.host.worker.job import processes
from tpuctl.host.worker.peers import reason_of
from tpuctl.host.worker.records import StopRequest
from tpuctl.host.worker.reporting import read_last
from tpuctl.polling import Backoff, poll

LINES = (
    "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '600'])\n"
    "for step in range(1000):\n  print('step', step, flush=True)\ntime.sleep(600)\n"
)
EXPECTED = b"".join(b"step %d\n" % step for step in range(1000))


def guard_of(supervisor: int) -> int:
    return processes.running()[supervisor].parent


@pytest.mark.parametrize("is_shipped", [False, True])
def test_the_run_ends_with_a_word_and_its_whole_log(
    host: Host, wait_for_end: Callable[[int], None], is_shipped: bool
) -> None:
    supervisor = host.start(LINES)
    guard = guard_of(supervisor)
    host.wait_for_output(b"step 999")
    if is_shipped:
        poll(lambda: host.log() == EXPECTED or None, awaiting="the log", timeout=60, backoff=Backoff(0.05))
    os.kill(supervisor, signal.SIGKILL)
    status = host.finished()
    assert status.error == "the program that runs the script was ended by SIGKILL"
    assert (status.exit_code, status.stopped, status.state) == (None, "", "finished")
    assert host.log() == EXPECTED
    assert status.log_chunks == len(host.chunks())
    wait_for_end(guard)
    assert not processes.with_variable(processes.running(), [f"TPUCTL_REPORT_DIR={host.folder}/reports"])


def test_one_that_is_killed_while_it_prepares_has_not_started(host: Host) -> None:
    host.environment["TPUCTL_OF_A_TEST"] = "1"
    host.prepare("print('never')", dependencies=["numpy"])
    slow = "packages.ensure = lambda *rest: __import__('subprocess').call(['sleep', '600'])"
    answer = host.launch(f"from tpuctl.host.worker.preparation import packages\n{slow}")
    supervisor = int(answer.stdout.split(":")[1].strip(" }\n"))
    poll(
        lambda: processes.descendants(processes.running(), [supervisor]) or None,
        awaiting="the installation", timeout=60, backoff=Backoff(0.02),
    )  # fmt: skip
    os.kill(supervisor, signal.SIGKILL)
    status = host.finished()
    assert (status.pid, status.error) == (0, "the program that runs the script was ended by SIGKILL")
    assert host.log() == b""
    poll(
        lambda: not host.supervisors() or None,
        awaiting="the end of the guard", timeout=60, backoff=Backoff(0.02),
    )  # fmt: skip


def test_one_that_is_killed_before_it_has_noted_its_script_has_started_it(host: Host) -> None:
    host.prepare("import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(600)\n")
    host.launch(
        "from tpuctl.host.worker import supervisor\n"
        "supervisor.Supervisor._watch = lambda *_: __import__('time').sleep(600)"
    )
    status = host.finished()
    assert (status.pid, status.has_run, status.exit_code) == (0, True, None)
    runs.check_status(status, 1, 0)  # else no reader takes it for a status
    assert reason_of(status) == (
        "worker 0 was not watched to its end: the program that runs the script was ended by SIGKILL"
    )
    assert not processes.with_variable(processes.running(), [f"TPUCTL_REPORT_DIR={host.folder}/reports"])


def test_a_stop_of_the_guard_is_a_stop_of_the_script(host: Host) -> None:
    """Who starts it knows its pid, and a host signals both."""
    supervisor = host.start(
        "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(3))\nprint('step 1', flush=True)\n"
        "time.sleep(600)\n"
    )
    host.wait_for_output(b"step 1")
    os.kill(guard_of(supervisor), signal.SIGTERM)
    status = host.finished()
    assert (status.stopped, status.exit_code) == ("SIGTERM", 3)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("is_child", [False, True], ids=["itself", "its child"])
def test_a_stop_while_it_forks_ends_the_child_and_nothing_else(
    tmp_path: Path, number: int, is_child: bool
) -> None:
    """It was passed to process 0, which is everyone in the session, and so to itself again, without end."""
    code = (
        "import os, sys, time\n"
        "from tests.host.worker.host import SPEC\nfrom tpuctl.host.worker import guard\n"
        "fork, number, is_child = os.fork, int(sys.argv[1]), sys.argv[2] == 'True'\n"
        "def fork_and_stop():\n"
        "  if not is_child:\n    os.kill(os.getpid(), number)\n"
        "  pid = fork()\n"
        "  if is_child and not pid:\n    os.kill(os.getpid(), number)\n"
        "  return pid\n"
        "os.fork = fork_and_stop\n"
        "print(guard.guarded(SPEC, '.', lambda: time.sleep(600)), flush=True)\n"
    )
    command = [sys.executable, "-c", code, str(int(number)), str(is_child)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=True,
        start_new_session=True,
    )  # fmt: skip
    assert result.stdout == f"{128 + number}\n"


def test_a_guard_that_is_killed_takes_nothing_with_it(host: Host) -> None:
    supervisor = host.start(
        "import os, time\nprint('step 1', flush=True)\n"
        "while not os.path.exists('../go'):\n  time.sleep(0.02)\nprint('step 2')\n"
    )
    host.wait_for_output(b"step 1")
    os.kill(guard_of(supervisor), signal.SIGKILL)
    (host.folder / "go").touch()
    assert host.finished().exit_code == 0
    assert host.log() == b"step 1\nstep 2\n"


def test_a_defect_of_the_supervisor_ends_the_run_with_a_word(host: Host) -> None:
    host.prepare("print('never')")
    code = "from tpuctl.host.worker import supervisor\nsupervisor.Supervisor._run_script = lambda self: 1 / 0"
    assert host.launch(code).returncode == 0
    status = host.finished()
    assert status.error == "the program that runs the script ended with exit code 1"
    assert "ZeroDivisionError" in host.supervisor_log()


@pytest.mark.parametrize("code", [0, 3])
def test_one_that_is_killed_after_its_script_has_ended_takes_nothing_back(
    host: Host, simulator: RunningSimulator, code: int
) -> None:
    """Its log is still on the way: the guard ships it, and says how the script ended."""
    stall = simulator.faults.add("gcs-stall", method="storage.objects.create", object="*/log/*")
    supervisor = host.start(f"print('step 1')\nraise SystemExit({code})")
    poll(
        lambda: (read_last(str(host.folder)) or {}).get("exit_code") == code or None,
        awaiting="the end of the script", timeout=60, backoff=Backoff(0.02),
    )  # fmt: skip
    os.kill(supervisor, signal.SIGKILL)
    simulator.faults.remove(stall.id)
    status = host.finished()
    assert (status.exit_code, status.error) == (code, "")
    assert host.log() == b"step 1\n"


def test_one_that_is_killed_while_its_script_saves_leaves_who_asked(host: Host) -> None:
    supervisor = host.start(
        "import signal, time\nsignal.signal(15, lambda *_: print('saving', flush=True))\n"
        "print('step 1', flush=True)\nwhile True:\n  time.sleep(1)\n"
    )
    host.wait_for_output(b"step 1")
    stop = StopRequest("r1", "ada@example.com", "2026-01-01T12:00:00Z", 2)
    host.ask_to_stop(stop)
    host.wait_for_output(b"saving")
    os.kill(supervisor, signal.SIGKILL)
    assert host.finished().stopped_by == "ada@example.com"
