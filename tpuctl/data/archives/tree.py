"""Reads the files in a tar or zip archive as a tree: a stored member is a range of the archive."""

from __future__ import annotations

import errno
import io
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from tpuctl.data.archives.members import STORED, Member
from tpuctl.data.archives.opened import OpenArchive, opened_archive
from tpuctl.data.archives.ranges import PartRanges, held
from tpuctl.data.archives.zip_members import HEADER, content_begins, unpacked
from tpuctl.data.source import ScanProgress, changed
from tpuctl.data.trees.fetching import in_turn
from tpuctl.data.trees.tree import LARGEST, Entry, ListedFile, Ranges, RangeStream, Tree

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
