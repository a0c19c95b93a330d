"""Finds the rows of several files in one pass, and reads the bytes of each by index.

- Reads a source's files at any offset from many threads; those packed or far away are copied first.
- Finds where the lines of a text file begin; a quoted line break does not end one; skips blank lines.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.listing import read_spans
from tpuctl.data.files.source_files import SourceFiles
from tpuctl.data.files.temp_files import RecordOffsets, TempFile, decompressed
from tpuctl.data.source import Indices, Part, ScanProgress, evenly_spaced
from tpuctl.data.trees.tree import Ranges
from tpuctl.errors import UsageError

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


LONGEST = 64 << 20
"""Bytes of the longest line: a quote that is never closed makes one line of the rest of the file."""
_LINE_FEED, _RETURN, _QUOTE = b'\n\r"'
_BOM = b"\xef\xbb\xbf"


def line_begins(contents: Contents, file: int, delimiter: bytes = b"") -> Iterator[NDArray[np.int64]]:
    """Yield where the lines of a file begin, in pieces.

    With a delimiter, cells may be quoted as RFC 4180 says, and as Python's csv module reads it: a quote
    counts at the beginning of a cell only. Raises UsageError that names a line without an end, or a file of
    UTF-16.
    """
    name = contents.files.name(file)
    _check_encoding(contents.read(file, 0, 4), name)
    at = skipped = len(_BOM) if contents.read(file, 0, 3) == _BOM else 0
    rest, remaining, least = b"", contents.sizes[file], 0
    for block in contents.blocks(file):
        rest += block[skipped:]
        remaining, skipped = remaining - len(block), 0
        if len(rest) < least and remaining:
            continue  # a long line: it is not searched again before twice as much of it was read
        ends = _ends(rest, delimiter)
        if not remaining and (not len(ends) or ends[-1] < len(rest)) and rest:
            ends = np.append(ends, len(rest))
        begins = np.concatenate(([0], ends[:-1])) if len(ends) else ends
        yield at + begins[_filled(rest, begins, ends)]
        complete = int(ends[-1]) if len(ends) else 0
        at, rest = at + complete, rest[complete:]
        least = 2 * len(rest)
        if len(rest) > LONGEST:
            raise _endless(name, contents.line(file, at))


def _ends(block: bytes, delimiter: bytes) -> NDArray[np.int64]:
    """Return where the lines of a block end; it begins with a line."""
    if not delimiter or _QUOTE not in block:
        return np.flatnonzero(np.frombuffer(block, np.uint8) == _LINE_FEED) + 1
    quick = _quoted_ends(block, ord(delimiter))
    return quick if quick is not None else _careful_ends(block, delimiter)


def _quoted_ends(block: bytes, delimiter: int) -> NDArray[np.int64] | None:
    """Return the ends outside quotes, taking every second quote for a closing one; None where that fails."""
    data = np.frombuffer(block, np.uint8)
    breaks = np.flatnonzero(data == _LINE_FEED)
    quotes = np.flatnonzero(data == _QUOTE)
    opening = quotes[::2]
    before = np.where(opening > 0, data[opening - 1], _LINE_FEED)
    at_start = (before == delimiter) | (before == _LINE_FEED) | (before == _RETURN) | (before == _QUOTE)
    if not at_start.all():
        return None
    outside = np.searchsorted(quotes, breaks) % 2 == 0
    ends: NDArray[np.int64] = breaks[outside] + 1
    return ends


def _careful_ends(block: bytes, delimiter: bytes) -> NDArray[np.int64]:
    """Return the same where quotes also stand inside of cells, as in `5" disk`."""
    mark = re.escape(delimiter)
    quoted = rb"(?:^|(?<=[\n\r" + mark + rb']))"[^"]*(?:""[^"]*)*(?:"|\Z)'
    matches = re.finditer(quoted + rb"|\n", block)
    return np.fromiter((match.end() for match in matches if block[match.start()] == _LINE_FEED), np.int64)


def _filled(block: bytes, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    data = np.frombuffer(block, np.uint8)
    if not len(begins):
        return np.ones(0, np.bool_)
    second = data[np.minimum(begins + 1, len(data) - 1)]
    blank = (data[begins] == _LINE_FEED) | (
        (ends - begins == 2) & (data[begins] == _RETURN) & (second == _LINE_FEED)
    )
    filled: NDArray[np.bool_] = ~blank
    return filled


def _check_encoding(start: bytes, name: str) -> None:
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UsageError(
            f"'{name}' is UTF-16 text, expected UTF-8.",
            hint="Convert it: iconv -f UTF-16 -t UTF-8 OLD > NEW.",
            file=name,
        )


def _endless(name: str, line: int) -> UsageError:
    return UsageError(
        f"Line {line} of '{name}' does not end within {LONGEST / 1e6:.1f} MB.",
        hint="Close the quote that was opened there; or give the right file, if this is no text.",
        file=name,
        line=line,
    )


_SAMPLE, _SAMPLE_BYTES = 20_000, 8 << 20
"""Rows from which types are inferred, and about how many bytes; of a smaller source, all rows."""
_BATCH, _BATCH_BYTES = 16_384, 2 << 20
"""Rows that are read at once, and about how many bytes."""
_MOST_SAMPLED, _MOST_READ = 1 << 27, 1 << 26
"""Bytes of these at most, besides one row, where some rows are very much longer than most."""

Begins = Callable[[Contents, int], Iterable[NDArray[np.int64]]]
"""Called with a file's number; yields where its rows begin, in pieces. The last row ends with the file."""


