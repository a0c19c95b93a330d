"""Files are written completely or not at all, and leave nothing else behind."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tpuctl import atomic_files
from tpuctl.atomic_files import PRIVATE, create_file, part_file, replace_file, swap_file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def failing() -> Iterator[bytes]:
    yield b"half"
    raise KeyboardInterrupt


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, [b"one", b"two"])
    replace_file(path, [b"three"], fsync=True)
    assert path.read_bytes() == b"three"
    assert names(tmp_path) == {"file"}


@pytest.mark.parametrize("earlier", [None, b"earlier"])
def test_a_failure_leaves_what_was_there(tmp_path: Path, earlier: bytes | None) -> None:
    path = tmp_path / "file"
    if earlier is not None:
        path.write_bytes(earlier)
    with pytest.raises(KeyboardInterrupt):
        replace_file(path, failing())
    assert names(tmp_path) == (set() if earlier is None else {"file"})
    assert earlier is None or path.read_bytes() == earlier


def test_readers_see_the_earlier_content_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"earlier")
    with part_file(path) as part:
        part.write_bytes(b"later")
        assert path.read_bytes() == b"earlier"
    assert path.read_bytes() == b"later"


def test_a_file_is_swapped_while_another_thread_does_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a name of the process's for both, one took the other's away."""
    path, write = tmp_path / "file", atomic_files._write

    def be_second(*arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(atomic_files, "_write", write)
        write(*arguments, **options)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(swap_file, path, b"another thread's", mode=PRIVATE).result()

    monkeypatch.setattr(atomic_files, "_write", be_second)
    swap_file(path, b"this one's", mode=0o640)
    assert (path.read_bytes(), mode(path)) == (b"this one's", 0o640)
    assert names(tmp_path) == {"file"}


def test_a_swap_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "file"
    path.write_bytes(b"earlier")
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        swap_file(path, b"later", mode=PRIVATE)
    assert path.read_bytes() == b"earlier"
    assert names(tmp_path) == {"file"}


def test_a_block_that_writes_nothing_fails(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), part_file(tmp_path / "file"):
        pass
    assert names(tmp_path) == set()


def test_a_private_file_is_private_before_its_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"readable by all")
    path.chmod(0o644)
    (tmp_path / "file.part").write_bytes(b"left by a process that was killed")
    (tmp_path / "file.part").chmod(0o644)
    modes = []

    def chunks() -> Iterator[bytes]:
        modes.append(mode(tmp_path / "file.part"))
        yield b"secret"

    replace_file(path, chunks(), mode=PRIVATE)
    assert modes == [PRIVATE]
    assert (mode(path), path.read_bytes()) == (PRIVATE, b"secret")


def test_a_file_is_created_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert create_file(path, b"first", mode=PRIVATE) is True
    assert create_file(path, b"second") is False
    assert (mode(path), path.read_bytes()) == (PRIVATE, b"first")
    assert names(tmp_path) == {"file"}


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "folder" / "file", [b""])
    with pytest.raises(FileNotFoundError):
        create_file(tmp_path / "folder" / "file", b"")


def test_what_shall_survive_a_power_cut_is_on_the_disk_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    noted = {"fsync": lambda descriptor: synced.append(os.fstat(descriptor).st_size)}
    monkeypatch.setattr(atomic_files, "os", SimpleNamespace(**{**vars(os), **noted}))
    replace_file(tmp_path / "a", [b"12", b"345"])
    swap_file(tmp_path / "b", b"12345", mode=PRIVATE)
    assert synced == []
    replace_file(tmp_path / "a", [b"12", b"345"], fsync=True)
    assert create_file(tmp_path / "c", b"123")
    assert synced == [5, 3]


def test_what_a_killed_writer_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"of a process that is gone")
    replace_file(tmp_path / "file", [b"new"], mode=PRIVATE)
    assert ((tmp_path / "file").read_bytes(), mode(tmp_path / "file")) == (b"new", PRIVATE)
    assert names(tmp_path) == {"file"}
