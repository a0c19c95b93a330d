"""The type of a column of JSON or Parquet, and what becomes of its cells."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from tpuctl.data.schema.features import Feature, Tensor, Text
from tpuctl.data.tables.cells import given_column, infer_column
from tpuctl.errors import UsageError

INT, FLOAT, BOOL, BYTES = Tensor("int64"), Tensor("float32"), Tensor("bool"), Tensor("string")
INTS, FLOATS, TEXTS = Tensor("int64", (None,)), Tensor("float32", (None,)), Tensor("string", (None,))
MOST = 3.4028235677973366e38


@pytest.mark.parametrize(
    ("cells", "feature", "holds"),
    [
        ([1, 2], INT, "whole numbers"),
        ([1, None], FLOAT, "numbers"),
        ([1, 1, 0.5], FLOAT, "numbers"),
        ([0.5, "x", 0.5], FLOAT, "numbers"),
        ([True, False, 1], BOOL, "true or false"),
        ([True, None], BOOL, "true or false"),
        (["a", "b", 1], Text(), "texts"),
        (["a", None], Text(), "texts"),
        ([None, None], Text(), "texts"),
        ([], Text(), "texts"),
        ([1, "a"], INT, "whole numbers"),
        ([{"a": 1}, 1, 2], INT, "whole numbers"),
        ([[1], [2, 3]], INTS, "lists of whole numbers"),
        ([[1], [0.5]], FLOATS, "lists of numbers"),
        ([["a"], None], TEXTS, "lists of texts"),
        ([[]], FLOATS, "lists of numbers"),
        ([[1], 7], INTS, "lists of whole numbers"),
    ],
)
def test_the_type_is_that_of_most_cells(cells: list[Any], feature: Feature, holds: str) -> None:
    column = infer_column("x", cells)
    assert (column.name, column.feature, column.holds) == ("x", feature, holds)


@pytest.mark.parametrize(
    "cells",
    [[{"a": 1}], [{"a": 1}, {"b": 2}, 1], [[{}]], [[1], ["a"]], [[True]], [[[1]]], [[None]], [[1, None]]],
)
def test_objects_and_mixed_lists_are_refused(cells: list[Any]) -> None:
    with pytest.raises(UsageError) as refused:
        infer_column("x", cells)
    assert refused.value.message == "The field 'x' holds objects, or lists of different types."
    assert refused.value.hint.endswith("to have its JSON as text: --type x=text.")
    assert refused.value.facts == {"column": "x"}


@pytest.mark.parametrize(
    ("kind", "cells", "values"),
    [
        ("int", [0, -(1 << 63), (1 << 63) - 1], [0, -(1 << 63), (1 << 63) - 1]),
        ("float", [0.5, 2, Decimal("1.5"), math.inf], [0.5, 2.0, 1.5, math.inf]),
        ("bool", [True, False], [True, False]),
        ("text", ["a", None, 1, 0.5, True, [1], {"a": None}, date(2026, 1, 31)],
         ["a", "", b"1", b"0.5", b"true", b"[1]", b'{"a":null}', "2026-01-31"]),
        ("bytes", [b"\xff", "a", None, 7], [b"\xff", "a", "", b"7"]),
    ],
)  # fmt: skip
def test_a_given_type_converts_its_cells(kind: str, cells: list[Any], values: list[Any]) -> None:
    column = given_column("x", kind)
    assert [column.convert(cell) for cell in cells] == values
    assert [type(column.convert(cell)) for cell in cells] == [type(value) for value in values]


def test_a_missing_number_is_none() -> None:
    value = given_column("x", "float").convert(None)
    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        ("int", [None, True, 1.0, "1", 1 << 63, -(1 << 63) - 1]),
        ("float", [True, "1", MOST, -MOST, 1e39, b"1"]),
        ("bool", [None, 1, "true"]),
    ],
)
def test_a_cell_that_does_not_fit_is_refused(kind: str, cells: list[Any]) -> None:
    for cell in cells:
        with pytest.raises(ValueError, match=r"^$"):
            given_column("x", kind).convert(cell)


def test_an_inferred_text_is_a_text_alone() -> None:
    column = infer_column("x", ["a"])
    assert [column.convert("b"), column.convert(None)] == ["b", ""]
    for cell in (1, b"a", True):
        with pytest.raises(ValueError, match=r"^$"):
            column.convert(cell)


def test_a_list_has_items_of_its_type() -> None:
    column = infer_column("x", [[1]])
    assert [column.convert(cell) for cell in (None, [], [1, -2])] == [[], [], [1, -2]]
    for cell in (1, "12", [None], [1, None], [0.5], [[1]]):
        with pytest.raises(ValueError, match=r"^$"):
            column.convert(cell)
    assert infer_column("x", [[0.5]]).convert([1, 0.5]) == [1.0, 0.5]
