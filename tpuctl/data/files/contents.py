"""Reads a source's files at any offset from many threads; those packed or far away are copied first."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator

import numpy as np

from tpuctl.data.files.source_files import SourceFiles
from tpuctl.data.files.temp_files import TempFile, decompressed
from tpuctl.data.source import ScanProgress
from tpuctl.data.trees.tree import Ranges

BLOCK = 1 << 20
"""Bytes read at once where a file is read from its beginning to its end."""
MOST_COPIED = 16 << 30
"""Bytes of files in a bucket that are copied to the local disk, as their rows are read in any order; those
beyond are read where they are, a request for each row or run of rows."""
_OPEN = 128
"""Files held open at once; of a source of more, each is opened whenever it is read."""


class Contents:
    """The content of each of `files`, by its number.

    A `.gz` file is unpacked into a temporary file, and one in a bucket is copied there.
    """

    def __init__(self, files: SourceFiles, progress: ScanProgress) -> None:
        """Unpack gzip files; raises UsageError that names a damaged or unreadable file."""
        self.files = files
        self.sizes = array("q", files.listing.sizes.tolist())
        """Bytes of each file, unpacked."""
        self._unpacked: dict[int, int] = {}  # where a file begins in the temporary file
        self._temp_file: TempFile | None = None
        self._descriptor = -1
        self._extra: list[TempFile] = []
        self._open: list[Ranges] = []
        self._newlines: dict[
            int, array[int]
        ] = {}  # of each file that `line` was called for: the number before each block
        try:
            self._unpack(progress)
            if len(files) <= _OPEN:
                self._open += [files.open(number) for number in range(len(files))]
        except BaseException:
            self.close()
            raise

    def read(self, file: int, at: int, size: int) -> bytes:
        """Return `size` bytes from place `at`; fewer if the file has become shorter."""
        if file in self._unpacked:
            return os.pread(self._descriptor, size, self._unpacked[file] + at)
        if self._open:
            return self._open[file].read(at, size)
        ranges = self.files.open(file)
        try:
            return ranges.read(at, size)
        finally:
            ranges.close()

    def blocks(self, file: int) -> Iterator[bytes]:
        """Yield a file from its beginning to its end."""
        for at in range(0, self.sizes[file], BLOCK):
            yield self.read(file, at, min(BLOCK, self.sizes[file] - at))

    def line(self, file: int, at: int) -> int:
        """Return the line of a place in a file, counted from 1."""
        if file not in self._newlines:
            counts = [block.count(b"\n") for block in self.blocks(file)]
            self._newlines[file] = array("q", [0, *np.cumsum(counts, dtype=np.int64).tolist()])
        block = at // BLOCK
        return self._newlines[file][block] + self.read(file, block * BLOCK, at % BLOCK).count(b"\n") + 1

    def temp_file(self) -> TempFile:
        """Return a temporary file for data that a reader unpacks itself; it is closed with the others."""
        self._extra.append(TempFile())
        return self._extra[-1]

    def close(self) -> None:
        """Close the files, and give the space of the temporary files back."""
        while self._open:
            self._open.pop().close()
        for temp_file in (*self._extra, *filter(None, [self._temp_file])):
            temp_file.close()

    def _unpack(self, progress: ScanProgress) -> None:
        copied, remote = 0, self.files.tree.is_remote
        for number in range(len(self.files)):
            is_packed = self.files.name(number).lower().endswith(".gz")
            if not is_packed:
                copied += self.sizes[number]
            if not is_packed and not (remote and copied <= MOST_COPIED):
                continue
            self._temp_file = self._temp_file or TempFile()
            self._unpacked[number] = self._temp_file.size
            for block in self._content(number, is_packed):
                self._temp_file.append(block)
                progress(self._temp_file.size, 0)
            self.sizes[number] = self._temp_file.size - self._unpacked[number]
        if self._temp_file:
            self._descriptor = self._temp_file.finish()

    def _content(self, number: int, is_packed: bool) -> Iterator[bytes]:
        stream = self.files.stream(number)
        if is_packed:
            yield from decompressed(stream, self.files.name(number).rpartition("/")[2])
            return
        with stream:
            while block := stream.read(BLOCK):
                yield block
