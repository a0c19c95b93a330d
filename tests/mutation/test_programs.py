"""Programs with a budget of CPU seconds."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.mutation.programs import CpuClock
from tests.paths import ROOT
from tpuctl.polling import Backoff, poll

pytestmark = pytest.mark.slow

WAITING = """
import os, pathlib, subprocess, sys, threading
if len(sys.argv) == 2:
    subprocess.Popen([sys.executable, "-S", __file__, sys.argv[1], "child"], start_new_session=True)
with open(sys.argv[1], "a") as stream:
    stream.write(f"{os.getpid()}\\n")
threading.Event().wait()
"""
"""A program that waits, as does a child in a session of its own; both note their process ids."""
TOOL = """
import os, sys, tempfile
from pathlib import Path
from tests.mutation import __main__ as mutation

def judge(mutant, tests, checkout, clock):
    Path(os.environ["FOLDER"]).write_text(str(checkout.folder))
    with tempfile.TemporaryFile("w+") as output:
        command = [sys.executable, "-S", os.environ["PROGRAM"], os.environ["IDS"]]
        clock.run(command, Path.cwd(), os.environ, output)

mutation.judge = judge
sys.exit(mutation.main())
"""
"""`make mutate` of a clock, with the waiting program for its tests."""


def _run(clock: CpuClock, code: str) -> int | None:
    with tempfile.TemporaryFile("w+") as output:
        return clock.run([sys.executable, "-S", "-c", code], Path.cwd(), os.environ, output)


def test_a_program_ends_with_its_code() -> None:
    assert _run(CpuClock(600), "raise SystemExit(3)") == 3


def test_a_program_over_the_budget_is_ended() -> None:
    clock = CpuClock(0.5)
    assert _run(clock, "while True: pass") is None
    assert clock.is_over


def test_a_program_at_a_standstill_is_ended() -> None:
    clock = CpuClock(600, standstill=1)
    assert _run(clock, "import threading; threading.Event().wait()") is None
    assert not clock.is_over


@pytest.fixture
def ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the waiting program notes process ids."""
    (tmp_path / "waiting.py").write_text(WAITING)
    for name in ("FOLDER", "IDS"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PROGRAM", str(tmp_path / "waiting.py"))
    return tmp_path / "IDS"


def _wait_for_both(ids: Path) -> list[psutil.Process]:
    """Return the waiting program and its child once both wait."""
    both = poll(
        lambda: numbers if ids.exists() and len(numbers := ids.read_text().split("\n")) == 3 else None,
        awaiting="two processes", timeout=120, backoff=Backoff(0.02, 0.1),
    )  # fmt: skip
    return [psutil.Process(int(number)) for number in both[:2]]


def _wait_for_end(processes: list[psutil.Process]) -> None:
    poll(
        lambda: not any(_runs(process) for process in processes) or None,
        awaiting="the end of both", timeout=120, backoff=Backoff(0.02, 0.1),
    )  # fmt: skip


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_runs_ends_with_the_tool_whatever_ends_it(ids: Path, number: signal.Signals) -> None:
    options = ["--under", "tpuctl/clock.py", "--count", "3", "--processes", "1"]
    with subprocess.Popen(
        [sys.executable, "-c", TOOL, *options], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as tool:
        waiting = _wait_for_both(ids)
        tool.send_signal(number)
    _wait_for_end(waiting)
    copy = Path(os.environ["FOLDER"]).read_text()
    if number == signal.SIGKILL:
        shutil.rmtree(Path(copy).parents[1])
    else:
        assert not Path(copy).exists()


def test_what_a_program_leaves_running_ends_with_it(ids: Path) -> None:
    command = [sys.executable, "-S", os.environ["PROGRAM"], str(ids), "child"]
    code = f"""
import os, subprocess
subprocess.Popen({command}, start_new_session=True)
while not os.path.exists({command[3]!r}) or not os.path.getsize({command[3]!r}):
    pass
"""
    assert _run(CpuClock(600), code) == 0
    assert not psutil.pid_exists(int(ids.read_text()))
