"""Reads all scalars of an event file in blocks; of a very large file those near its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tpuctl.data.events.scalars import Scalar, scalars
from tpuctl.data.events.tail import Read, first_record, records
from tpuctl.data.tfrecord.framing import HEAD

BLOCK = 4 << 20
"""Bytes that are read at once."""
MOST = 64 << 20
"""Bytes of a file that are read, from its end: files with images and profiles grow to gigabytes."""


def all_scalars(
    read: Read, size: int, wants: Callable[[str], bool], *, most: int = MOST, block: int = BLOCK
) -> Iterator[Scalar]:
    """Yield the scalars of the wanted tags in a file of `size` bytes, in the order of the file.

    A last record that is not complete is being written. Raises ValueError for a file that is no event file.
    """
    start, rest, is_aligned = max(0, size - most), b"", size <= most
    while start < size:
        end = min(start + block, size)
        data = rest + read(start, end)
        place = 0 if is_aligned else first_record(data)
        is_aligned |= place < len(data)
        for record, after in records(data, place):
            yield from (scalar for scalar in scalars(record) if wants(scalar.tag))
            place = after
        start, rest = end, data[place:] if is_aligned else data[1 - HEAD :]
