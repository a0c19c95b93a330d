from __future__ import annotations

import datetime
import decimal
import math
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.source_trees import examples, items, no_progress, only_bad, opened, png, produce
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.plan import plan
from tpuctl.data.schema.features import Feature, Image, Label, Several, Tensor, Text
from tpuctl.data.source import Source
from tpuctl.data.sources.parquet_files import read_parquet
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import ConfigError, UsageError


def read(path: Path, options: Options = Options()) -> Source:  # noqa: B008
    return opened(read_parquet(LocalTree.at(path), options, no_progress))


def write(tmp_path: Path, columns: dict[str, Any], name: str = "rows.parquet", **how: Any) -> Path:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), tmp_path / name, **how)
    return tmp_path / name


@pytest.mark.parametrize(
    ("column", "feature", "first"),
    [
        (pa.array([-1, 2], pa.int8()), Tensor("int8"), [-1]),
        (pa.array([1, 2], pa.uint32()), Tensor("uint32"), [1]),
        (pa.array([1, None], pa.int64()), Tensor("float32"), [1.0]),
        (pa.array([0.5, None], pa.float64()), Tensor("float32"), [0.5]),
        (pa.array([True, False]), Tensor("bool"), [1]),
        (pa.array(["größe", None]), Text(), ["größe".encode()]),
        (pa.array(["a", "b"]).dictionary_encode(), Text(), [b"a"]),
        (pa.array([b"\xff", b""]), Tensor("string"), [b"\xff"]),
        (pa.array([[1, 2], []], pa.list_(pa.int32())), Tensor("int32", (None,)), [1, 2]),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2)), Tensor("float32", (2,)), [1.0, 2.0]),
        (pa.array([["a"], None]), Tensor("string", (None,)), [b"a"]),
        (pa.array([png(100), png(200)]), Image((None, None, 3)), [png(100)]),
        (pa.array([{"bytes": png(100), "path": "a.png"}] * 2), Image((None, None, 3)), [png(100)]),
    ],
)
def test_the_schema_says_the_types(tmp_path: Path, column: Any, feature: Feature, first: list[Any]) -> None:
    source = read(write(tmp_path, {"x": column}))
    assert source.features == {"x": feature}
    assert examples(source)[0] == {"x": first}
    assert len(examples(source)) == 2


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([[True], [False]]), "list<"),
        (pa.array([[True]], pa.list_(pa.bool_(), 1)), "fixed_size_list<"),
        (pa.array([[b"a"]]), "list<"),
        (pa.array([[[1]]]), "list<"),
        (pa.array([[{"a": 1}]]), "list<"),
        (pa.array([{"a": 1}]), "struct<"),
    ],
)
def test_lists_of_anything_but_numbers_and_texts_are_refused(tmp_path: Path, column: Any, kind: str) -> None:
    with pytest.raises(UsageError, match=f"^The column 'x' holds {kind}.*>.*, which no record can"):
        read(write(tmp_path, {"x": column}))


@pytest.mark.parametrize("field", [{"data": b"a"}, {"bytes": "a"}])
def test_a_struct_without_a_field_bytes_of_bytes_is_not_taken_for_pictures(
    tmp_path: Path, field: dict[str, object]
) -> None:
    with pytest.raises(UsageError, match=r"^The column 'x' holds struct<") as caught:
        read(write(tmp_path, {"x": pa.array([field])}))
    assert caught.value.hint == "To have it as text: --type x=text."


def test_labels_and_splits_and_row_groups(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"text": list("abcde"), "label": list("xyxyx")},
        "in/train-00000-of-00002.parquet",
        row_group_size=2,
    )
    write(tmp_path, {"text": list("fg"), "label": list("zx")}, "in/train-00001-of-00002.parquet")
    write(tmp_path, {"text": ["h"], "label": ["y"]}, "in/test-00000-of-00001.parquet")
    source = read(tmp_path / "in")
    assert [(part.split, part.records) for part in source.parts] == [("test", 1), ("train", 7)]
    assert source.features["label"] == Label(("x", "y", "z"))
    assert source.supervised == ("text", "label")
    assert [(record["text"][0].decode(), record["label"][0]) for record in examples(source)] == list(
        zip("habcdefg", (1, 0, 1, 0, 1, 0, 2, 0), strict=True)
    )
    assert source.labels is not None
    assert source.labels.tolist() == [1, 0, 1, 0, 1, 0, 2, 0]
    assert items(source, 7, 0) == [items(source)[7], items(source)[0]]
    real = sum(len(record) for record in items(source) if isinstance(record, bytes))
    assert sum(part.size for part in source.parts) == pytest.approx(real, rel=0.2)


