"""Locks of an attempt: who only looks at one is waited for, who holds one is not."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuctl.flows.runs.evidence.witnesses import AT_WORK
from tpuctl.host import timing
from tpuctl.host.worker import main
from tpuctl.host.worker.control import first_lock, hold, is_held_in, live_attempts, take
from tpuctl.host.worker.preparation.steps import make_room
from tpuctl.host.worker.records import LOCK_FILE, SCRIPT_LOCK_FILE, STARTED, STARTED_BEFORE, identity


@pytest.fixture
def looker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that somebody looks at until the next pause: as `ask`, the keeper and runs in line do."""
    path = tmp_path / LOCK_FILE
    with path.open("ab") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        monkeypatch.setattr(timing, "sleep", lambda seconds: look.close())
        yield path


def test_a_launch_waits_for_who_only_looks_at_the_lock(looker: Path) -> None:
    lock = first_lock(str(looker.parent))
    assert lock
    with lock:
        assert is_held_in(str(looker.parent), LOCK_FILE)


def test_a_script_has_its_lock_also_if_somebody_looks_at_it_meanwhile(looker: Path) -> None:
    """Else its supervisor's end would be the end of all that anybody sees of it."""
    descriptor = hold(str(looker))
    assert is_held_in(str(looker.parent), LOCK_FILE)
    os.close(descriptor)
    assert not is_held_in(str(looker.parent), LOCK_FILE)


def test_a_lock_that_another_process_holds_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "sleep", lambda seconds: pytest.fail("waited"))
    with (tmp_path / LOCK_FILE).open("ab") as held, (tmp_path / LOCK_FILE).open("ab") as other:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not take(other)
        assert first_lock(str(tmp_path)) is None


def test_a_launch_without_a_spec_leaves_the_lock_to_one_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two launches found the spec taken, and the first one then the lock."""
    answers = list[object]()

    def answer(content: dict[str, str], code: int) -> int:
        lock = first_lock(str(tmp_path))
        assert lock, "the other launch does not start it"
        lock.close()
        answers.append(content["error"])
        return code

    monkeypatch.setattr(main, "_answer", answer)
    assert main.launch(str(tmp_path / "spec.json")) == 1
    assert "No such file" in str(answers)


@pytest.mark.parametrize("is_over", [False, True], ids=["is being started", "was started"])
def test_a_launch_without_a_spec_says_that_the_attempt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_over: bool
) -> None:
    with (tmp_path / LOCK_FILE).open("ab") as lock:
        if is_over:
            (tmp_path / STARTED).touch()
        else:
            fcntl.flock(lock, fcntl.LOCK_EX)
        assert main.launch(str(tmp_path / "spec.json")) == 1
    assert STARTED_BEFORE in capsys.readouterr().out


def started(folder: Path, key: str) -> None:
    (folder / LOCK_FILE).touch()
    (folder / STARTED).write_text(f"7 {identity(key)}")


class TestRemovedRun:
    """What was started in the attempt's folder was of another run of the same name."""

    def test_its_lock_is_held_from_the_look_at_it_to_the_start_of_the_next(self, tmp_path: Path) -> None:
        """A second launch that looked in between would make the first believe that it had started."""
        started(tmp_path, "old")
        lock = make_room(str(tmp_path), "new")
        assert lock
        with lock:
            assert is_held_in(str(tmp_path), LOCK_FILE)
            assert first_lock(str(tmp_path)) is None
            assert make_room(str(tmp_path), "new") is None
        assert not (tmp_path / STARTED).exists()

    def test_one_that_another_launch_has_deleted_meanwhile_and_not_started_is_started(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / LOCK_FILE).touch()
        lock = make_room(str(tmp_path), "new")
        assert lock
        lock.close()

    @pytest.mark.parametrize("key", ["new", ""], ids=["the same run", "an earlier version's"])
    def test_anything_else_stays(self, tmp_path: Path, key: str) -> None:
        started(tmp_path, "new")
        if not key:
            (tmp_path / STARTED).write_text("7")
        assert make_room(str(tmp_path), "new") is None
        assert (tmp_path / STARTED).exists()
        assert not is_held_in(str(tmp_path), LOCK_FILE)

    def test_one_whose_script_lives_stays(self, tmp_path: Path) -> None:
        started(tmp_path, "old")
        descriptor = hold(str(tmp_path / SCRIPT_LOCK_FILE))
        assert make_room(str(tmp_path), "new") is None
        os.close(descriptor)
        assert (tmp_path / STARTED).exists()


def test_a_pipe_that_a_job_left_as_a_lock_is_not_waited_for(tmp_path: Path) -> None:
    """Else no run would start on the host before the launch is given up, after three minutes."""
    runs = tmp_path / ".tpuctl/runs"
    for run in ("left", "live", "own"):
        (runs / run / "1").mkdir(parents=True)
    os.mkfifo(runs / "left/1/lock")
    with (runs / "live/1/lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert live_attempts(str(runs / "own/1")) == [str(runs / "live/1")]
        program = [sys.executable, "-c", AT_WORK]
        done = subprocess.run(program, env={"HOME": str(tmp_path)}, stdout=subprocess.PIPE, timeout=60)
        assert done.stdout == b"live 1\n"


def test_a_look_at_an_attempt_whose_lock_is_deleted_meanwhile_is_one_at_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os.path, "exists", lambda path: True)
    assert main.ask(str(tmp_path)) == 0
    assert capsys.readouterr().out == '{"state": "absent"}\n'
