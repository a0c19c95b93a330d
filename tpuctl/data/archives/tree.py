"""Reads the files in a tar or zip archive as a tree: a stored member is a range of the archive."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import os
import struct
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from tpuctl.data.archives.members import (
    BZIP2,
    DEFLATED,
    PACKED_TAR,
    STORED,
    ZIP,
    ZSTANDARD,
    Member,
    Members,
    damaged,
)
from tpuctl.data.files.temp_files import TempFile
from tpuctl.data.source import ScanProgress, changed, closed_on_error
from tpuctl.data.trees.objects import in_turn
from tpuctl.data.trees.tree import LARGEST, Entry, ListedFile, Ranges, RangeStream, Tree
from tpuctl.errors import ConfigError, UsageError
from tpuctl.host.worker.preparation.tar_files import BLOCK, FILE, FOLDER, LINK, SPARSE, TarError, TarReader

HEADER = 30
"""Bytes of a member's header before its name."""
_SIGNATURE = b"PK\x03\x04"
_DAMAGE = (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError, EOFError, OverflowError)
"""What zipfile raises for a directory that is damaged."""
_ENCRYPTED, _FILE_TYPES = 1, (0, 8)
"""Flag of a member; the kinds of a Unix mode that are files, or say nothing."""


def zip_members(stream: IO[bytes], size: int, name: str) -> Members:
    """Return the members of the archive in a stream of so many bytes; raises UsageError for damage."""
    members = Members(name)
    try:
        with zipfile.ZipFile(stream) as archive:
            infos = archive.infolist()
    except _DAMAGE as error:
        raise damaged(name, str(error).rstrip(".") or "it ends in the middle") from error
    _check_overlaps(infos, size, name)
    for info in infos:
        if not info.filename.endswith("/"):  # is_dir takes no empty name
            members.add(_member(info))
    return members.finish()


def content_begins(header: bytes) -> int:
    """Return how far after a member's header its content begins; raises ValueError where it is none."""
    if len(header) < HEADER or not header.startswith(_SIGNATURE):
        raise ValueError("there is no member where the directory says")
    name, extra = struct.unpack_from("<HH", header, 26)
    return HEADER + int(name) + int(extra)


def unpacked(data: bytes, method: int, most: int) -> bytes:
    """Return the first `most` bytes that a member's data unpacks to; raises ValueError for damage."""
    if not most:
        return b""  # zlib takes 0 for no limit
    try:
        if method == DEFLATED:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, most)
        if method == BZIP2:
            return bz2.BZ2Decompressor().decompress(data, most)
    except (zlib.error, OSError, EOFError) as error:
        raise ValueError(str(error)) from error
    return data[:most]


def _member(info: zipfile.ZipInfo) -> Member:
    return Member(
        info.filename,
        info.file_size,
        info.header_offset,
        info.compress_size,
        info.compress_type,
        info.CRC,
        _problem(info),
    )


def _problem(info: zipfile.ZipInfo) -> str:
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if info.external_attr >> 28 not in _FILE_TYPES:
        return "is a link or a device, which is not followed in an archive"
    if info.compress_type not in (STORED, DEFLATED, BZIP2):
        return f"is compressed by a method that is not read, {info.compress_type}"
    if info.compress_type == STORED and info.compress_size != info.file_size:
        return "has two sizes"
    return ""


def _check_overlaps(infos: list[zipfile.ZipInfo], size: int, name: str) -> None:
    """Raise UsageError where members share bytes, as those of a zip bomb do, or lie behind the end."""
    spans = sorted((info.header_offset, info.header_offset + HEADER + info.compress_size) for info in infos)
    if any(end > start for (_, end), (start, _) in pairwise(spans)) or (spans and spans[-1][1] > size):
        raise damaged(name, "its members lie over each other, or behind its end")


_MOST_HELD = 8 << 20
"""Bytes of a member that are held in memory."""


