"""Stores a hash of every record's content, and finds the records that have the same.

The hashes lie in a temporary file, and are compared a part at a time: memory does not grow with the records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import add

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.temp_files import TempFile
from tpuctl.data.schema.features import Feature, Image, Kind, Label
from tpuctl.data.tfrecord.column_decoding import Columns
from tpuctl.data.tfrecord.example_decoding import Values, decode
from tpuctl.data.tfrecord.example_encoding import entry_of

ROW = np.dtype(
    [("key", "<u8"), ("more", "<u8"), ("rest", "<u8"), ("looks", "<u8"), ("origin", "<u4"), ("index", "<u4")]
)
"""128 bits of the content, 64 of all values, the look of a picture; which split, and which record of it."""
_PART = 1 << 20
"""Rows compared at once, about."""
_HELD = 4096


class Fingerprints:
    """The hashes of records, in the order in which they are added."""

    def __init__(self) -> None:
        self._file = TempFile()
        self._recent: list[tuple[int, int, int, int, int, int]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, content: tuple[int, int, int], looks: int, origin: int, index: int) -> None:
        """Add a record: what `fingerprint` returns, and where it is."""
        self._recent.append((*content, looks, origin, index))
        self._count += 1
        if len(self._recent) >= _HELD:
            self._flush()

    def add_all(self, contents: NDArray[np.uint64], origin: int, indices: NDArray[np.int64]) -> None:
        """Add records without pictures: what `column_fingerprints` returns, and where they are."""
        self._flush()
        rows = np.zeros(len(contents), ROW)
        rows["key"], rows["more"], rows["rest"] = contents.T
        rows["origin"], rows["index"] = origin, indices
        self._file.append(rows.tobytes())
        self._count += len(rows)

    @property
    def part_count(self) -> int:
        """In how many parts the rows are compared."""
        return max(-(-self._count // _PART), 1)

    def parts(self, by: str = "key", count: int | None = None) -> Iterator[NDArray[np.void]]:
        """Yield all rows, those with an equal field `by` in the same part, sorted by it."""
        self._flush()
        descriptor = self._file.finish()
        count = count or self.part_count
        for part in range(count):
            chosen = [rows[rows[by] % count == part] for rows in self._blocks(descriptor)]
            rows = np.concatenate(chosen) if chosen else np.empty(0, ROW)
            yield rows[np.lexsort((rows["index"], rows["origin"], rows["more"], rows[by]))]

    def close(self) -> None:
        """Give the space back."""
        self._file.close()

    def _blocks(self, descriptor: int) -> Iterator[NDArray[np.void]]:
        size = _PART // 4 * ROW.itemsize
        for at in range(0, self._file.size, size):
            yield np.frombuffer(os.pread(descriptor, size, at), ROW)

    def _flush(self) -> None:
        self._file.append(np.array(self._recent, ROW).tobytes())
        self._recent.clear()


def fingerprint(values: Mapping[str, Values], features: Mapping[str, Feature]) -> tuple[int, int, int]:
    """Return 128 bits of a record's content, and 64 of all its values.

    The content is the pictures; without pictures, all but the labels.
    """
    pictures = [name for name, feature in features.items() if isinstance(feature, Image) and name in values]
    others = [name for name in values if not isinstance(features.get(name), Label)]
    names = pictures or others or list(values)
    content = _hash(values, names)
    rest = [name for name in values if name not in names]
    whole = _hash(values, rest, content) if rest else content
    return (
        int.from_bytes(content[:8], "little"),
        int.from_bytes(content[8:], "little"),
        int.from_bytes(whole[:8], "little"),
    )


def column_fingerprints(data: bytes, columns: Columns, features: Mapping[str, Feature]) -> NDArray[np.uint64]:
    """Return the same three numbers of many records whose columns are in some bytes, without pictures."""
    bounds = [places.tolist() for places in columns.bounds]
    spans = {name: (bounds[place], bounds[place + 1]) for place, name in enumerate(columns.values)}
    names = [name for name in spans if not isinstance(features[name], Label)] or list(spans)
    rest = [name for name in spans if name not in names]
    contents = _column_hashes(data, [spans[name] for name in names], None)
    both = np.frombuffer(b"".join(contents), "<u8").reshape(-1, 2)
    whole = _column_hashes(data, [spans[name] for name in rest], contents) if rest else contents
    return np.column_stack((both, np.frombuffer(b"".join(whole), "<u8")[::2]))


def _column_hashes(
    data: bytes, spans: Sequence[tuple[Sequence[int], Sequence[int]]], before: Sequence[bytes] | None
) -> list[bytes]:
    """Return the hash of each record's entries, which stand behind what was `before`."""
    joined = list[tuple[Sequence[int], Sequence[int]]]()
    for begins, ends in spans:
        if joined and joined[-1][1] is begins:
            joined[-1] = joined[-1][0], ends
        else:
            joined.append((begins, ends))
    parts: Iterable[bytes] = (data[begin:end] for begin, end in zip(*joined[0], strict=True))
    for begins, ends in joined[1:]:
        more = zip(parts, begins, ends, strict=True)
        parts = (part + data[begin:end] for part, begin, end in more)
    if before is not None:
        parts = map(add, before, parts)
    return [blake2b(part, digest_size=16).digest() for part in parts]


def hashes(record: bytes, features: Mapping[str, Feature]) -> tuple[int, int, int]:
    """Return the same of a serialised record; raises UsageError if it is no Example."""
    return fingerprint(decode(record), features)


def first_of_each(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which of the sorted rows begin a group of the same content."""
    first = np.ones(len(rows), np.bool_)
    first[1:] = (rows["key"][1:] != rows["key"][:-1]) | (rows["more"][1:] != rows["more"][:-1])
    return first


def _hash(values: Mapping[str, Values], names: list[str], before: bytes = b"") -> bytes:
    digest = blake2b(before, digest_size=16)
    for name in sorted(names):
        first = next(iter(values[name]), b"")
        kind: Kind = "bytes" if isinstance(first, bytes) else "int64" if isinstance(first, int) else "float"
        digest.update(_entry(name, kind)(values[name]))
    return digest.digest()


@lru_cache(1 << 16)
def _entry(name: str, kind: Kind) -> Callable[[Values], bytes]:
    """Return what encodes a field, as `ColumnEncoder` does: `column_fingerprints` are of the same bytes."""
    return entry_of(name, kind)
