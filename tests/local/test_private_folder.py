"""Private folders and files are private from their first moment, and nobody else chooses where they are."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuctl.local.private_folder import create_private_file, make_missing_folders, make_private_folder


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """The umask of a careless login: it takes no right away."""
    earlier = os.umask(0)
    yield
    os.umask(earlier)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_and_files_are_private_under_any_umask(tmp_path: Path) -> None:
    create_private_file(tmp_path / "a/b/c/file", b"text")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3
    assert mode(tmp_path / "a/b/c/file") == 0o600
    assert (tmp_path / "a/b/c/file").read_bytes() == b"text"


def test_an_existing_folder_becomes_private_and_its_parent_stays(tmp_path: Path) -> None:
    (tmp_path / "state/crashes").mkdir(parents=True, mode=0o777)
    create_private_file(tmp_path / "state/crashes/file", b"")
    assert (mode(tmp_path / "state"), mode(tmp_path / "state/crashes")) == (0o777, 0o700)


@pytest.mark.parametrize("target", ["elsewhere", "missing"])
def test_a_planted_link_to_a_folder_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "crashes").symlink_to(tmp_path / target)
    with pytest.raises(OSError, match="crashes"):
        create_private_file(tmp_path / "crashes" / "file", b"text")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert mode(tmp_path / "elsewhere") == 0o755
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("kind", ["link", "file", "fifo"])
def test_nothing_that_has_the_name_is_written_to(tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    path = tmp_path / "crashes" / "file"
    make_private_folder(path.parent)
    plant = {"link": lambda: path.symlink_to(victim), "file": lambda: path.write_bytes(b"planted"),
             "fifo": lambda: os.mkfifo(path)}  # fmt: skip
    plant[kind]()
    with pytest.raises(FileExistsError):
        create_private_file(path, b"text")
    assert victim.read_bytes() == b"mine"


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "crashes").write_bytes(b"")
    with pytest.raises(FileExistsError):
        make_private_folder(tmp_path / "crashes")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "crashes").mkdir(mode=0o777)
    os.chown(tmp_path / "crashes", 65534, 65534)
    with pytest.raises(PermissionError, match="belongs to another user"):
        create_private_file(tmp_path / "crashes" / "file", b"text")
    assert list((tmp_path / "crashes").iterdir()) == []


def test_missing_folders_are_private_and_others_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    make_missing_folders(tmp_path / "state/a/b")
    make_missing_folders(tmp_path / "state")
    assert [mode(tmp_path / name) for name in ("state", "state/a", "state/a/b")] == [0o755, 0o700, 0o700]


def test_a_link_to_a_folder_counts_as_one_and_a_file_does_not(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    make_missing_folders(tmp_path / "link")
    make_missing_folders(tmp_path / "link/a")
    assert mode(tmp_path / "elsewhere/a") == 0o700
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        make_missing_folders(tmp_path / "file")
