"""What an archive holds: which members are files, which are left out, and which cannot be read.

Ranges of what lies in an archive end where the member ends, wherever its bytes are.
"""

from __future__ import annotations

import io
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable

import pytest

from tpuctl.data.archives import members as module
from tpuctl.data.archives import tree
from tpuctl.data.archives.members import Member, Members
from tpuctl.data.archives.tree import (
    HeldRanges,
    PartRanges,
    TempRanges,
    content_begins,
    held,
    tar_members,
    unpacked,
    zip_members,
)
from tpuctl.data.files.temp_files import TempFile
from tpuctl.data.trees.tree import Entry
from tpuctl.errors import UsageError

MIB = 1 << 20
OUT = "has a name that leads out of the archive"
NO_NAME = "has a name that no file can have"


def held_members(*items: str | Member) -> Members:
    """Return members of which most have a name alone."""
    found = Members("a.zip")
    for item in items:
        found.add(Member(item, 3, 10, 3) if isinstance(item, str) else item)
    return found.finish()


def test_files_are_in_their_folders_by_name() -> None:
    found = held_members("b", "x/z/2", "./x/a", Member("x/z/1", 4, 20, 2, 8, 77))
    assert len(found) == 4
    assert found.find("x/z/1") == Member("x/z/1", 4, 20, 2, 8, 77)
    assert found.find("x/a") == Member("x/a", 3, 10, 3, 0, -1)
    assert (found.find("x"), found.find("x/b"), found.find("")) == (None, None, None)
    assert found.scan("", 9) == [Entry("b", "file", 3, 9), Entry("x", "folder")]
    assert found.scan("x", 9) == [Entry("a", "file", 3, 9), Entry("z", "folder")]
    assert found.scan("x/z", 9) == [Entry("1", "file", 4, 9), Entry("2", "file", 3, 9)]
    assert [found.look(path, 9) for path in ("x", "b", "y")] == [
        Entry("x", "folder"), Entry("b", "file", 3, 9), None,
    ]  # fmt: skip
    for absent in ("y", "b"):
        with pytest.raises(FileNotFoundError) as missing:
            found.scan(absent, 9)
        assert (missing.value.errno, missing.value.filename) == (2, absent)


def test_an_empty_archive_has_an_empty_root() -> None:
    assert (len(held_members()), held_members().scan("", 1)) == (0, [])


@pytest.mark.parametrize("path", [".a", "x/.a", ".x/a", "__MACOSX/a", "x/__MACOSX", "./.a", "x/..a", "..."])
def test_hidden_files_and_litter_are_left_out(path: str) -> None:
    assert held_members(path, "kept").scan("", 1) == [Entry("kept", "file", 3, 1)]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", OUT), ("/a", OUT), ("a\\b", OUT), ("../a", OUT), ("a/../b", OUT), ("a/..", OUT), ("C:a", OUT),
        ("z:/a", OUT), ("a//b", NO_NAME), ("a/", NO_NAME), ("a\nb", NO_NAME), ("a\tb", NO_NAME),
        ("a\x1f", NO_NAME), ("a\x7f", NO_NAME), ("a\x80", NO_NAME), ("a\x9f", NO_NAME), ("\ud800", NO_NAME),
        ("a\x00", NO_NAME), (chr(0xDFFF), NO_NAME), ("x" * 4097, NO_NAME), ("a/" * 100 + "a", NO_NAME),
        ("a b", ""), ("a\xa0b", ""), ("a\u202fb", ""), ("1:a", ""), ("ab:c", ""), ("x/C:a", ""),
        ("x" * 4096, ""), ("a/" * 99 + "a", ""), ("\ud7ff\ue000", ""), ("a../b", ""),
    ],
)  # fmt: skip
def test_a_name_is_one_that_a_file_can_have(path: str, why: str) -> None:
    found = held_members(path)
    assert len(found) == (not why)
    if why:
        assert found.scan("", 1) == [Entry(path, "other", problem=why)]
        assert found.find(path) is None
    else:
        assert found.find(path) == Member(path, 3, 10, 3)


