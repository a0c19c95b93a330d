from __future__ import annotations

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.source_trees import examples, items, no_progress, opened, write_image
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.features import Image, Label, Several, Tensor, Text
from tpuctl.data.source import Source
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