class PartRanges:
    """A part of other ranges, which stay open when this is closed."""

    def __init__(self, whole: Ranges, begin: int, size: int) -> None:
        self._whole = whole
        self._begin = begin
        self._size = size

    def read(self, at: int, size: int) -> bytes:
        """As `Ranges.read`."""
        return self._whole.read(self._begin + at, max(min(size, self._size - at), 0))

    def close(self) -> None:
        """As `Ranges.close`."""


class HeldRanges:
    """The content of a member that had to be unpacked, in memory."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, at: int, size: int) -> bytes:
        """As `Ranges.read`."""
        return self._content[at : at + size]

    def close(self) -> None:
        """As `Ranges.close`."""


class TempRanges:
    """What was unpacked to a temporary file."""

    def __init__(self, file: TempFile) -> None:
        self._file = file
        self._descriptor = file.finish()

    def read(self, at: int, size: int) -> bytes:
        """As `Ranges.read`."""
        return os.pread(self._descriptor, size, at)

    def close(self) -> None:
        """As `Ranges.close`."""
        self._file.close()


def held(content: bytes) -> Ranges:
    """Return ranges of what was unpacked: in memory, or in a temporary file where it is much."""
    if len(content) <= _MOST_HELD:
        return HeldRanges(content)
    file = TempFile()
    try:
        file.append(content)
        return TempRanges(file)
    except BaseException:
        file.close()
        raise


_MOST_PADDING = 1 << 20
"""Zeros after the end of an archive."""
_PROBLEMS = {
    FILE: "",
    LINK: "is a link, which is not followed in an archive",
    SPARSE: "is a sparse file",
}
_BLOCK = 1 << 20
_HEADERS = 1 << 16
"""Bytes that are read at once while headers are read."""
_REQUESTS = 16
"""Members of an archive in a bucket that are fetched at once."""
_RATIO, _LEAST = 250, 1 << 30
"""How many times its own size an archive may unpack to, and the bytes that it always may."""
_SLACK = 256
"""Bytes read with a member of a zip file for its header, which says itself how long it is."""
_BUFFER = 1 << 18


class ArchiveTree:
    """The files of an archive that lies in another tree; their stamp is that of the archive."""

    only = ""

    def __init__(self, outer: Tree, file: ListedFile, archive: OpenArchive, folder: str = "") -> None:
        self._outer = outer
        self._file = file
        self._archive = archive
        self._folder = folder

    @classmethod
    def at(cls, outer: Tree, file: ListedFile, progress: ScanProgress) -> ArchiveTree:
        """Return the tree of an archive; raises UsageError for a damaged one, OSError."""
        return cls(outer, file, opened_archive(outer, file, progress))

    @property
    def name(self) -> str:
        """Name of the archive, or of the folder in it."""
        return (self._folder or self._file.path).rpartition("/")[2]

    @property
    def is_remote(self) -> bool:
        """As `Tree.is_remote`: what is unpacked is not."""
        return self._archive.pool is not None

    def __str__(self) -> str:
        archive = str(self._outer) if self._outer.only else f"{self._outer}/{self._file.path}"
        return f"{archive}/{self._folder}" if self._folder else archive

    def __len__(self) -> int:
        """Number of files in the archive."""
        return len(self._archive.members)

    def scan(self, folder: str) -> list[Entry]:
        """As `Tree.scan`; in the root also the members whose names lead nowhere."""
        return self._archive.members.scan(self._path(folder), self._file.stamp)

    def look(self, path: str) -> Entry | None:
        """As `Tree.look`."""
        return self._archive.members.look(self._path(path), self._file.stamp)

    def read(self, file: ListedFile) -> bytes:
        """As `Tree.read`."""
        if file.size > LARGEST:
            size = f"it has {file.size} bytes, and at most {LARGEST} are read"
            raise OSError(errno.EFBIG, size, file.path)
        return self._content(self._member(file), file.size)

    def read_each(self, files: Sequence[ListedFile]) -> Iterator[bytes | OSError]:
        """As `Tree.read_each`."""
        return self._each(files, self.read)

    def read_heads(self, files: Sequence[ListedFile], size: int) -> Iterator[bytes | OSError]:
        """As `Tree.read_heads`."""
        return self._each(files, lambda file: self._content(self._member(file), min(size, file.size)))

    def open(self, file: ListedFile) -> Ranges:
        """As `Tree.open`; a compressed member is unpacked first."""
        member = self._member(file)
        if self._archive.zipped and member.method != STORED:
            return held(self.read(file))
        begin = member.begin
        if self._archive.zipped:
            begin += self._header(member, self._archive.ranges.read(begin, HEADER))
        return PartRanges(self._archive.ranges, begin, member.size)

    def stream(self, file: ListedFile) -> IO[bytes]:
        """As `Tree.stream`."""
        return io.BufferedReader(RangeStream(self.open(file), file.size), _BUFFER)

    def local_path(self, file: ListedFile) -> Path | None:
        """As `Tree.local_path`: nowhere."""

    def check(self, file: ListedFile) -> None:
        """As `Tree.check`: of the archive."""
        self._outer.check(self._file)

    def below(self, folder: str) -> ArchiveTree:
        """As `Tree.below`."""
        return ArchiveTree(self._outer, self._file, self._archive, self._path(folder))

    def again(self) -> ArchiveTree:
        """As `Tree.again`; the members of an archive that has not changed are the same."""
        outer = self._outer.again()
        outer.check(self._file)
        return ArchiveTree(outer, self._file, self._archive, self._folder)

    def settle(self, newest: int) -> None:
        """As `Tree.settle`."""
        self._outer.settle(newest)

    def _each(
        self, files: Sequence[ListedFile], read: Callable[[ListedFile], bytes]
    ) -> Iterator[bytes | OSError]:
        if self._archive.pool:
            yield from in_turn(self._archive.pool, read, files, lambda file: file.size)
            return
        for file in files:
            try:
                yield read(file)
            except OSError as error:
                yield error

    def _path(self, path: str) -> str:
        return "/".join(filter(None, (self._folder, path)))

    def _member(self, file: ListedFile) -> Member:
        member = self._archive.members.find(self._path(file.path))
        if member is None or member.problem or (member.size, self._file.stamp) != (file.size, file.stamp):
            raise changed(file.path, "has changed")
        return member

    def _content(self, member: Member, size: int) -> bytes:
        """Return the first bytes of a member; all of them have the checksum that the archive says."""
        try:
            data = self._packed(member, size)
            content = unpacked(data, member.method, size)
            if len(content) != size:
                raise ValueError(f"it has {len(content)} bytes, and the archive says {size}")
            if size == member.size and member.crc >= 0 and zlib.crc32(content) != member.crc:
                raise ValueError("its checksum does not match")
        except ValueError as error:
            raise OSError(errno.EIO, f"it is damaged in the archive ({error})", member.path) from error
        return content

    def _packed(self, member: Member, size: int) -> bytes:
        """Return a member as it is in the archive; of a stored one so many bytes."""
        read = self._archive.ranges.read
        packed = min(size, member.packed) if member.method == STORED else member.packed
        if not self._archive.zipped:
            return read(member.begin, packed)
        data = read(member.begin, HEADER + len(os.fsencode(member.path)) + _SLACK + packed)
        begin = self._header(member, data)
        content = data[begin : begin + packed]
        missing = packed - len(content)
        return content + read(member.begin + begin + len(content), missing) if missing else content

    def _header(self, member: Member, data: bytes) -> int:
        try:
            return content_begins(data)
        except ValueError as error:
            raise OSError(errno.EIO, f"it is damaged in the archive ({error})", member.path) from error


# Opens an archive and lists its members, once; a compressed tar archive is unpacked to a temporary file.


class OpenArchive:
    """The members of an archive, and its bytes, which are closed when nothing refers to it any more."""

    def __init__(self, members: Members, ranges: Ranges, *, zipped: bool, remote: bool) -> None:
        self.members = members
        self.ranges = ranges
        self.zipped = zipped
        self.pool = ThreadPoolExecutor(_REQUESTS, thread_name_prefix="member") if remote else None
        """Threads that fetch members ahead where each is a request."""
        weakref.finalize(self, ranges.close)


def opened_archive(outer: Tree, file: ListedFile, progress: ScanProgress) -> OpenArchive:
    """Return the archive; raises UsageError for a damaged one, and OSError."""
    name = file.path.rpartition("/")[2]
    if name.lower().endswith(PACKED_TAR):
        temp = _unpacked(outer, file, name, progress)
        with closed_on_error(temp):
            ranges: Ranges = TempRanges(temp)
            members = _listed(ranges, temp.size, name, zipped=False)
            return OpenArchive(members, ranges, zipped=False, remote=False)
    zipped = name.lower().endswith(ZIP)
    ranges = outer.open(file)
    with closed_on_error(ranges):
        members = _listed(ranges, file.size, name, zipped=zipped)
        return OpenArchive(members, ranges, zipped=zipped, remote=outer.is_remote)


def _listed(ranges: Ranges, size: int, name: str, *, zipped: bool) -> Members:
    stream = io.BufferedReader(RangeStream(_Borrowed(ranges), size), _HEADERS)
    return (zip_members if zipped else tar_members)(stream, size, name)


class _Borrowed:
    """Ranges that stay open when a stream of them is closed."""

    def __init__(self, ranges: Ranges) -> None:
        self.read = ranges.read

    def close(self) -> None:
        """Leave them open."""


def _unpacked(outer: Tree, file: ListedFile, name: str, progress: ScanProgress) -> TempFile:
    """Return the content of a gzip file; raises UsageError for damage, or for far too much of it."""
    temp, most = TempFile(), max(_RATIO * file.size, _LEAST)
    with closed_on_error(temp), outer.stream(file) as stream:
        for block in _blocks(stream, name):
            temp.append(block)
            progress(temp.size, 0)
            if temp.size > most:
                raise UsageError(
                    f"'{name}' unpacks to more than {_RATIO} times its size.",
                    hint="Unpack it yourself if it is right.",
                    file=name,
                )
    return temp


def _blocks(stream: IO[bytes], name: str) -> Iterator[bytes]:
    try:
        with _zstandard(stream) if name.lower().endswith(ZSTANDARD) else gzip.open(stream) as content:
            while block := content.read(_BLOCK):
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(name, str(error).rstrip(".") or "it ends in the middle") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise damaged(name, "it cannot be unpacked") from error  # Arrow's own errors have no number


def _zstandard(stream: IO[bytes]) -> Any:
    try:
        import pyarrow  # noqa: PLC0415  only for Zstandard, which the standard library has from Python 3.14 on
    except ImportError as error:
        raise ConfigError(
            "Reading .tar.zst needs pyarrow, which is not installed.",
            hint="Install it: pip install pyarrow.",
        ) from error
    return pyarrow.CompressedInputStream(pyarrow.PythonFile(stream, "r"), "zstd")


def tar_members(stream: IO[bytes], size: int, name: str) -> Members:
    """Return the members of the archive in a stream of so many bytes; raises UsageError for damage."""
    members, reader = Members(name), TarReader(stream, seeks=True)
    try:
        for member in reader:
            if member.kind != FOLDER:
                why = _PROBLEMS.get(member.kind, "is a device")
                members.add(Member(member.name, member.size, member.begin, member.size, problem=why))
    except TarError as error:
        raise damaged(name, str(error)) from error
    if size - reader.at > BLOCK + _MOST_PADDING:
        raise damaged(name, f"it ends at byte {reader.at}, and {size - reader.at} bytes follow")
    return members.finish()
