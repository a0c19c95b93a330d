"""What a row takes in memory is read from the pages, whatever the footer of a file says."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.source_trees import examples, no_progress, opened
from tests.data.tables.test_parquet_footer import Kept, far_field, field, listed, varint, zigzag
from tests.data.test_memory import peak_of_its_own
from tpuctl.data.options import Options
from tpuctl.data.source import Source
from tpuctl.data.sources.parquet_files import read_parquet
from tpuctl.data.sources.registry import batch_rows, cautious_rows
from tpuctl.data.tables import parquet
from tpuctl.data.tables.parquet import Footer, checked_footer, read_footer
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError

MIB = 1 << 20
I32, BINARY, LIST, STRUCT = 5, 8, 9, 12


def written(columns: dict[str, Any], **how: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, **{"compression": "zstd", "store_schema": False, **how})
    return stream.getvalue()


def parsed(data: bytes) -> Footer:
    return checked_footer(Kept(data), read_footer(Kept(data), len(data)))


def read(path: Path) -> Source:
    return opened(read_parquet(LocalTree.at(path), Options(), no_progress))


def rows_of(data: bytes) -> int:
    """Return how many rows are read at once."""

    def open_file(names: list[str]) -> pq.ParquetFile:
        return pq.ParquetFile(io.BytesIO(data), read_dictionary=names)

    return batch_rows(parsed(data), open_file)


def test_usual_files_are_read_as_before() -> None:
    columns = {"n": list(range(9000)), "t": ["text"] * 9000, "v": [[1, 2], []] * 4500}
    for how in ({}, {"use_dictionary": False}, {"data_page_version": "2.0"}, {"data_page_size": 100}):
        data = written(columns, **how)
        claimed = read_footer(Kept(data), len(data))
        checked = parsed(data)
        assert [tuple(chunk[:3]) for chunk in checked.groups[0].chunks] == [
            tuple(chunk[:3]) for chunk in claimed.groups[0].chunks
        ]
        assert abs(checked.groups[0].size - claimed.groups[0].size) < 100_000
        assert rows_of(data) > 1000


def test_rows_that_are_much_longer_than_most_are_few_at_once() -> None:
    texts = pa.chunked_array([pa.array(["a"] * 100_000), pa.array(["x" * MIB] * 20)])
    assert rows_of(written({"t": texts}, use_dictionary=False, data_page_size=MIB, write_batch_size=1)) <= 64


def test_a_text_that_repeats_the_one_before_is_as_long_as_its_page() -> None:
    data = written({"t": ["x" * MIB] * 200}, use_dictionary=False, column_encoding={"t": "DELTA_BYTE_ARRAY"})
    assert len(data) < 100_000
    assert rows_of(data) <= 64


def test_a_value_of_fixed_length_takes_it_also_where_it_is_missing() -> None:
    data = written({"b": pa.nulls(1000, pa.binary(MIB))})
    assert len(data) < 1000
    assert rows_of(data) <= 64


def test_a_dictionary_that_the_footer_hides_is_seen() -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 600, pa.int32()), pa.array(["x" * MIB]))
    data = written({"t": texts})
    footer = read_footer(Kept(data), len(data))
    (group,) = footer.groups
    hidden = tuple(chunk._replace(has_dictionary=False, size=1, is_text=False) for chunk in group.chunks)
    lying = footer._replace(groups=(group._replace(chunks=hidden, size=1),))
    assert cautious_rows(lying) > 600
    assert cautious_rows(checked_footer(Kept(data), lying)) <= 64


def test_pages_and_rows_that_fill_the_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = written({"t": ["x" * MIB], "u": ["y" * MIB]}, use_dictionary=False)
    monkeypatch.setattr(parquet, "_MOST_PAGES", 2 * MIB)
    (tmp_path / "rows.parquet").write_bytes(data)
    with pytest.raises(
        UsageError, match=r"'rows\.parquet' is not .* pages of it unpack to more than 2097152 bytes"
    ):
        read(tmp_path / "rows.parquet")
    monkeypatch.setattr(parquet, "_MOST_PAGES", 4 * MIB)
    monkeypatch.setattr(parquet, "LARGEST", MIB)
    with pytest.raises(
        UsageError, match=r"'rows\.parquet' is not .* a row of it may have more than 1048576 bytes"
    ):
        read(tmp_path / "rows.parquet")


def test_rows_of_texts_that_unpack_to_much_are_read_in_little_memory(tmp_path: Path) -> None:
    rows, size = 600, MIB
    path = tmp_path / "rows.parquet"
    for encoding in ("PLAIN", "DELTA_BYTE_ARRAY"):
        texts = pa.chunked_array([pa.array(["a"] * 50_000), pa.array(["x" * size] * rows)])
        path.write_bytes(
            written({"t": texts}, use_dictionary=False, column_encoding={"t": encoding}, write_batch_size=64)
        )
        assert path.stat().st_size < 2 * MIB
        assert peak_of_its_own(path) < rows * size


def element(name: bytes, *, children: int = 0, kind: int | None = None, repetition: int = 1) -> bytes:
    """Return a column of a schema."""
    content = b"" if kind is None else field(1, I32, zigzag(kind))
    content += field(3 if kind is None else 2, I32, zigzag(repetition))
    content += field(1, BINARY, varint(len(name)) + name)
    return content + (field(1, I32, zigzag(children)) if children else b"") + b"\0"


@pytest.mark.parametrize("depth", [98, 99, 100_000])
def test_columns_in_columns_are_read_to_a_depth(tmp_path: Path, depth: int) -> None:
    """Whatever limit the installed pyarrow has, or has not."""
    elements = [element(b"schema", children=1), *[element(b"g", children=1)] * depth, element(b"n", kind=2)]
    content = field(1, I32, zigzag(1)) + field(1, LIST, listed(STRUCT, *elements)) + field(1, 6, zigzag(0))
    content += field(1, LIST, listed(STRUCT)) + b"\0"
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + content + len(content).to_bytes(4, "little") + b"PAR1")
    why = "nested more than 100 levels deep" if depth > 98 else "has no records"
    with pytest.raises(UsageError, match=rf"'a\.parquet' .*{why}"):
        read(tmp_path / "a.parquet")


def test_lists_in_lists_are_damage(tmp_path: Path) -> None:
    content = far_field(50, LIST, b"\x19" * 5000) + b"\0"
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + content + len(content).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(UsageError, match=r"'a\.parquet' is not a Parquet file, or a damaged one: its footer"):
        read(tmp_path / "a.parquet")


def test_damaged_pages_are_named(tmp_path: Path) -> None:
    data = bytearray(written({"n": [1, 2, 3]}))
    data[4:12] = b"\xff" * 8
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(UsageError, match=r"'a\.parquet' is not a Parquet file, or a damaged one: its pages"):
        read(tmp_path / "a.parquet")


def test_a_header_longer_than_usual_is_read(tmp_path: Path) -> None:
    data = written({"t": ["x" * 4000, "y"]}, use_dictionary=False, write_statistics=True)
    (tmp_path / "a.parquet").write_bytes(data)
    assert examples(read(tmp_path / "a.parquet"))[1] == {"t": [b"y"]}
