"""Decides how many rows of a Parquet file are held in memory at once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from tpuctl.data.tables.arrow_values import array_texts

if TYPE_CHECKING:
    import pyarrow.parquet

_BATCH_BYTES, _LEAST_ROWS, _MOST_ROWS = 2 << 20, 16, 8192
"""Size of a batch of rows in memory, about."""
_DICTIONARY_BYTES, _DICTIONARY_ROWS = 1 << 26, 256
"""Size of a batch whose texts are in a dictionary, at most; and its rows where no length is known."""
_TEXT = "BYTE_ARRAY"

Open = Callable[[list[str]], Any]
"""Opens the file so that these columns are read as their dictionaries."""


def cautious_rows(metadata: pyarrow.parquet.FileMetaData) -> int:
    """Return a number of rows that surely fit in memory.

    A dictionary may hold one long text for all rows: what a row takes is then not in the metadata, only
    that no text is longer than its column's chunk.
    """
    longest: int = max((chunk.total_uncompressed_size for chunk in _dictionaries(metadata)), default=0)
    rows = _usual_rows(metadata)
    if longest <= 0:
        return rows
    return min(rows, _DICTIONARY_ROWS, max(_DICTIONARY_BYTES // longest, _LEAST_ROWS))


def batch_rows(metadata: pyarrow.parquet.FileMetaData, open_file: Open) -> int:
    """Return as many rows as fit in memory, which is seen from the longest text of each dictionary."""
    rows = _usual_rows(metadata)
    if cautious_rows(metadata) == rows:
        return rows
    names = sorted({chunk.path_in_schema for chunk in _dictionaries(metadata)})
    if any("." in name for name in names):  # in a list or a struct: not looked at
        return cautious_rows(metadata)
    longest = 1
    with open_file(names) as file:
        for group in range(metadata.num_row_groups):
            for batch in islice(file.iter_batches(1, row_groups=[group], columns=names), 1):
                longest = max(longest, *(_longest(column) for column in batch.columns))
    return min(rows, max(_DICTIONARY_BYTES // longest, _LEAST_ROWS))


def _longest(column: pyarrow.Array) -> int:
    texts = array_texts(getattr(column, "dictionary", column))
    return _DICTIONARY_BYTES if texts is None else int(texts.sizes.max(initial=0))


def _usual_rows(metadata: pyarrow.parquet.FileMetaData) -> int:
    size = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    row_size: int = max(size // max(metadata.num_rows, 1), 1)
    return min(max(_BATCH_BYTES // row_size, _LEAST_ROWS), _MOST_ROWS)


def _dictionaries(metadata: pyarrow.parquet.FileMetaData) -> list[pyarrow.parquet.ColumnChunkMetaData]:
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    chunks = (group.column(place) for group in groups for place in range(metadata.num_columns))
    return [chunk for chunk in chunks if chunk.has_dictionary_page and chunk.physical_type == _TEXT]
