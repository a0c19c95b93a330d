from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.source_trees import examples, items, no_progress, only_bad, opened, produce
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.plan import plan
from tpuctl.data.schema.features import Label, Several, Tensor, Text
from tpuctl.data.source import Observations, Source
from tpuctl.data.sources.json_lines import read_json_lines
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError


def read(tmp_path: Path, *lines: object, options: Options = Options(), name: str = "rows.jsonl") -> Source:  # noqa: B008
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    file = tmp_path / name
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return opened(read_json_lines(LocalTree.at(file), options, no_progress))


def column(name: str, source: Source) -> list[object]:
    return [decode(record)[name] for record in items(source) if isinstance(record, bytes)]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.ndjson.gz"])
def test_each_object_becomes_a_record_of_inferred_types(tmp_path: Path, name: str) -> None:
    source = read(
        tmp_path,
        {"n": 1, "x": 0.5, "ok": True, "text": "größe\n", "label": "b", "v": [1, 2], "w": ["a"]},
        {"label": "a", "w": [], "v": [-3], "text": None, "ok": False, "x": 2, "n": -1},
        name=name,
    )
    assert source.kind == "jsonl", "what a manifest says of the dataset's source"
    assert dict(source.features) == {
        "n": Tensor("int64"),
        "x": Tensor("float32"),
        "ok": Tensor("bool"),
        "text": Text(),
        "label": Label(("a", "b")),
        "v": Tensor("int64", (None,)),
        "w": Tensor("string", (None,)),
    }
    assert examples(source) == [
        {
            "label": [1],
            "n": [1],
            "ok": [1],
            "text": ["größe\n".encode()],
            "v": [1, 2],
            "w": [b"a"],
            "x": [0.5],
        },
        {"label": [0], "n": [-1], "ok": [0], "text": [b""], "v": [-3], "w": [], "x": [2.0]},
    ]


def test_lists_that_all_have_one_length_have_it_in_their_shape(tmp_path: Path) -> None:
    source = read(tmp_path, {"v": [1.5, 2]}, {"v": [3, 4]})
    observations = Observations()
    list(source.read(np.arange(2), observations))
    assert source.features["v"] == Tensor("float32", (None,))
    assert source.final_features(observations)["v"] == Tensor("float32", (2,))
    source = read(tmp_path, {"v": [1.5, 2]}, {"v": []})
    list(source.read(np.arange(2), observations))
    assert source.final_features(observations)["v"] == Tensor("float32", (None,))


def test_a_missing_number_is_nan_and_a_missing_text_empty(tmp_path: Path) -> None:
    source = read(tmp_path, {"n": 1, "t": "x"}, {}, {"n": None})
    assert column("n", source) == [
        [1.0],
        [pytest.approx(math.nan, nan_ok=True)],
        [pytest.approx(math.nan, nan_ok=True)],
    ]
    assert column("t", source) == [[b"x"], [b""], [b""]]


def test_objects_are_taken_as_their_json_when_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="The field 'o' holds objects") as caught:
        read(tmp_path, {"o": {"a": 1}})
    assert "--type o=text" in caught.value.hint
    source = read(tmp_path, {"o": {"a": 1}}, options=Options(types={"o": "text"}))
    assert column("o", source) == [[b'{"a":1}']]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"n": 1', "line 3 of 'rows.jsonl' is not JSON ("),
        ('{"n": NaN}', "line 3 of 'rows.jsonl' is not JSON (NaN is no JSON number; write null)"),
        ("[1, 2]", "line 3 of 'rows.jsonl' is not a JSON object"),
        (
            '{"n": "one", "label": 1}',
            "line 3 of 'rows.jsonl' has 'one' in the column 'n', which holds whole numbers",
        ),
        (
            '{"n": 1.5, "label": 1}',
            "line 3 of 'rows.jsonl' has '1.5' in the column 'n', which holds whole numbers",
        ),
        ('{"n": true, "label": 1}', "line 3 of 'rows.jsonl' has 'True' in the column 'n'"),
        ('{"n": 1}', "line 3 of 'rows.jsonl' has no label in the column 'label'"),
        (
            '{"n": 1, "label": 1, "other": 2}',
            "line 3 of 'rows.jsonl' has the field 'other', which hardly any",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    options = Options(types={"n": "int"})
    source = read(tmp_path, {"n": 1, "label": 1}, "", line, *[{"n": 1, "label": 1}] * 200, options=options)
    assert only_bad(source).startswith(message)


@pytest.mark.parametrize(("others", "fields"), [(99, ["n", "rare"]), (100, ["n"])])
def test_a_field_of_less_than_one_row_in_a_hundred_is_no_column(
    tmp_path: Path, others: int, fields: list[str]
) -> None:
    source = read(tmp_path, {"n": 1, "rare": 2}, "", "[]", *[{"n": 1}] * others)
    assert sorted(source.features) == fields


def test_a_line_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'{"t": "a"}\n{"t": "\xff"}\n')
    source = opened(read_json_lines(LocalTree.at(tmp_path / "rows.jsonl"), Options(), no_progress))
    assert only_bad(source).startswith("line 2 of 'rows.jsonl' is not JSON (")


