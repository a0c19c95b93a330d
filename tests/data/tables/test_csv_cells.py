"""The type of a column of texts, and what becomes of its cells."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tpuctl.data.schema.features import Tensor, Text
from tpuctl.data.tables.csv_cells import given_column, infer_column
from tpuctl.data.tfrecord.texts import Texts

MOST_EXACT = 16_777_216
INT, FLOAT, BOOL = Tensor("int64"), Tensor("float32"), Tensor("bool")


@pytest.mark.parametrize(
    ("cells", "feature"),
    [
        (["1", "-2", " 3 "], INT),
        (["0", "-0", "9" * 18], INT),
        (["1", "0.5"], FLOAT),
        (["1e3", ".5e-2", "5.", "+1.5", "inf", "-Inf"], FLOAT),
        (["1", ""], FLOAT),
        (["1", "NA", "n/a", "NaN", "null", "None", " "], FLOAT),
        ([str(MOST_EXACT), ""], FLOAT),
        ([str(MOST_EXACT + 1), ""], INT),
        ([f"-{MOST_EXACT + 1}", ""], INT),
        (["true", "False", "TRUE", ""], BOOL),
        (["yes", "no"], Text()),
        (["true", "1"], Text()),
        (["02139", "10001"], Text()),
        (["02139"] * 99 + ["0.5"], Text()),
        (["a", "1"], Text()),
        (["", "NA"], Text()),
        ([], Text()),
        (["1_000"], Text()),
        (["infinity"], Text()),
        (["1.2.3"], Text()),
        (["1" * 19], INT),
        (["1" * 20], Text()),
        (["1"] * 99 + ["x"], INT),
        (["1"] * 98 + ["x"] * 2, Text()),
        (["0.5"] * 99 + ["x"], FLOAT),
        (["0.5"] * 98 + ["x"] * 2, Text()),
        (["true"] * 99 + ["x"], BOOL),
        (["1"] * 99 + ["0.5"], FLOAT),
        (["1"] * 98 + ["0.5", "x"], FLOAT),
    ],
)
def test_nearly_all_cells_decide_on_the_type(cells: list[str], feature: object) -> None:
    assert infer_column("x", cells).feature == feature
    assert infer_column("x", Texts.of([cell.encode() for cell in cells])).feature == feature


@pytest.mark.parametrize(
    ("kind", "cells", "values", "holds"),
    [
        ("int", ["1", " -2 ", "007", "+3"], [1, -2, 7, 3], "whole numbers"),
        ("float", ["1", ".5", " 1e3 ", "inf", "-inf"], [1.0, 0.5, 1000.0, math.inf, -math.inf], "numbers"),
        ("bool", ["true", "yes", "1", " TRUE "], [True] * 4, "true or false"),
        ("bool", ["false", "No", "0"], [False] * 3, "true or false"),
        ("text", ["a", "", "NA"], ["a", "", "NA"], "texts"),
        ("bytes", ["a", ""], ["a", ""], "bytes"),
    ],
)  # fmt: skip
def test_a_given_type_converts_its_cells(kind: str, cells: list[str], values: list[Any], holds: str) -> None:
    column = given_column("x", kind)
    assert (column.name, column.holds) == ("x", holds)
    assert [column.convert(cell) for cell in cells] == values
    assert column.convert_many
    many = column.convert_many(Texts.of([cell.encode() for cell in cells]))
    assert (many.strings() if isinstance(many, Texts) else list(many)) == values


def test_missing_numbers_are_nan() -> None:
    for cell in ("", " ", "NA", "n/a", "NaN", "null", "None"):
        value = given_column("x", "float").convert(cell)
        assert isinstance(value, float)
        assert math.isnan(value)


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        ("int", ["", "1.0", "x", "1_0", "9223372036854775808", "NA"]),
        ("float", ["x", "1_0", "1e39", "-1e39"]),
        ("bool", ["", "2", "t", "on"]),
    ],
)
def test_a_cell_that_does_not_fit_is_refused(kind: str, cells: list[str]) -> None:
    for cell in cells:
        with pytest.raises((ValueError, KeyError)):
            given_column("x", kind).convert(cell)
