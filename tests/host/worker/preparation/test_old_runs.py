"""Which files of old runs are deleted from a host."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from pathlib import Path

import pytest

from tpuctl.host.worker.control import hold
from tpuctl.host.worker.preparation import steps
from tpuctl.host.worker.records import SCRIPT_LOCK_FILE, identity

HOUR, DAY = 3600.0, 86400.0


def attempt(runs: Path, name: str, age: float, *, is_started: bool = True) -> Path:
    """Make the folder of an attempt that ended `age` seconds ago."""
    folder = runs / name
    (folder / "code/pkg").mkdir(parents=True)
    files = ["code/pkg/x.py", "log", "worker.zip"]
    if is_started:
        files += ["lock", "started", "last_status.json", "supervisor.log"]
    for file in files:
        (folder / file).write_text("x")
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (time.time() - age,) * 2)
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


RECORDS = {"lock", "started", "last_status.json", "supervisor.log"}


def test_the_newest_few_stay_whole_and_of_the_others_the_records(tmp_path: Path) -> None:
    folders = [attempt(tmp_path, f"r{number}/1", (number + 2) * HOUR) for number in range(7)]
    own = attempt(tmp_path, "own/1", 0)
    steps.remove(str(own))
    assert [names(folder) == RECORDS for folder in folders] == [False] * 4 + [True] * 3
    assert "code" in names(own)


def test_what_has_just_ended_stays_whole(tmp_path: Path) -> None:
    folders = [attempt(tmp_path, f"r{number}/1", number) for number in range(9)]
    steps.remove(str(attempt(tmp_path, "own/1", 0)))
    assert all("code" in names(folder) for folder in folders)


def test_nothing_stays_of_what_is_very_old(tmp_path: Path) -> None:
    folders = [attempt(tmp_path, f"r{number}/1", (31 + number) * DAY) for number in range(6)]
    steps.remove(str(attempt(tmp_path, "own/1", 0)))
    assert [folder.parent.exists() for folder in folders] == [True] * 4 + [False] * 2


def test_an_attempt_whose_supervisor_lives_stays_however_old(tmp_path: Path) -> None:
    folders = [attempt(tmp_path, f"r{number}/1", (40 + number) * DAY) for number in range(6)]
    with (folders[-1] / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        steps.remove(str(attempt(tmp_path, "own/1", 0)))
        assert "code" in names(folders[-1])
        assert not folders[-2].exists()


def test_an_attempt_whose_script_lives_stays_though_its_supervisor_was_killed(tmp_path: Path) -> None:
    folders = [attempt(tmp_path, f"r{number}/1", (40 + number) * DAY) for number in range(6)]
    lock = hold(str(folders[-1] / SCRIPT_LOCK_FILE))
    os.utime(folders[-1], (time.time() - 45 * DAY,) * 2)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[lock]) as script:
        os.close(lock)
        steps.remove(str(attempt(tmp_path, "own/1", 0)))
        assert "code" in names(folders[-1])
        assert not folders[-2].exists()
        assert script.stdin
        script.stdin.close()
        script.wait()
        steps.remove(str(tmp_path / "own/1"))
        assert not folders[-1].exists()


@pytest.mark.parametrize("is_started", [True, False])
def test_one_that_is_launched_again_before_its_turn_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_started: bool
) -> None:
    """Its name is used again: its age was known before its lock was held."""
    folders = [attempt(tmp_path, f"r{number}/1", (40 + number) * DAY) for number in range(5)]
    again = attempt(tmp_path, "again/1", 50 * DAY, is_started=is_started)
    remove = steps._remove

    def launch_and_remove(folder: str) -> None:
        if folder == str(again):
            (again / "spec.json").touch()
        remove(folder)

    monkeypatch.setattr(steps, "_remove", launch_and_remove)
    steps.remove(str(attempt(tmp_path, "own/1", 0)))
    assert "code" in names(again)
    assert not folders[-1].exists()


def test_its_own_attempt_stays_and_an_earlier_one_of_the_run_counts_like_any_other(tmp_path: Path) -> None:
    for number in range(6):
        attempt(tmp_path, f"r{number}/1", 2 * HOUR)
    earlier, own = attempt(tmp_path, "own/1", 9 * HOUR), attempt(tmp_path, "own/2", 99 * HOUR)
    steps.remove(str(own))
    assert names(earlier) == RECORDS
    assert "code" in names(own)


def test_what_never_started_goes_too(tmp_path: Path) -> None:
    for number in range(6):
        attempt(tmp_path, f"r{number}/1", 2 * HOUR)
    folder = attempt(tmp_path, "half/1", 3 * HOUR, is_started=False)
    steps.remove(str(attempt(tmp_path, "own/1", 0)))
    assert not folder.exists()


@pytest.mark.parametrize("place", ["mine", "r0/2"])
def test_no_link_is_followed(tmp_path: Path, place: str) -> None:
    elsewhere = attempt(tmp_path, "elsewhere/x/1", 40 * DAY).parent
    for number in range(6):
        attempt(tmp_path / "runs", f"r{number}/1", 2 * HOUR)
    (tmp_path / "runs" / place).symlink_to(elsewhere if place == "mine" else elsewhere / "1")
    steps.remove(str(attempt(tmp_path / "runs", "own/1", 0)))
    assert "code" in names(elsewhere / "1")


@pytest.mark.parametrize("name", ["", *sorted(RECORDS)])
def test_an_attempt_was_used_when_its_folder_or_a_record_was_written(tmp_path: Path, name: str) -> None:
    for number in range(6):
        attempt(tmp_path, f"r{number}/1", 2 * HOUR)
    folder = attempt(tmp_path, "used/1", 40 * DAY)
    os.utime(folder / name)
    steps.remove(str(attempt(tmp_path, "own/1", 0)))
    assert "code" in names(folder)


def test_a_link_in_an_attempt_goes_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    for number in range(6):
        attempt(tmp_path / "runs", f"r{number}/1", 2 * HOUR)
    (tmp_path / "mine").mkdir()
    folder = attempt(tmp_path / "runs", "old/1", 3 * HOUR)
    (folder / "data").symlink_to(tmp_path / "mine")
    os.utime(folder, (time.time() - 3 * HOUR,) * 2)
    steps.remove(str(attempt(tmp_path / "runs", "own/1", 0)))
    assert names(folder) == RECORDS
    assert (tmp_path / "mine").exists()


class TestRoom:
    """An attempt of a removed run of the same name makes room for the next."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        folder = attempt(tmp_path, "r/1", DAY)
        (folder / "started").write_text(f"7 {identity('old')}")
        return folder

    def test_only_the_program_and_the_lock_stay(self, folder: Path) -> None:
        lock = steps.make_room(str(folder), "new")
        assert lock
        with lock:
            assert names(folder) == {"lock", "worker.zip"}
            assert time.time() - os.fstat(lock.fileno()).st_mtime < HOUR, "it says when it was started"

    @pytest.mark.parametrize("content", [b"7", b"7 \xff", None], ids=["no key", "no text", "no file"])
    def test_one_that_cannot_be_told_stays_whole(self, folder: Path, content: bytes | None) -> None:
        (folder / "started").unlink()
        if content is None:
            (folder / "started").mkdir()
        else:
            (folder / "started").write_bytes(content)
        before = names(folder)
        assert steps.make_room(str(folder), "new") is None
        assert names(folder) == before

    def test_one_that_another_launch_holds_stays_whole(self, folder: Path) -> None:
        before = names(folder)
        with (folder / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert steps.make_room(str(folder), "new") is None
        assert names(folder) == before
