"""Decides how many rows of a Parquet file are held in memory at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from tpuctl.data.tables.arrow_values import array_texts
from tpuctl.data.tables.parquet_footer import Footer, Group

if TYPE_CHECKING:
    import pyarrow

_BATCH_BYTES, _LEAST_ROWS, _MOST_ROWS = 2 << 20, 16, 8192
"""Size of a batch of rows in memory, about."""
_MOST_BYTES, _DICTIONARY_ROWS = 1 << 26, 256
"""Size of a batch at most, unless one row is larger; its rows where the length of a text is not known."""

Open = Callable[[list[str]], Any]
"""Opens the file so that these columns are read as their dictionaries."""


def cautious_rows(footer: Footer) -> int:
    """Return a number of rows that surely fit in memory.

    A dictionary may hold one long text for all rows: what a row takes is then not in the metadata, only
    that no text is longer than its column's chunk.
    """
    longest = max((sum(_texts_of(group)) for group in footer.groups), default=0)
    rows = _usual_rows(footer)
    if longest <= 0:
        return rows
    return min(rows, _DICTIONARY_ROWS, max(_MOST_BYTES // longest, 1))


def batch_rows(footer: Footer, open_file: Open) -> int:
    """Return as many rows as fit in memory, which is seen from the longest text of each dictionary."""
    rows = _usual_rows(footer)
    if cautious_rows(footer) == rows:
        return rows
    names = sorted({chunk.path for chunk in footer.dictionaries})
    if any("." in name for name in names):  # in a list or a struct: not looked at
        return cautious_rows(footer)
    longest = 1
    with open_file(names) as file:
        for group in range(len(footer.groups)):
            for batch in islice(file.iter_batches(1, row_groups=[group], columns=names), 1):
                longest = max(longest, sum(map(longest_text, batch.columns)))
    return min(rows, max(_MOST_BYTES // longest, 1))


def _texts_of(group: Group) -> Iterator[int]:
    """Yield the most bytes that the texts of a row take in each column with a dictionary."""
    for chunk in group.chunks:
        if chunk.has_dictionary and chunk.is_text:
            yield chunk.size * max(chunk.values // max(group.rows, 1), 1)


def longest_text(column: pyarrow.Array) -> int:
    """Return the bytes of the longest text of a column, or of its dictionary; very many for another one."""
    texts = array_texts(getattr(column, "dictionary", column))
    return _MOST_BYTES if texts is None else int(texts.sizes.max(initial=0))


def _usual_rows(footer: Footer) -> int:
    size = sum(group.size for group in footer.groups)
    row_size = max(size // max(footer.rows, 1), 1)
    widest = max((sum(chunk.row for chunk in group.chunks) for group in footer.groups), default=0)
    most = max(_MOST_BYTES // max(widest, 1), 1)
    return min(max(_BATCH_BYTES // row_size, _LEAST_ROWS), _MOST_ROWS, most)
