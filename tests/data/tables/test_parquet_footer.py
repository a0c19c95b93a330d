"""The footer as pyarrow's own accessors read it, and damages of it that end a process with these."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.source_trees import items, no_progress
from tpuctl.data.options import Options
from tpuctl.data.sources.parquet_files import read_parquet
from tpuctl.data.tables.parquet_footer import read_footer
from tpuctl.data.trees.local import LocalRanges, LocalTree
from tpuctl.data.trees.tree import ListedFile
from tpuctl.errors import TpuctlError

TABLE = pa.table(
    {
        "n": pa.array([1, None, 3] * 20),
        "t": ["a", "b", None] * 20,
        "x": [0.5] * 60,
        "v": [[1, 2], [], [3]] * 20,
        "label": ["p", "q", "p"] * 20,
    }
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.parquet"
    pq.write_table(TABLE, path, row_group_size=20)
    return path


def test_it_says_what_pyarrow_says(file: Path) -> None:
    ranges: LocalRanges = LocalTree.at(file).open(ListedFile(file.name, file.stat().st_size, 0))
    footer = read_footer(ranges, file.stat().st_size)
    ranges.close()
    metadata = pq.ParquetFile(file).metadata
    assert footer.rows == metadata.num_rows == 60
    assert footer.with_nulls == {"n", "t", "v"}, "an empty list has no item: that counts as a null"
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert [group.size for group in footer.groups] == [group.total_byte_size for group in groups]
    assert [tuple(chunk) for group in footer.groups for chunk in group.chunks] == [
        (
            chunk.path_in_schema,
            chunk.physical_type == "BYTE_ARRAY",
            chunk.has_dictionary_page,
            chunk.total_uncompressed_size,
            chunk.statistics.null_count,
        )
        for group in groups
        for chunk in (group.column(place) for place in range(metadata.num_columns))
    ]


def test_random_damage_of_the_footer_ends_in_words(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """About one of 200 such damages ended the process, when pyarrow read the metadata of a column."""
    monkeypatch.setattr(LocalTree, "settle", lambda tree, newest: None)  # nothing is written later
    whole, generator = file.read_bytes(), random.Random(1)
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for _ in range(250):
        data = bytearray(whole)
        for _ in range(generator.randint(1, 3)):
            data[generator.randrange(begin, len(data) - 8)] = generator.randrange(256)
        file.write_bytes(data)
        try:
            source = read_parquet(LocalTree.at(file), Options(), no_progress)
            try:
                if sum(part.records for part in source.parts) < 1000:
                    items(source)
            finally:
                source.close()
        except TpuctlError:
            continue


@pytest.mark.parametrize("middle", [None, b"", b"\xff\xff\xff\x7f", bytes(8), b"\x0c\x00\x00\x00"])
def test_a_file_without_a_footer_is_one_in_words(tmp_path: Path, middle: bytes | None) -> None:
    (tmp_path / "a.parquet").write_bytes(b"" if middle is None else b"PAR1" + middle + b"PAR1")
    with pytest.raises(TpuctlError, match=r"'a\.parquet' is not a Parquet file"):
        read_parquet(LocalTree.at(tmp_path / "a.parquet"), Options(), no_progress)