class Rows:
    """Rows in the order of the files; blank lines after a row belong to it."""

    def __init__(self, files: SourceFiles, begins: Begins, *, header: bool, progress: ScanProgress) -> None:
        """Find all rows; with `header`, the first line of each file is its header and no row."""
        self.files = files
        self.contents = Contents(files, progress)
        self._offsets = RecordOffsets()
        self._bases = array("q", [0])  # where each file begins, if they lay one after the other
        self._longest = 0
        counts: list[int] = []
        try:
            for number in range(len(files)):
                counts.append(self._find(number, begins(self.contents, number), header, progress))
                self._bases.append(self._bases[-1] + self.contents.sizes[number])
            self._offsets.extend(np.array([self._bases[-1]]))
            self._offsets.finish()
        except BaseException:
            self.close()
            raise
        self.firsts = np.cumsum([0, *counts], dtype=np.int64)
        """Index of the first row of each file; at last, the number of all rows."""

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def header(self, file: int) -> bytes:
        """Return the first row of a file; nothing if the file is empty."""
        if not self.contents.sizes[file]:
            return b""
        ((begin, end),) = self._spans(np.array([file]), np.array([self.firsts[file] - 1])).tolist()
        return self.contents.read(file, begin, end - begin)

    def read(self, indices: Indices) -> list[bytes]:
        """Return the bytes of these rows; fewer where a file has become shorter."""
        if not len(indices):
            return []
        order = np.argsort(indices)
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        rows = self.read_sorted(indices[order])
        return [rows[place] for place in places.tolist()]

    def read_sorted(self, indices: Indices) -> list[bytes]:
        """Return the same for indices in their order: rows that lie close together are read at once."""
        files = self._file_of(indices)
        spans, rows = self._spans(files, indices), list[bytes]()
        cuts = [0, *(np.flatnonzero(np.diff(files)) + 1).tolist(), len(files)]
        for first, after in pairwise(cuts):
            read = partial(self.contents.read, int(files[first]))
            rows += read_spans(read, spans[first:after])
        return rows

    def in_order(self) -> Iterator[list[bytes]]:
        """Yield all rows, a batch at a time."""
        for first, end in pairwise(self.firsts.tolist()):
            for start in range(first, end, self.batch):
                for chosen in self.batches(np.arange(start, min(start + self.batch, end))):
                    yield self.read(chosen)

    def batches(self, indices: Indices) -> Iterator[Indices]:
        """Yield these indices in their order, those together whose rows are held in memory at once."""
        for start in range(0, len(indices), self.batch):
            chosen = indices[start : start + self.batch]
            if self._longest * len(chosen) <= _MOST_READ:
                yield chosen
                continue
            total = np.cumsum(self._sizes(chosen))
            yield from np.split(chosen, np.flatnonzero(np.diff(total // _MOST_READ)) + 1)

    def file_of(self, index: int) -> int:
        """Return the number of the file that a row is in."""
        return int(self._file_of(np.array([index]))[0])

    def line(self, index: int) -> int:
        """Return the line on which a row begins, as an editor counts it."""
        file = self.file_of(index)
        return self.contents.line(file, int(self._spans(np.array([file]), np.array([index]))[0, 0]))

    def sample(self) -> Indices:
        """Return the indices of some rows, evenly spaced over all; the shorter ones of very long rows."""
        chosen = evenly_spaced(len(self), min(_SAMPLE, max(_SAMPLE_BYTES // self._mean, 16)))
        if self._longest * len(chosen) <= _MOST_SAMPLED:
            return chosen
        sizes = self._sizes(chosen)
        shortest = np.argsort(sizes, kind="stable")
        fitting = np.count_nonzero(np.cumsum(sizes[shortest]) <= _MOST_SAMPLED)
        return np.sort(chosen[shortest[: max(int(fitting), 1)]])

    @property
    def batch(self) -> int:
        """Rows that are held in memory at once."""
        return min(max(_BATCH_BYTES // self._mean, 1), _BATCH)

    def parts(self, sizes: dict[int, int]) -> tuple[Part, ...]:
        """Return the splits; their bytes are estimated from the sizes of some records, by index."""
        indices = np.array(list(sizes), np.int64)
        measured = np.array(list(sizes.values()), np.int64)
        return tuple(
            Part(split, end - first, _estimate(measured, (indices >= first) & (indices < end), end - first))
            for split, first, end, _ in self.splits()
        )

    def splits(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield each split, the index of its first row and of the first after it, and its files' bytes."""
        files = range(len(self.files))
        splits = [self.files.split(number) for number in files]
        starts = [number for number in files if not number or splits[number] != splits[number - 1]]
        for start, end in pairwise([*starts, len(self.files)]):
            size = self._bases[end] - self._bases[start]
            yield splits[start], int(self.firsts[start]), int(self.firsts[end]), size

    def close(self) -> None:
        """Close the files, and give the space of the temporary files back."""
        self.contents.close()
        self._offsets.close()

    @property
    def _mean(self) -> int:
        return self._bases[-1] // max(len(self), 1) + 1

    def _find(
        self, file: int, begins: Iterable[NDArray[np.int64]], header: bool, progress: ScanProgress
    ) -> int:
        """Store where rows begin, after the offset of the file's header, or of the file without one."""
        base, count, last = self._bases[-1], 0, 0
        if not header:
            self._offsets.extend(np.array([base]))
        for piece in begins:
            self._offsets.extend(base + piece)
            count += len(piece)
            if len(piece):
                self._longest = max(self._longest, int(np.diff(piece, prepend=last).max()))
                last = int(piece[-1])
                progress(base + int(piece[-1]), sum(self.contents.sizes))
        self._longest = max(self._longest, self.contents.sizes[file] - last)
        if header and not count:
            self._offsets.extend(np.array([base]))
        return count - (header and count > 0)

    def _sizes(self, indices: Indices) -> NDArray[np.int64]:
        """Return the bytes of these rows."""
        spans = self._spans(self._file_of(indices), indices)
        return spans[:, 1] - spans[:, 0]

    def _spans(self, files: NDArray[np.int64], indices: Indices) -> NDArray[np.int64]:
        """Return where rows begin and end in their files; before the first of a file is its header."""
        bases = np.frombuffer(self._bases, np.int64)
        begins, ends = self._offsets.spans(indices + files + 1).T
        ends = np.minimum(ends, bases[files + 1])  # a blank line may come before a header
        return np.stack((begins, ends), axis=1) - bases[files, None]

    def _file_of(self, indices: Indices) -> Indices:
        return np.searchsorted(self.firsts, indices, side="right").astype(np.int64) - 1


def _estimate(sizes: NDArray[np.int64], chosen: NDArray[np.bool_], records: int) -> int:
    measured = sizes[chosen] if chosen.any() else sizes
    return round(float(measured.mean()) * records) if len(measured) else 0
