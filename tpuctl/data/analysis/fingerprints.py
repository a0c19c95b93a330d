"""Stores a hash of every record's content, and finds the records that have the same.

The hashes lie in a temporary file, and are compared a part at a time: memory does not grow with the records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.temp_files import TempFile
from tpuctl.data.schema.features import Feature, Image, Label
from tpuctl.data.tfrecord.example_decoding import Values, decode

ROW = np.dtype(
    [("key", "<u8"), ("more", "<u8"), ("rest", "<u8"), ("looks", "<u8"), ("origin", "<u4"), ("index", "<u4")]
)
"""128 bits of the content, 64 of all values, the look of a picture; which split, and which record of it."""
_PART = 1 << 20
"""Rows compared at once, about."""
_HELD = 4096
_NUMBERS = 4096
"""Numbers of a field that are hashed at once."""


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
        listed = values[name]
        digest.update(f"{name}\0{len(listed)}\0".encode())
        if listed and isinstance(listed[0], bytes):
            for value in listed:
                digest.update(len(value).to_bytes(8, "little"))
                digest.update(value)
            continue
        for start in range(0, len(listed), _NUMBERS):
            digest.update(repr(listed[start : start + _NUMBERS]).encode())
    return digest.digest()
