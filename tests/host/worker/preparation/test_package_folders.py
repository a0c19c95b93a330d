"""Folders of packages are shared by runs, survive kills, and only the last few stay.

Which files of old runs are deleted from a host.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.host.worker.preparation.conftest import release
from tests.paths import ROOT
from tpuctl.host.worker.control import hold
from tpuctl.host.worker.preparation import packages, steps
from tpuctl.host.worker.preparation.packages import obtain, remove_unused
from tpuctl.host.worker.records import SCRIPT_LOCK_FILE, identity


def complete(root: Path, key: str) -> str:
    return obtain(str(root), key, os.mkdir, lambda: None)


def folders(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir())


def test_the_last_few_stay(tmp_path: Path) -> None:
    for number in range(8):
        os.utime(complete(tmp_path, f"k{number}"), (number, number))
        release()
    remove_unused(str(tmp_path))
    assert folders(tmp_path) == ["k4", "k5", "k6", "k7"]


def test_one_that_a_run_uses_stays_however_old_it_is(tmp_path: Path) -> None:
    used = complete(tmp_path, "used")
    held = [*packages._held]
    packages._held.clear()
    for number in range(8):
        complete(tmp_path, f"k{number}")
        release()
        os.utime(used, (1, 1))
    assert "used" in folders(tmp_path)
    held[0].close()
    remove_unused(str(tmp_path))
    assert "used" not in folders(tmp_path)


def test_what_a_killed_installation_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom tpuctl.host.worker.preparation.packages import obtain\n"
        "def build(folder):\n    os.mkdir(folder)\n    os.kill(os.getpid(), 9)\n"
        "obtain(sys.argv[1], sys.argv[2], build, print)"
    )
    for key in ("same", "other"):
        process = subprocess.run([sys.executable, "-c", code, str(tmp_path), key], cwd=ROOT, check=False)
        assert process.returncode == -9
    assert len(folders(tmp_path)) == 2
    complete(tmp_path, "same")
    assert folders(tmp_path) == ["same"]


def test_an_error_of_the_installation_is_raised_and_leaves_no_folder(tmp_path: Path) -> None:
    def build(folder: str) -> None:
        os.mkdir(folder)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        obtain(str(tmp_path), "k", build, print)
    assert folders(tmp_path) == []


def test_a_folder_is_built_once_and_its_later_uses_are_told(tmp_path: Path) -> None:
    said: list[str] = []
    root, built = tmp_path / "shared" / "packages", []

    def build(folder: str) -> None:
        built.append(folder)
        os.mkdir(folder)

    first = obtain(str(root), "k", build, lambda: said.append("reused"))
    assert (first, said) == (str(root / "k"), [])
    release()
    os.utime(first, (1, 1))
    assert obtain(str(root), "k", build, lambda: said.append("reused")) == first
    assert said == ["reused"]
    assert len(built) == 1
    assert os.stat(first).st_mtime > 1, "it is the last used"
    assert root.stat().st_mode & 0o777 == 0o700, "requirements may be private"


def test_who_builds_is_alone_and_has_the_place_of_what_was_left_unfinished(tmp_path: Path) -> None:
    (tmp_path / "k.new-left").mkdir()
    (tmp_path / "other.new-left").mkdir()
    seen: list[list[str]] = []

    def build(folder: str) -> None:
        seen.append(folders(tmp_path))
        with open(tmp_path / "k.lock", "rb") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.mkdir(folder)

    folder = obtain(str(tmp_path), "k", build, print)
    ((own, other),) = seen
    assert own.startswith("k.new-")
    assert (own != "k.new-left", other) == (True, "other.new-left")
    assert folders(tmp_path) == ["k"]
    with open(f"{folder}.lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # others may use it, too
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


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
