"""Finds where the lines of a text file begin; a quoted line break does not end one; skips blank lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.contents import Contents
from tpuctl.errors import UsageError

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
