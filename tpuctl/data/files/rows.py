"""Finds the rows of several files in one pass, and reads the bytes of each by index."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.contents import Contents
from tpuctl.data.files.source_files import SourceFiles
from tpuctl.data.files.spans import read_spans
from tpuctl.data.files.temp_files import RecordOffsets
from tpuctl.data.source import Indices, Part, ScanProgress, evenly_spaced

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