def test_what_has_no_usable_name_is_in_the_root_alone() -> None:
    found = held_members("x/a", "../b", "/c")
    assert [entry.name for entry in found.scan("", 1)] == ["x", "../b", "/c"]
    assert [entry.name for entry in found.scan("x", 1)] == ["a"]
    assert held_members("./").scan("", 1) == [Entry("", "other", problem=OUT)]


def test_a_size_is_one_that_a_file_can_have() -> None:
    assert held_members(Member("a", (1 << 63) - 1, 0, (1 << 63) - 1)).find("a")
    (entry,) = held_members(Member("a", 1 << 63, 0, 1)).scan("", 1)
    assert entry == Entry("a", "other", problem="has a size that no file can have")


@pytest.mark.parametrize(
    ("size", "packed", "times"),
    [
        (64 * MIB, 1, 0),
        (64 * MIB + 1, 1, 64 * MIB + 1),
        (64 * MIB + 1, 0, 64 * MIB + 1),
        (250 * MIB, MIB, 0),
        (250 * MIB + 1, MIB, 250),
        (251 * MIB, MIB, 251),
    ],
)
def test_a_bomb_is_told_by_what_it_unpacks_to(size: int, packed: int, times: int) -> None:
    (entry,) = held_members(Member("a", size, 0, packed, 8)).scan("", 1)
    problem = f"unpacks to {times} times its size" if times else ""
    assert (entry.kind, entry.problem) == (("other", problem) if times else ("file", ""))


def test_a_member_has_its_own_problem_before_others() -> None:
    bomb = Member("a", 65 * MIB, 0, 1, problem="is encrypted")
    assert held_members(bomb).look("a", 1) == Entry("a", "other", problem="is encrypted")
    found = held_members(bomb).find("a")
    assert found is not None
    assert found.problem == "is encrypted"


def test_what_is_twice_is_read_at_neither_place() -> None:
    found = held_members("a", "b", "a", "a", "c/d", "./c/d")
    assert len(found) == 3
    twice = "is twice in the archive"
    assert found.scan("", 1) == [
        Entry("a", "other", problem=twice),
        Entry("b", "file", 3, 1),
        Entry("c", "folder"),
    ]
    assert found.scan("c", 1) == [Entry("d", "other", problem=twice)]


