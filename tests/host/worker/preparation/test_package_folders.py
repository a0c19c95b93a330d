"""Folders of packages are shared by runs, survive kills, and only the last few stay."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host.worker.preparation.conftest import release
from tests.paths import ROOT
from tpuctl.host.worker.preparation import packages
from tpuctl.host.worker.preparation.packages import obtain, remove_unused


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