def test_dates_and_decimals_are_taken_as_what_the_user_says(tmp_path: Path) -> None:
    file = write(tmp_path, {"day": [datetime.date(2026, 1, 2)], "price": [decimal.Decimal("1.50")]})
    with pytest.raises(
        UsageError, match=r"The column 'day' holds date32\[day\], which no record can"
    ) as caught:
        read(file)
    assert "--type day=text" in caught.value.hint
    source = read(file, Options(types={"day": "text", "price": "float"}))
    assert examples(source) == [{"day": [b"2026-01-02"], "price": [1.5]}]


def test_a_row_that_does_not_fit_is_named(tmp_path: Path) -> None:
    source = read(write(tmp_path, {"x": list(range(9)), "label": ["a"] * 8 + [None]}, row_group_size=3))
    assert only_bad(source) == "row 9 of 'rows.parquet' has no label in the column 'label'"
    source = read(write(tmp_path, {"x": [1, 2], "label": [0.5, math.nan]}))
    assert only_bad(source) == "row 2 of 'rows.parquet' has 'nan' in the column 'label', which holds numbers"
    source = read(write(tmp_path, {"x": [1, None]}, write_statistics=False))
    (bad,) = (record for record in items(source) if isinstance(record, BadRecord))
    assert (bad.line, bad.hint) == (2, "Give --type x=float")
    source = read(write(tmp_path, {"image": [png(100), b"no picture"]}))
    assert "has an image in the column 'image' which is a text, not an image" in only_bad(source)


@pytest.mark.parametrize("size", [0, 3, 200, -20])
def test_a_truncated_file_is_named(tmp_path: Path, size: int) -> None:
    file = write(tmp_path, {"x": list(range(1000))})
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(
        UsageError, match=r"'rows.parquet' is not a Parquet file, or a damaged one: .*[^.]\.$"
    ):
        read(file)


def test_a_damaged_page_is_named_and_ends_the_conversion(tmp_path: Path) -> None:
    file = write(tmp_path, {"x": [f"text {number}" for number in range(5000)]}, use_dictionary=False)
    data = bytearray(file.read_bytes())
    data[2000:4000] = bytes(2000)
    file.write_bytes(data)
    with pytest.raises(UsageError, match=r"'rows.parquet' is not a Parquet file, or a damaged one"):
        items(read(file))


def test_files_of_other_columns_and_options_that_do_not_fit_are_named(tmp_path: Path) -> None:
    write(tmp_path, {"x": [1]}, "in/a.parquet")
    write(tmp_path, {"x": [1.5]}, "in/b.parquet")
    with pytest.raises(
        UsageError, match=r"The schema of 'b.parquet' differs from that of 'a.parquet' in 'x' \(int64\)"
    ):
        read(tmp_path / "in")
    with pytest.raises(UsageError, match="has no column 'y'"):
        read(tmp_path / "in" / "a.parquet", Options(label="y"))
    with pytest.raises(UsageError, match="has no records"):
        read(write(tmp_path, {"x": pa.array([], pa.int64())}))


def test_a_file_that_changes_under_way_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, {"x": [1, 2]})
    source = read(file)
    write(tmp_path, {"x": [1, 2, 3]})
    with pytest.raises(UsageError, match=r"'rows.parquet' has changed"):
        items(source)
    with pytest.raises(UsageError, match=r"'rows.parquet' has changed"):
        source.check()


def test_the_same_rows_give_the_same_bytes_wherever_they_lie(tmp_path: Path) -> None:
    columns = {"x": list(range(100)), "label": ["a", "b"] * 50}
    for place in ("one", "two"):
        write(tmp_path / place, columns)
    first, second = (produce(plan(tmp_path / place, name="rows", shards=3)) for place in ("one", "two"))
    assert first == second


def test_without_pyarrow_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, {"x": [1]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match="Parquet needs pyarrow") as caught:
        read(file)
    assert "pip install pyarrow" in caught.value.hint


def test_a_list_of_classes_is_several_labels(tmp_path: Path) -> None:
    path = write(tmp_path, {"tags": [["b", "a"], [], None], "x": [1, 2, 3]})
    source = read(path, Options(label="tags"))
    assert source.features["tags"] == Several(Label(("a", "b")))
    assert [example["tags"] for example in examples(source)] == [[1, 0], [], []]
