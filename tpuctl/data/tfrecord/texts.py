"""Holds the bytes of many cells in one buffer, and copies all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]
_SINGLY = 24
"""Cells of a length from which on they are copied in one step; fewer are copied one by one."""

_PART = 64
"""Which part of a buffer cells have to be, at least, that all of it is copied for them."""
MARGIN = 32
"""Bytes before the first and after the last cell of a buffer that need no copy to be read as numbers."""
_LOWEST = np.array([(1 << 8 * size) - 1 for size in range(8)], np.uint64)


class Texts(NamedTuple):
    """The bytes of cells: each a part of one buffer."""

    data: Bytes
    begins: Places
    sizes: Places

    @classmethod
    def of(cls, cells: Sequence[bytes]) -> Texts:
        """Return the same for separate bytes."""
        sizes = np.fromiter(map(len, cells), np.int64, len(cells))
        return cls(np.frombuffer(b"".join(cells), np.uint8), np.cumsum(sizes) - sizes, sizes)

    def chosen(self, places: Places) -> Texts:
        """Return the cells at these places."""
        return Texts(self.data, self.begins[places], self.sizes[places])

    def with_margins(self) -> Texts:
        """Return the same cells in a buffer that has `MARGIN` bytes before and after them."""
        if not len(self.sizes):
            return self
        first, end = int(self.begins.min()), int((self.begins + self.sizes).max())
        if first >= MARGIN and end + MARGIN <= len(self.data):
            return self
        margin = np.zeros(MARGIN, np.uint8)
        return Texts(np.concatenate((margin, self.data, margin)), self.begins + MARGIN, self.sizes)

    def cells(self) -> list[bytes]:
        """Return the bytes of each."""
        places = zip(self.begins.tolist(), (self.begins + self.sizes).tolist(), strict=True)
        if int(self.sizes.sum()) * _PART < len(self.data):  # a column of very many: each would copy all
            return [self.data[begin:end].tobytes() for begin, end in places]
        data = self.data.tobytes()
        return [data[begin:end] for begin, end in places]

    def strings(self) -> list[str]:
        """Return the text of each."""
        return [cell.decode() for cell in self.cells()]

    def distinct(self) -> tuple[list[bytes], Places]:
        """Return the different cells, and which of them is at each place."""
        if int(self.sizes.max(initial=0)) < 8:
            data, begins, _ = self.with_margins()
            sizes = self.sizes.astype(np.uint64)
            numbers = windows(data, 8)[begins].view("<u8") & _LOWEST[self.sizes] | sizes << np.uint64(56)
            keys, ranks = np.unique(numbers, return_inverse=True)
            return [key.tobytes()[: int(key) >> 56] for key in keys.astype("<u8")], ranks
        cells = self.cells()
        places = {cell: place for place, cell in enumerate(dict.fromkeys(cells))}
        return list(places), np.array([places[cell] for cell in cells], np.int64)

    def copy_to(self, target: Bytes, places: Places) -> None:
        """Copy each cell to its place in `target`; cells of the same length together."""
        if not len(self.sizes):
            return
        narrow = self.sizes.astype(np.uint16) if int(self.sizes.max()) < 1 << 16 else self.sizes
        order = np.argsort(narrow, kind="stable")
        ends = [*(np.flatnonzero(np.diff(self.sizes[order])) + 1).tolist(), len(order)]
        start = 0
        for end in ends:
            size = int(self.sizes[order[start]])
            if size:
                self._copy(order[start:end], size, target, places)
            start = end

    def _copy(self, chosen: Places, size: int, target: Bytes, places: Places) -> None:
        if len(chosen) >= _SINGLY:
            windows(target, size)[places[chosen]] = windows(self.data, size)[self.begins[chosen]]
            return
        source, sink = memoryview(self.data.data), memoryview(target.data)
        for place, begin in zip(places[chosen].tolist(), self.begins[chosen].tolist(), strict=True):
            sink[place : place + size] = source[begin : begin + size]


def windows(data: Bytes, size: int) -> NDArray[Any]:
    """Return a view of all parts of `data` of so many bytes, by where they begin: nothing is copied."""
    return np.ndarray((max(len(data) - size + 1, 0),), f"V{size}", data, strides=(1,))


def distinct(numbers: Places) -> tuple[Iterable[int], Places]:
    """Return the different numbers, none negative, in order, and which of them is at each place."""
    most = int(numbers.max(initial=0))
    if most > 1 << 16:
        values, places = np.unique(numbers, return_inverse=True)
        return values.tolist(), places
    values = np.flatnonzero(np.bincount(numbers))
    ranks = np.zeros(most + 1, np.int64)
    ranks[values] = np.arange(len(values))
    return values.tolist(), ranks[numbers]
