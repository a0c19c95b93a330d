"""Archives of others: what is wanted comes out, and nothing else can happen."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from tests.hostile.names import NAMES
from tpuctl.data.public import copied, unpacked
from tpuctl.errors import UsageError

WANTED = {"Pets/Cat/": "cat/", "Pets/Dog/": "dog/"}


def zipped(path: Path, files: dict[str, bytes], *, mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return path


def tarred(
    path: Path, files: dict[str, bytes], kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644
) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname, info.mode = len(data), kind, link, mode
            archive.addfile(info, io.BytesIO(data))
    return path


def below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_the_wanted_members_are_put_where_they_belong(tmp_path: Path, folder: Path, pack) -> None:
    files = {"Pets/Cat/1.jpg": b"cat", "./Pets/Dog/a/2.jpg": b"dog", "Pets/readme.txt": b"", "Other/3": b""}
    file = pack(tmp_path / "archive", {**files, "Pets/Cat/Thumbs.db": b"litter"})
    unpacked(WANTED)([file], folder)
    assert below(folder) == {"cat/1.jpg": b"cat", "dog/a/2.jpg": b"dog"}


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize(
    "name", ["../evil", "/evil", "Pets/Cat/../../../evil", "Pets/Cat/..\\..\\evil", "C:/evil"]
)
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, folder: Path, pack, name: str) -> None:
    with pytest.raises(UsageError, match="leads out of the folder: nothing was unpacked"):
        unpacked(WANTED)([pack(tmp_path / "archive", {name: b"x"})], folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "out"]
    assert below(folder) == {}


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize(
    "name", [".git/config", "a/.GIT/config", "a\n.jpg", "tpuctl.toml", "HEAD", "x" * 300]
)
def test_a_name_that_is_not_safe_on_a_disk_is_refused(tmp_path: Path, folder: Path, pack, name: str) -> None:
    with pytest.raises(UsageError, match="nothing was unpacked"):
        unpacked(WANTED)([pack(tmp_path / "archive", {f"Pets/Cat/{name}": b""})], folder)
    assert below(folder) == {}


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_no_name_of_the_corpus_leads_out_of_the_folder(tmp_path: Path, folder: Path, pack, name: str) -> None:
    """A member is below the folder under its own name, or nothing is."""
    for member in (name, f"Pets/Cat/{name}"):
        file = pack(tmp_path / "archive", {member: b"x"})
        try:
            unpacked({"Pets/Cat/": "cat/"})([file], folder)
        except UsageError:
            pass
        assert {path.name for path in tmp_path.iterdir()} == {"archive", "out"}
        assert set(below(folder)) <= {PurePosixPath(f"cat/{name}").as_posix()}
    assert not list(Path("/tmp").glob("escaped*")), "where an absolute name leads"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, folder: Path, kind: bytes) -> None:
    file = tarred(tmp_path / "archive", {"Pets/Cat/1.jpg": b""}, kind, link="/etc/passwd")
    with pytest.raises(UsageError, match="is a link or a device"):
        unpacked(WANTED)([file], folder)
    assert below(folder) == {}


def test_a_link_in_a_zip_is_refused(tmp_path: Path, folder: Path) -> None:
    file = zipped(tmp_path / "archive", {"Pets/Cat/1.jpg": b"/etc/passwd"}, mode=stat.S_IFLNK | 0o777)
    with pytest.raises(UsageError, match="is a link or a device"):
        unpacked(WANTED)([file], folder)


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_no_file_is_executable(tmp_path: Path, folder: Path, pack) -> None:
    file = pack(tmp_path / "archive", {"Pets/Cat/1.jpg": b"#!/bin/sh"}, mode=stat.S_IFREG | 0o777)
    unpacked(WANTED)([file], folder)
    file.chmod(0o777)
    copied([file], folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert (len(files), [path for path in files if path.stat().st_mode & 0o111]) == (2, [])


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_damaged_archive_and_another_one_are_named(tmp_path: Path, folder: Path, pack) -> None:
    data = pack(
        tmp_path / "archive", {f"Pets/Cat/{n}.jpg": bytes(range(256)) * n for n in range(99)}
    ).read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    with pytest.raises(UsageError, match="'cut' is damaged"):
        unpacked(WANTED)([tmp_path / "cut"], folder)
    with pytest.raises(UsageError, match="'other' does not hold Pets/Cat/, Pets/Dog/"):
        unpacked(WANTED)([pack(tmp_path / "other", {"a": b""})], folder)


def test_files_can_be_taken_as_they_are(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"a")
    copied([tmp_path / "a.npz"], folder)
    assert below(folder) == {"a.npz": b"a"}


class TestBombs:
    @pytest.mark.parametrize("pack", [zipped, tarred])
    def test_an_archive_that_unpacks_to_too_much_is_refused(self, tmp_path: Path, folder: Path, pack) -> None:
        file = pack(tmp_path / "archive", {f"Pets/Cat/{n}.jpg": bytes(20 << 20) for n in range(4)})
        if pack is zipped:  # the helper stores: pack it again
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for number in range(4):
                    archive.writestr(f"Pets/Cat/{number}.jpg", bytes(20 << 20))
        with pytest.raises(UsageError, match="unpacks to more than 100 times its size"):
            unpacked(WANTED)([file], folder)

    @pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
    def test_a_header_that_would_fill_the_memory_is_damage(
        self, tmp_path: Path, folder: Path, kind: bytes
    ) -> None:
        info = tarfile.TarInfo("long")
        info.type, info.size = kind, 1 << 32
        (tmp_path / "archive").write_bytes(info.tobuf() + bytes(1 << 20))
        with pytest.raises(UsageError, match="an extended header of 4294967296 bytes"):
            unpacked(WANTED)([tmp_path / "archive"], folder)

    def test_a_long_name_is_no_attack(self, tmp_path: Path, folder: Path) -> None:
        name = "/".join(["Pets/Cat", *["long" * 20] * 4, "1.jpg"])
        unpacked(WANTED)([tarred(tmp_path / "archive", {name: b"cat"})], folder)
        assert list(below(folder).values()) == [b"cat"]
