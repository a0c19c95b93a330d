"""Finds the last scalars of an event file near its end: files grow to gigabytes, and new values come last."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tpuctl.data.events.scalars import Scalar, scalars
from tpuctl.data.tfrecord.framing import HEAD, OVERHEAD, framed_length, is_intact

WINDOWS = (64 << 10, 512 << 10, 4 << 20)
"""Bytes from the end that are read: more, if those before have none of the wanted scalars."""
MOST_PLACES = 100_000
"""Places of a window that are tried for the begin of a record."""
_LENGTH = re.compile(rb"(?s)(?=...\x00{5})")
"""Where the length of a record below 16 MiB may begin."""

Read = Callable[[int, int], bytes]
"""Returns the bytes of the file from one place to before another."""


def last_scalars(read: Read, size: int, wants: Callable[[str], bool]) -> dict[str, Scalar]:
    """Return the newest scalar of each wanted tag near the end of a file of `size` bytes.

    A last record that is not complete is being written. Raises ValueError for a file that is no event file.
    """
    found: dict[str, Scalar] = {}
    begin, data = size, b""
    for number, window in enumerate(WINDOWS):
        start = max(0, size - window)
        data, begin = read(start, begin) + data, start
        found = _newest(data, is_whole=not start, wants=wants)
        if not start or (found and number):
            break
    return found


def _newest(data: bytes, *, is_whole: bool, wants: Callable[[str], bool]) -> dict[str, Scalar]:
    newest: dict[str, Scalar] = {}
    for record, _ in records(data, 0 if is_whole else first_record(data)):
        for scalar in scalars(record):
            if wants(scalar.tag):
                newest[scalar.tag] = scalar
    return newest


def records(data: bytes, place: int) -> Iterator[tuple[bytes, int]]:
    """Yield the complete records from a place on, each with the place after it.

    Raises ValueError for a damaged one.
    """
    while place + HEAD <= len(data):
        length = framed_length(data[place : place + HEAD])
        if length is None:
            raise ValueError("it is no event file, or damaged")
        end = place + length + OVERHEAD
        if end > len(data):
            return
        if not is_intact(data[place + HEAD : end]):
            raise ValueError("a record of it is damaged")
        yield data[place + HEAD : end - (OVERHEAD - HEAD)], end
        place = end


def first_record(data: bytes) -> int:
    """Return the place of the first record in a window that begins within one; its end if there is none."""
    for tried, match in enumerate(_LENGTH.finditer(data)):
        place = match.start()
        if tried == MOST_PLACES:
            raise ValueError("it is no event file, or damaged")
        if framed_length(data[place : place + HEAD]) is not None and _is_followed(data, place):
            return place
    return len(data)


def _is_followed(data: bytes, place: int) -> bool:
    """Whether another record begins where this one would end, or the window ends before."""
    length = framed_length(data[place : place + HEAD]) or 0
    following = place + length + OVERHEAD
    return following + HEAD > len(data) or framed_length(data[following : following + HEAD]) is not None
