"""How many rows of a Parquet file are in memory at once: by its footer, and by the texts in it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tpuctl.data.sources.registry import batch_rows, cautious_rows
from tpuctl.data.tables.parquet import Chunk, Footer, Group

MIB = 1 << 20


def footer(rows: int, size: int, *texts: int, path: str = "t", is_text: bool = True) -> Footer:
    """Return a footer of rows of so many bytes, and of a dictionary of texts in each group."""
    chunks = [Chunk(path, is_text, True, text, 0) for text in texts]
    plain = Chunk("n", False, False, size, 0)
    return Footer(rows, (Group(size, (plain,)), *(Group(0, (chunk,)) for chunk in chunks)))


def never(names: list[str]) -> Any:
    """Open no file."""
    raise AssertionError(names)


@pytest.mark.parametrize(
    ("rows", "size", "most"),
    [
        (1000, 1000 * 2048, 1024),
        (1000, 1000 * 256, 8192),
        (1000, 1000 * 255, 8192),
        (1000, 1000 * 257, 8160),
        (10, 10 * (MIB // 8), 16),
        (10, 10 * MIB, 16),
        (10, 10 * (MIB // 9), 18),
        (0, 0, 8192),
        (5, 4, 8192),
    ],
)
def test_rows_of_2_mib_are_held_but_16_at_least_and_8192_at_most(rows: int, size: int, most: int) -> None:
    assert cautious_rows(footer(rows, size)) == most
    assert batch_rows(footer(rows, size), never) == most


@pytest.mark.parametrize(
    ("longest", "rows"),
    [
        (1, 256),
        (64 * MIB // 256, 256),
        (64 * MIB // 255, 255),
        (MIB, 64),
        (4 * MIB, 16),
        (5 * MIB, 12),
        (64 * MIB, 1),
        (0, 8192),
    ],
)
def test_a_dictionary_may_hold_one_text_as_long_as_it_is(longest: int, rows: int) -> None:
    assert cautious_rows(footer(1000, 1000, longest)) == rows
    assert cautious_rows(footer(1000, 1000, longest, 0)) == rows, "the longest counts"
    assert cautious_rows(footer(1000, 1000, longest, is_text=False)) == 8192


def test_a_text_within_a_list_is_not_looked_for() -> None:
    assert batch_rows(footer(1000, 1000, MIB, path="t.list.item"), never) == 64


@pytest.mark.parametrize(
    ("groups", "rows"),
    [
        ([["a", "b"], ["c"]], 8192),
        ([["a", "b"], ["c" * 8192]], 8192),
        ([["a", "b"], ["c" * 8193]], 8191),
        ([["c" * 65_536, "b"], ["c"]], 1024),
        ([["a", "b" * 65_536], ["c"]], 1024),
        ([["c" * (5 * MIB)], ["a"]], 12),
    ],
)
def test_the_longest_text_of_each_dictionary_says_how_many_rows_fit(
    groups: list[list[str]], rows: int
) -> None:
    stream = io.BytesIO()
    with parquet.ParquetWriter(stream, pa.schema({"t": pa.string(), "n": pa.int64()})) as writer:
        for texts in groups:
            writer.write_table(pa.table({"t": texts, "n": list(range(len(texts)))}))
    opened: list[list[str]] = []

    @contextmanager
    def open_file(names: list[str]) -> Iterator[Any]:
        opened.append(names)
        yield parquet.ParquetFile(stream, read_dictionary=names)

    assert batch_rows(footer(1000, 1000, *[MIB] * (len(groups) - 1)), open_file) == rows
    assert opened == [["t"]]


def test_a_dictionary_that_is_read_as_something_else_is_taken_for_the_longest() -> None:
    class File:
        def iter_batches(self, size: int, **_: Any) -> Iterator[Any]:
            yield pa.record_batch({"t": [1, 2]})

    @contextmanager
    def open_file(names: list[str]) -> Iterator[Any]:
        yield File()

    assert batch_rows(footer(1000, 1000, MIB), partial(open_file)) == 1
