"""Reads many small parts of files: parts that lie close together with one read."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_GAP = 4096
"""Bytes between two parts that are read along: that takes less than another read."""
_PIECE = 1 << 20
"""Bytes that are read at once, besides a last part that is longer."""


def read_spans(read: Callable[[int, int], bytes], spans: NDArray[np.int64]) -> list[bytes]:
    """Return the bytes from `begin` to `end` of each span, which are in the order of a file.

    `read` takes a place and a size. The bytes are fewer where the file is shorter.
    """
    begins, ends = spans[:, 0], spans[:, 1]
    apart = (begins[1:] - ends[:-1] > _GAP) | (begins[1:] // _PIECE != begins[:-1] // _PIECE)
    firsts, lasts = begins.tolist(), ends.tolist()
    parts: list[bytes] = []
    for first, after in pairwise([0, *(np.flatnonzero(apart) + 1).tolist(), len(spans)]):
        start = firsts[first]
        block = read(start, max(lasts[first:after]) - start)
        if after == first + 1:
            parts.append(block)
            continue
        bounds = zip(firsts[first:after], lasts[first:after], strict=True)
        parts += [block[begin - start : end - start] for begin, end in bounds]
    return parts
