"""Rows of a table are the same records however many are read at once, and beside bad ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.source_trees import no_progress, opened
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.features import Tensor
from tpuctl.data.source import Observations, Source
from tpuctl.data.sources.registry import open_source
from tpuctl.data.tables import table
from tpuctl.data.tables.table import TableSource
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.errors import UsageError


def json_lines(folder: Path, *rows: object) -> Source:
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return opened(open_source(folder / "rows.jsonl", None, Options(), no_progress))


@pytest.mark.parametrize(
    ("lists", "shape"), [([[1, 2], [3, 4]], (2,)), ([[1, 2], [3]], (None,)), ([[], []], (None,))]
)
@pytest.mark.parametrize("bad", [(), ({"x": "no list"},)], ids=["all good", "beside a bad one"])
def test_lists_that_all_have_the_same_length_have_it_in_their_shape(
    tmp_path: Path, lists: list[list[int]], shape: tuple[int | None], bad: tuple[object, ...]
) -> None:
    rows = [*({"x": cell} for cell in lists), *({"x": [7, 8]} for _ in range(20) if shape == (2,)), *bad]
    source = json_lines(tmp_path, {"x": [1, 2]} if shape == (2,) else {"x": [1, 2, 3]}, *rows)
    observations = Observations()
    records = list(source.read(np.arange(1 + len(rows)), observations))
    assert sum(isinstance(record, BadRecord) for record in records) == len(bad)
    assert source.features["x"] == Tensor("int64", (None,))
    assert source.final_features(observations)["x"] == Tensor("int64", shape)


@pytest.mark.parametrize("fewest", [1, 16, 1_000])
def test_columns_at_once_and_rows_one_by_one_are_the_same_records(
    tmp_path: Path, fewest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_FEWEST", fewest)
    rows = [(number, f"text {number}", number % 3) for number in range(40)]
    (tmp_path / "rows.csv").write_text("n,t,label\n" + "".join(f"{n},{t},{c}\n" for n, t, c in rows))
    source = opened(open_source(tmp_path / "rows.csv", None, Options(), no_progress))
    order = np.random.default_rng(0).permutation(40)
    records = [decode(record) for record in source.read(order, Observations()) if isinstance(record, bytes)]
    expected: list[Any] = [rows[index] for index in order.tolist()]
    assert [(r["n"], r["t"], r["label"]) for r in records] == [
        ([n], [t.encode()], [c]) for n, t, c in expected
    ]


def test_progress_of_the_classes_is_that_of_the_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("n,label\n" + "1,a\n2,b\n" * 9)
    reports: list[tuple[int, int]] = []
    source = open_source(
        tmp_path / "rows.csv", None, Options(), lambda done, total: reports.append((done, total))
    )
    opened(source)
    assert reports[-1] == (18, 18)


@pytest.mark.parametrize(
    ("text", "options", "message", "hint"),
    [
        ("n,label\n", Options(), "'rows.csv' has no records.", "Give a source with some."),
        (
            "n,label\n1,\n2,\n", Options(label="label"), "The column 'label' of 'rows.csv' is empty.",
            "Name another with --label.",
        ),
        (
            "n,x\n1,0.5\n2,1.5\n", Options(label="x"),
            "The column 'x' of 'rows.csv' holds fractions, such as 0.5: they are no classes.",
            "To learn numbers, give its type: --label x --type x=float.",
        ),
    ],
)  # fmt: skip
def test_a_table_without_rows_or_classes_is_explained(
    tmp_path: Path, text: str, options: Options, message: str, hint: str
) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(UsageError) as refused:
        open_source(tmp_path / "rows.csv", None, options, no_progress)
    assert (refused.value.message, refused.value.hint) == (message, hint)


def test_some_two_thousand_records_are_encoded_to_estimate_the_size_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []
    read = TableSource.read

    def noted(self: Any, indices: Any, observations: Any) -> Any:
        measured.append(len(indices))
        return read(self, indices, observations)

    monkeypatch.setattr(TableSource, "read", noted)
    json_lines(tmp_path, *({"x": number} for number in range(8_000)))
    assert measured == [2_000]
