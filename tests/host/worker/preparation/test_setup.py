"""The set-up command: its output, its failures, its limit, and what it leaves."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tpuctl.host import timing
from tpuctl.host.worker.preparation import steps
from tpuctl.polling import Backoff, poll


def run(folder: Path, command: str, timeout: float = 60) -> str:
    """Run a command and return the log."""
    steps.run(command, str(folder), {**os.environ, "WORD": "of the run"}, str(folder / "log"), timeout)
    return (folder / "log").read_text()


def test_its_output_is_in_the_log_and_it_has_the_variables_and_the_folder(tmp_path: Path) -> None:
    log = run(tmp_path, 'pwd; echo "$WORD" >&2; touch made')
    assert log == f"[tpuctl] running the setup command\n{tmp_path}\nof the run\n"
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("exit 3", "the setup command failed with exit code 3 (see the log)"),
        ("false\necho never", "the setup command failed with exit code 1 (see the log)"),
        ("no-such-program-of-tpuctl", "the setup command failed with exit code 127 (see the log)"),
        ("kill -KILL $$", "the setup command was ended by SIGKILL (see the log)"),
    ],
)
def test_a_failure_is_told_with_its_exit_code(tmp_path: Path, command: str, words: str) -> None:
    with pytest.raises(steps.SetupError) as failed:
        run(tmp_path, command)
    assert str(failed.value) == words
    assert "never\n" not in (tmp_path / "log").read_text()


def test_it_ends_with_its_children_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SETUP_GRACE", 0.2)
    original = steps.subprocess.Popen.wait

    def wait(process: object, timeout: float | None = None) -> int:
        await_child(tmp_path)  # its time does not begin before
        return original(process, timeout)  # type: ignore[arg-type]

    monkeypatch.setattr(steps.subprocess.Popen, "wait", wait)
    child = "echo $$ > child.new; mv child.new child"
    command = f"trap '' TERM; sh -c '{child}; trap \"\" TERM; sleep 600 & wait; sleep 600'"
    with pytest.raises(steps.SetupError, match=r"did not end in 1 s"):
        run(tmp_path, command, timeout=1)
    wait_for_end(int((tmp_path / "child").read_text()))


def test_it_ends_with_its_children_when_the_run_is_stopped(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def wait(_seconds: float | None = None) -> int:
        await_child(tmp_path)
        raise Stop

    threads = set(threading.enumerate())
    original = steps.subprocess.Popen.wait
    calls: list[float | None] = []

    def patched(process: object, timeout: float | None = None) -> int:
        calls.append(timeout)
        return wait() if len(calls) == 1 else original(process, timeout)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps.subprocess.Popen, "wait", patched)  # as a signal handler that raises
        with pytest.raises(Stop):
            run(tmp_path, "sh -c 'echo $$ > child.new; mv child.new child; sleep 600'")
    wait_for_end(int((tmp_path / "child").read_text()))
    assert set(threading.enumerate()) <= threads, "one of an earlier test may end meanwhile"


def await_child(folder: Path) -> None:
    """Wait until the command's child has told its number."""
    poll(lambda: (folder / "child").exists() or None, awaiting="a child", timeout=60, backoff=Backoff(0.05))


def wait_for_end(pid: int) -> None:
    def ended() -> bool | None:
        try:
            return "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] or None
        except OSError:
            return True

    poll(ended, awaiting=f"process {pid} to end", timeout=60, backoff=Backoff(0.02, 0.1))