def test_a_number_beyond_64_bits_is_bad(tmp_path: Path) -> None:
    source = read(tmp_path, *[{"n": 1}] * 200, {"n": 2**63})
    assert only_bad(source).startswith("line 201 of 'rows.jsonl' has '9223372036854775808' in the column 'n'")


def test_a_file_that_is_not_json_lines_is_explained(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"'rows.jsonl' is not JSON Lines: line 1 is not a JSON object"
    ) as caught:
        read(tmp_path, [[1, 2], [3, 4]])
    assert "one object on each line" in caught.value.hint
    with pytest.raises(UsageError, match="has no records"):
        read(tmp_path)


def test_splits_come_from_folders_and_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    for place in ("one", "two"):
        for split in ("train", "val"):
            (tmp_path / place / split).mkdir(parents=True)
            read(tmp_path / place / split, {"text": split, "label": "x"})
    first, second = (produce(plan(tmp_path / place, name="rows")) for place in ("one", "two"))
    assert first == second
    assert [name for name in first if "tfrecord" in name] == [
        "rows-train.tfrecord-00000-of-00001",
        "rows-validation.tfrecord-00000-of-00001",
    ]


JSON = st.fixed_dictionaries(
    {
        "n": st.integers(-(2**63), 2**63 - 1),
        "x": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "t": st.text(max_size=8),
        "v": st.lists(st.integers(-5, 5), max_size=3),
    }
)
TYPES = Options(types={"n": "int", "x": "float", "t": "text"})


@settings(max_examples=40, deadline=None)
@given(st.lists(JSON, min_size=1, max_size=6), st.integers(1, 50))
def test_what_json_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]], block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tpuctl.data.files.rows.BLOCK", block)
        records = items(
            read(tmp_path_factory.mktemp("jsonl"), *rows, {"n": 0, "x": 0, "t": "", "v": [1]}, options=TYPES)
        )
    assert not [record for record in records if isinstance(record, BadRecord)]
    for record, row in zip(records, rows, strict=False):
        values = decode(record)  # type: ignore[arg-type]
        assert (values["n"], values["x"], values["v"]) == ([row["n"]], [row["x"]], row["v"])
        assert values["t"] == [str(row["t"]).encode()]


def test_a_list_of_classes_is_several_labels(tmp_path: Path) -> None:
    lines = [
        {"tags": ["b", "a"]},
        {"tags": []},
        {"tags": None},
        {"tags": ["a"]},
        {"tags": "a"},
        {"tags": [None]},
    ]
    source = read(tmp_path, *lines, options=Options(label="tags"))
    assert source.features == {"tags": Several(Label(("a", "b")))}
    assert source.labels is None
    assert [example["tags"] for example in examples(source)] == [[1, 0], [], [], [0]]
    bad = [str(record) for record in items(source) if isinstance(record, BadRecord)]
    assert bad == [
        "line 5 of 'rows.jsonl' has 'a' in the column 'tags', which holds lists of classes",
        "line 6 of 'rows.jsonl' has '[None]' in the column 'tags', which holds lists of classes",
    ]