@pytest.mark.parametrize("paths", [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a")])
def test_a_file_that_is_a_folder_too_is_none(paths: Iterable[str]) -> None:
    found = held_members(*paths)
    assert found.look("a", 1) == Entry("a", "other", problem="is a file and a folder at once")


def test_an_archive_has_up_to_a_number_of_members(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.MOST == 4_000_000
    monkeypatch.setattr(module, "MOST", 3)
    assert len(held_members("a", ".hidden", "b", "c")) == 3
    assert len(held_members("a", "../b", "c")) == 2
    for last in ("d", "../d"):
        with pytest.raises(UsageError) as refused:
            held_members("a", "../b", "c", last)
        assert refused.value.message == "'a.zip' has more than 3 members."
        assert refused.value.facts == {"file": "a.zip"}


def zipped(*infos: zipfile.ZipInfo | str, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for info in infos:
            archive.writestr(info, b"content " * 9)
    return stream.getvalue()


def of_zip(data: bytes) -> Members:
    return zip_members(io.BytesIO(data), len(data), "a.zip")


def zip_problem(data: bytes) -> str:
    (entry,) = of_zip(data).scan("", 1)
    return entry.problem


def of_mode(mode: int) -> zipfile.ZipInfo:
    """Return a member of a Unix mode."""
    info = zipfile.ZipInfo("a")
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_member_of_a_zip_archive_is_where_its_directory_says(method: int) -> None:
    data = zipped("first", "x/", "x/second", method=method)
    member = of_zip(data).find("x/second")
    assert member is not None
    assert (member.size, member.method, member.crc) == (72, method, zlib.crc32(b"content " * 9))
    begin = member.begin + content_begins(data[member.begin :][:30])
    packed = data[begin : begin + member.packed]
    assert unpacked(packed, method, 72) == b"content " * 9
    assert unpacked(packed, method, 5) == b"conte"
    assert unpacked(packed, method, 0) == b""
    assert len(of_zip(data)) == 2


def test_the_content_begins_behind_the_name_and_what_follows_it() -> None:
    header = b"PK\3\4" + bytes(22) + struct.pack("<HH", 260, 513)
    assert content_begins(header) == 30 + 260 + 513
    for bad in (header[:29], b"PK\3\5" + header[4:], b""):
        with pytest.raises(ValueError, match=r"^there is no member where the directory says$"):
            content_begins(bad)


@pytest.mark.parametrize("method", [8, 12])
def test_damaged_content_is_an_error(method: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpacked(b"nothing packed" * 9, method, 10)


@pytest.mark.parametrize("mode", [0, 0o644, 0o100644, 0o100755])
def test_a_file_of_a_zip_archive_is_one_by_its_mode(mode: int) -> None:
    assert zip_problem(zipped(of_mode(mode))) == ""


@pytest.mark.parametrize("mode", [0o120777, 0o020644, 0o060644, 0o010644, 0o140644])
def test_links_and_devices_of_a_zip_archive_are_not_followed(mode: int) -> None:
    assert zip_problem(zipped(of_mode(mode))) == "is a link or a device, which is not followed in an archive"


def with_directory(data: bytes, place: int, form: str, value: int) -> bytes:
    """Return a zip archive with another field in the first entry of its directory."""
    changed = bytearray(data)
    struct.pack_into(form, changed, data.index(b"PK\1\2") + place, value)
    return bytes(changed)


def test_other_members_of_a_zip_archive_are_told() -> None:
    whole = zipped("a")
    assert zip_problem(with_directory(whole, 8, "<H", 1)) == "is encrypted"
    assert zip_problem(with_directory(whole, 8, "<H", 2)) == ""
    assert (
        zip_problem(with_directory(whole, 10, "<H", 14)) == "is compressed by a method that is not read, 14"
    )
    stored = zipped("a", method=zipfile.ZIP_STORED)
    assert zip_problem(stored) == ""
    assert zip_problem(with_directory(stored, 24, "<I", 73)) == "has two sizes"
    assert zip_problem(with_directory(whole, 24, "<I", 73)) == ""


def test_members_of_a_zip_archive_lie_apart_and_before_its_end() -> None:
    data = zipped("a", "b", method=zipfile.ZIP_STORED)
    assert len(of_zip(data)) == 2
    first = with_directory(with_directory(data, 20, "<I", 73), 24, "<I", 73)
    assert len(of_zip(first)) == 2, "the name of a member is behind its header"
    second = with_directory(with_directory(data, 20, "<I", 74), 24, "<I", 74)
    overlap = (
        r"^'a\.zip' is a damaged archive, or none: its members lie over each other, or behind its end\.$"
    )
    with pytest.raises(UsageError, match=overlap):
        of_zip(second)
    single = zipped("a", method=zipfile.ZIP_STORED)
    most = len(single) - 30
    assert len(of_zip(with_directory(single, 20, "<I", most))) == 1
    with pytest.raises(UsageError, match=overlap):
        of_zip(with_directory(single, 20, "<I", most + 1))


def test_what_is_no_zip_archive_is_named() -> None:
    with pytest.raises(UsageError) as refused:
        of_zip(b"nothing packed")
    assert refused.value.message == "'a.zip' is a damaged archive, or none: File is not a zip file."
    assert (refused.value.hint, refused.value.facts) == ("Copy it again.", {"file": "a.zip"})


def tarred(*infos: tarfile.TarInfo, form: int = tarfile.PAX_FORMAT) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:", format=form) as archive:
        for info in infos:
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    return stream.getvalue()


def info(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.size, made.linkname = kind, size, "target" * (kind in (b"1", b"2"))
    return made


def of_tar(data: bytes) -> Members:
    return tar_members(io.BytesIO(data), len(data), "a.tar")


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_member_of_a_tar_archive_is_where_its_header_says(form: int) -> None:
    folder = info("x", tarfile.DIRTYPE)
    found = of_tar(tarred(info("a", size=700), folder, info("x/b", size=5), form=form))
    assert found.find("a") == Member("a", 700, 512, 700)
    assert found.find("x/b") == Member("x/b", 5, 512 + 1024 + 512 + 512, 5)
    assert [entry.name for entry in found.scan("", 1)] == ["a", "x"]


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (tarfile.REGTYPE, ""),
        (tarfile.AREGTYPE, ""),
        (tarfile.CONTTYPE, ""),
        (tarfile.SYMTYPE, "is a link, which is not followed in an archive"),
        (tarfile.LNKTYPE, "is a link, which is not followed in an archive"),
        (tarfile.CHRTYPE, "is a device"),
        (tarfile.BLKTYPE, "is a device"),
        (tarfile.FIFOTYPE, "is a device"),
    ],
)
def test_other_members_of_a_tar_archive_are_told(kind: bytes, problem: str) -> None:
    (entry,) = of_tar(tarred(info("a", kind))).scan("", 1)
    assert (entry.kind, entry.problem) == ("other" if problem else "file", problem)


def with_extended(size: int) -> bytes:
    """Return a tar archive whose first header says that an extended one of so many bytes follows."""
    return info("x", tarfile.XHDTYPE, size).tobuf(tarfile.USTAR_FORMAT)


def test_an_extended_header_has_up_to_a_mebibyte() -> None:
    text = "1048576 comment=".ljust(MIB - 1, "x") + "\n"
    assert len(of_tar(with_extended(MIB) + text.encode() + tarred(info("a")))) == 1
    with pytest.raises(UsageError, match=r": it has an extended header of 1048577 bytes\.$"):
        of_tar(with_extended(MIB + 1) + bytes(MIB + 512) + tarred(info("a")))


def test_zeros_may_follow_a_tar_archive_up_to_a_mebibyte() -> None:
    whole = tarred(info("a"))
    assert len(of_tar(whole[:512])) == 1, "without an end"
    assert len(of_tar(whole[:512] + bytes(MIB))) == 1
    with pytest.raises(UsageError, match=r": it ends at byte \d+, and \d+ bytes follow\.$"):
        of_tar(whole[:512] + bytes(2 * MIB))


def test_a_damaged_header_is_named_with_its_place() -> None:
    data = bytearray(tarred(info("a", size=5), info("b")))
    data[1024 + 5] ^= 1
    with pytest.raises(UsageError, match=r"^'a\.tar' is a damaged archive, or none: .*1024\.$"):
        of_tar(bytes(data))


CONTENT = b"0123456789"


class Whole(HeldRanges):
    """Notes that it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("at", "size", "expected"),
    [(0, 4, b"3456"), (1, 2, b"45"), (0, 5, b"3456"), (3, 9, b"6"), (4, 1, b""), (5, 3, b""), (0, 0, b"")],
)
def test_a_part_has_no_byte_of_what_is_beside_it(at: int, size: int, expected: bytes) -> None:
    whole = Whole(CONTENT)
    part = PartRanges(whole, 3, 4)
    assert part.read(at, size) == expected
    part.close()
    assert not whole.is_closed, "other members are read of it"


@pytest.mark.parametrize(("most", "kind"), [(10, HeldRanges), (9, TempRanges)])
def test_what_was_unpacked_is_in_memory_up_to_a_size(
    most: int, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "_MOST_HELD", most)
    unpacked = held(CONTENT)
    assert type(unpacked) is kind
    assert [unpacked.read(at, 4) for at in (0, 3, 8, 10)] == [b"0123", b"3456", b"89", b""]
    unpacked.close()


def test_the_place_of_what_was_unpacked_to_a_file_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[TempFile] = []

    def make() -> TempFile:
        made.append(TempFile())
        return made[-1]

    monkeypatch.setattr(tree, "_MOST_HELD", 0)
    monkeypatch.setattr(tree, "TempFile", make)
    held(CONTENT).close()
    with pytest.raises(ValueError, match="closed"):
        made[0].finish()


def test_a_file_that_cannot_be_written_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[TempFile] = []

    class Full(TempFile):
        def append(self, data: bytes) -> None:
            made.append(self)
            raise OSError(28, os.strerror(28))

    monkeypatch.setattr(tree, "_MOST_HELD", 0)
    monkeypatch.setattr(tree, "TempFile", Full)
    with pytest.raises(OSError, match="No space left"):
        held(CONTENT)
    with pytest.raises(ValueError, match="closed"):
        made[0].finish()
