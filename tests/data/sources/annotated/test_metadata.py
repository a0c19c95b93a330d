"""Rows of values beside files: types of columns, cells that a record lacks, and the order of values."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.source_trees import examples, items, no_progress, opened, write_image
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.features import Image, Label, Several, Tensor, Text
from tpuctl.data.source import Source
from tpuctl.data.sources.annotated import fields
from tpuctl.data.sources.annotated import records as module
from tpuctl.data.sources.annotated.fields import ValueStore
from tpuctl.data.sources.annotated.records import Rows
from tpuctl.data.sources.registry import open_source
from tpuctl.errors import UsageError

LINE = "line 3 of 'metadata.jsonl'"
NOT_THERE = ", which is not there"
WHOLE = ", which holds whole numbers"
TWO_FILES = {"file_name": "a.png", "image_file_name": "b.png", "n": 1}
SHORT = "line 3 of 'metadata.csv' has 1 column, and the header has 2"


def read(root: Path, options: Options = Options()) -> Source:  # noqa: B008
    return opened(open_source(root, None, options, no_progress))


def write(root: Path, *rows: object, name: str = "metadata.jsonl") -> Path:
    """Write pictures a.png, b.png and sub/c.png, and a table."""
    for shade, picture in enumerate(("a.png", "b.png", "sub/c.png")):
        write_image(root / picture, shade=shade)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (root / name).write_text("".join(f"{line}\n" for line in lines))
    return root


def test_a_row_and_the_picture_that_it_names_are_a_record(tmp_path: Path) -> None:
    rows = [
        {"file_name": "b.png", "text": "two", "score": 0.5, "label": "dog"},
        {"file_name": "sub/c.png", "text": "three", "score": 1, "label": "cat"},
    ]
    source = read(write(tmp_path, *rows))
    assert (source.kind, source.bad) == ("metadata", ())
    assert source.features == {
        "image": Image((None, None, 3)),
        "text": Text(),
        "score": Tensor("float32"),
        "label": Label(("cat", "dog")),
    }
    assert source.labels is not None
    assert source.labels.tolist() == [1, 0]
    assert examples(source) == [
        {"image": [(tmp_path / name).read_bytes()], "text": [text], "score": [score], "label": [label]}
        for name, text, score, label in (("b.png", b"two", 0.5, 1), ("sub/c.png", b"three", 1.0, 0))
    ]


def test_a_table_in_csv_has_types_and_several_labels(tmp_path: Path) -> None:
    rows = ["file_name,age,tags", "a.png,3,red|blue", "b.png,4,", "sub/c.png,5,blue; green"]
    options = Options(types={"tags": "labels"})
    source = read(write(tmp_path, *rows, name="metadata.csv"), options)
    assert source.features["tags"] == Several(Label(("blue", "green", "red")))
    assert source.features["age"] == Tensor("int64")
    assert [record["tags"] for record in examples(source)] == [[2, 0], [], [0, 1]]


def test_splits_are_folders_and_other_files_have_fields_of_their_own(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write(tmp_path / split, {"file_name": "a.png", "depth_file_name": "b.png"})
    source = read(tmp_path)
    assert [(part.split, part.records) for part in source.parts] == [("test", 1), ("train", 1)]
    assert list(source.features) == ["image", "depth"]
    assert examples(source)[0]["depth"] == [(tmp_path / "test" / "b.png").read_bytes()]


def test_the_labels_of_records_stay_theirs_when_splits_are_sorted(tmp_path: Path) -> None:
    for split, label in (("train", "x"), ("test", "y"), ("val", "z")):
        write(tmp_path / split, {"file_name": "a.png", "label": label})
    source = read(tmp_path)
    assert source.labels is not None
    assert source.labels.tolist() == [record["label"][0] for record in examples(source)] == [1, 0, 2]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"file_name": "d.png", "n": 1}, f"{LINE} names 'd.png', which is not there"),
        ({"file_name": "../a.png", "n": 1}, f"{LINE} names '../a.png', which is not there"),
        ({"file_name": "metadata.jsonl", "n": 1}, f"{LINE} names 'metadata.jsonl'{NOT_THERE}"),
        ({"file_name": None, "n": 1}, f"{LINE} names 'None', which is not there"),
        ({"n": 1}, f"{LINE} has no file_name"),
        ("{", f"{LINE} is not JSON (Input data was truncated)"),
        ("[1]", f"{LINE} is not a JSON object"),
        (TWO_FILES, f"{LINE} names two files of the field 'image'"),
        ({"file_name": "sub/c.png", "n": "x"}, f"{LINE} has 'x' in the column 'n'{WHOLE}"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_used_is_named(tmp_path: Path, row: object, why: str) -> None:
    source = read(write(tmp_path, {"file_name": "a.png", "n": 1}, {"file_name": "b.png", "n": 2}, row))
    assert [str(bad) for bad in (*source.bad, *items(source)) if isinstance(bad, BadRecord)] == [why]
    assert len(examples(source)) == 2


def test_a_row_of_csv_that_is_too_short_is_named(tmp_path: Path) -> None:
    source = read(write(tmp_path, "file_name,n", "a.png,1", "b.png", name="metadata.csv"))
    assert [str(bad) for bad in source.bad] == [SHORT]


@pytest.mark.parametrize("content", ["", "\n", "{}\n", "nothing"])
def test_a_table_without_records_is_an_error(tmp_path: Path, content: str) -> None:
    write(tmp_path)
    (tmp_path / "metadata.jsonl").write_text(content)
    with pytest.raises(UsageError, match="has no record that can be used"):
        read(tmp_path)


def test_a_column_that_is_called_as_the_files_field_is_an_error(tmp_path: Path) -> None:
    rows = [{"file_name": "a.png", "image": "one"}, {"file_name": "b.png", "image": "two"}]
    with pytest.raises(UsageError, match="The column 'image' has the name of a field of files"):
        read(write(tmp_path, *rows))


def test_a_column_of_file_names_that_gives_no_field_a_name_is_an_error(tmp_path: Path) -> None:
    rows = [{"file_name": "a.png", "_file_name": "b.png"}, {"file_name": "b.png", "_file_name": "a.png"}]
    with pytest.raises(UsageError, match=r"The column '_file_name' of 'metadata\.jsonl' names no field"):
        read(write(tmp_path, *rows))
    with pytest.raises(UsageError, match=r"The column '_file_name' of 'metadata\.csv' names no field"):
        read(write(tmp_path / "csv", "_file_name", "a.png", name="metadata.csv"))


def write_parquet(folder: Path, **columns: object) -> Path:
    write(folder)
    pq.write_table(pa.table(columns), folder / "metadata.parquet")
    (folder / "metadata.jsonl").unlink(missing_ok=True)
    return folder


def test_a_table_in_parquet_is_that_in_json(tmp_path: Path) -> None:
    columns = {"file_name": ["b.png", "sub/c.png"], "text": ["two", None], "n": [1, 2], "tags": [["x"], []]}
    table = read(write_parquet(tmp_path / "a", **columns))
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    lines = read(write(tmp_path / "b", *rows))
    assert (table.kind, table.features, table.bad) == (lines.kind, lines.features, lines.bad)
    assert examples(table) == examples(lines)


def test_a_row_of_parquet_that_cannot_be_used_is_named_by_its_number(tmp_path: Path) -> None:
    days = [datetime.date(2026, 1, day) for day in (1, 2)]
    source = read(write_parquet(tmp_path, file_name=["a.png", "d.png"], day=days))
    assert [str(bad) for bad in source.bad] == [
        "row 2 of 'metadata.parquet' names 'd.png', which is not there"
    ]
    assert [record["day"] for record in examples(source)] == [[b"2026-01-01"]]
    write_parquet(tmp_path, file_name=["a.png"], days=[days])
    assert examples(read(tmp_path))[0]["days"] == [b"2026-01-01", b"2026-01-02"]


def test_a_damaged_table_in_parquet_is_named(tmp_path: Path) -> None:
    write_parquet(tmp_path, file_name=["a.png"])
    (tmp_path / "metadata.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(UsageError, match=r"'metadata\.parquet' is not a Parquet file, or a damaged one"):
        read(tmp_path)


def test_a_parquet_file_of_that_name_without_pictures_is_a_table(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "metadata.parquet")
    assert read(tmp_path).kind == "parquet"


@pytest.fixture
def rows() -> Iterator[Rows]:
    made = Rows("pets")
    yield made
    made.close()


def filled(rows: Rows, *values: dict[str, object]) -> Rows:
    for number, row in enumerate(values):
        rows.add(("train", number), row)
    rows.finish()
    return rows


@pytest.mark.parametrize("block", [4096, 1, 2, 3])
def test_rows_come_in_their_order_with_their_facts(
    rows: Rows, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    filled(rows, {"a": 1}, {"b": "x", "a": 2.5}, {}, {"c": [1, None]}, {"b": 1 << 70})
    assert len(rows) == 5
    assert rows.names == {"a": 0, "b": 1, "c": 2}
    assert list(rows) == [
        (("train", 0), [1]),
        (("train", 1), [2.5, "x"]),
        (("train", 2), [None, None]),
        (("train", 3), [None, None, [1, None]]),
        (("train", 4), [None, 1 << 70, None]),
    ]


def test_types_are_inferred_or_given_and_short_rows_lack_their_last_cells(rows: Rows) -> None:
    filled(rows, {"n": 1}, {"n": 2, "t": "x"}, {"t": "y", "n": 3})
    typed = rows.typed(Options(types={"n": "float"}), ["image"])
    assert typed.features == {"n": Tensor("float32"), "t": Text()}
    assert (typed.label, typed.labels) == ("", None)
    assert [typed.values(row) for _, row in rows][1:] == [[2.0, "x"], [3.0, "y"]]


def test_a_value_that_is_not_of_its_type_is_bad(rows: Rows) -> None:
    filled(rows, *({"n": number} for number in range(9)), {"n": "word"})
    typed = rows.typed(Options(types={"n": "int"}), [])
    listed = [typed.values(row) for _, row in rows]
    assert listed[:9] == [[number] for number in range(9)]
    assert isinstance(listed[9], str)
    assert "word" in listed[9]


def test_a_label_has_the_classes_of_all_rows(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SAMPLE", 2)
    filled(rows, *({"label": name, "n": number} for number, name in enumerate("cabcab")))
    typed = rows.typed(Options(), [])
    assert typed.features == {"label": Label(("a", "b", "c")), "n": Tensor("int64")}
    assert typed.label == "label"
    assert typed.labels is not None
    assert typed.labels.tolist() == [2, 0, 1, 2, 0, 1]


@pytest.mark.parametrize(
    ("values", "what"), [([0.5, 1.5], "fractions"), ([None, None], "nothing"), (["", ""], "nothing")]
)
def test_a_label_without_classes_is_refused_if_a_user_named_it(
    rows: Rows, values: list[object], what: str
) -> None:
    filled(rows, *({"label": value} for value in values))
    with pytest.raises(UsageError) as refused:
        rows.typed(Options(label="label"), [])
    assert refused.value.message == f"The column 'label' of 'pets' holds {what}: they are no classes."
    assert refused.value.hint == ("To learn numbers, give its type: --label label --type label=float.")
    assert refused.value.facts == {"column": "label"}
    if what == "fractions":
        typed = rows.typed(Options(), [])
        assert (typed.features, typed.labels) == ({"label": Tensor("float32")}, None)
        given = rows.typed(Options(label="label", types={"label": "float"}), [])
        assert (given.label, given.labels) == ("label", None)


def test_types_are_those_of_a_sample_from_the_first_row_on(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SAMPLE", 5)
    filled(rows, *({"n": 0.5 if number % 2 else number} for number in range(10)))
    assert rows.typed(Options(), []).features == {"n": Tensor("int64")}, "each second row is read"


def test_a_field_of_files_is_one_that_options_may_not_name_twice(rows: Rows) -> None:
    filled(rows, {"n": 1})
    with pytest.raises(UsageError, match="missing"):
        rows.typed(Options(types={"missing": "int"}), ["image"])


@pytest.fixture
def store() -> Iterator[ValueStore]:
    made = ValueStore()
    yield made
    made.close()


@pytest.mark.parametrize("batch", [4096, 1, 2, 3])
def test_values_are_read_in_any_order(store: ValueStore, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "_BATCH", batch)
    records = [[1, "text"], [2.5, b"bytes"], [[1, 2], []], []]
    for record in records:
        store.add(record)
    store.finish()
    assert len(store) == 4
    assert store.read(np.array([3, 0, 2, 1, 0])) == [records[place] for place in (3, 0, 2, 1, 0)]


def test_an_order_says_which_of_the_added_is_which(store: ValueStore) -> None:
    for number in range(4):
        store.add([number])
    store.finish(np.array([2, 0, 3]))
    assert store.read(np.array([0, 1, 2])) == [[2], [0], [3]]


def test_the_mean_size_is_that_of_what_is_stored(store: ValueStore) -> None:
    assert (len(store), store.mean_size) == (0, 0)
    for text in ("x" * 10, "x" * 20):
        store.add([text])  # MessagePack has a byte for the list, and one for a text
    assert store.mean_size == 17
