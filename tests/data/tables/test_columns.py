"""Columns of a table: which one is the label, what options they take, and what is said of a cell."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tpuctl.data.options import Options
from tpuctl.data.schema.classes import ClassCollector
from tpuctl.data.schema.features import Image, Label, Several, Tensor
from tpuctl.data.tables.columns import (
    Column,
    Columns,
    InvalidValue,
    check_options,
    check_width,
    class_column,
    label_column,
    real,
    target_column,
    whole,
)
from tpuctl.data.tables.csv_cells import given_column
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.errors import UsageError


@pytest.mark.parametrize(
    ("options", "names", "label"),
    [
        (Options(), ["x", "label"], ("label", False)),
        (Options(), ["x", "Class"], ("Class", False)),
        (Options(), ["CLASS", "Label"], ("Label", False)),
        (Options(), ["LABEL", "label"], ("LABEL", False)),
        (Options(), ["x", "labels"], ("", False)),
        (Options(), [], ("", False)),
        (Options(label="x"), ["x", "label"], ("x", True)),
        (Options({"x": "label"}), ["x", "label"], ("x", True)),
        (Options({"label": "text"}), ["label", "class"], ("class", False)),
        (Options({"label": "text"}), ["label"], ("", False)),
        (Options({"x": "label"}, "y"), ["x", "y"], ("y", True)),
    ],
)
def test_the_label_is_the_users_or_called_so(
    options: Options, names: list[str], label: tuple[str, bool]
) -> None:
    assert label_column(options, names) == label


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (Options({"ag": "int"}), "'a.csv' has no column 'ag'.", "Did you mean age?"),
        (Options(label="xyz"), "'a.csv' has no column 'xyz'.", "It has age, name."),
        (
            Options({"age": "number"}),
            "'number' is not a type, for the column 'age'.",
            "One of int, float, bool, text, bytes, label.",
        ),
        (
            Options({"age": "label", "name": "label"}),
            "age and name cannot both be the label.",
            "Give one of them another type.",
        ),
        (Options(resize=(1, 1)), "'a.csv' has no images to bring to one size.", "Run it without --resize."),
        (Options(channels=3), "'a.csv' has no images, which have channels.", "Run it without --channels."),
    ],
)
def test_options_that_a_table_cannot_follow_are_refused(options: Options, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_options(options, ["age", "name"], "'a.csv'")
    assert (refused.value.message, refused.value.hint) == (message, hint)


def test_options_that_it_can_follow_are_taken() -> None:
    check_options(Options({"age": "int", "name": "label"}, "name"), ["age", "name"], "'a.csv'")
    check_options(Options(resize=(1, 1), channels=3), ["age"], "'a.csv'", images=True)
    with pytest.raises(UsageError, match=r"^x has no column 'b'\.$") as refused:
        check_options(Options(label="b"), [f"a{number}" for number in range(25)], "x")
    assert refused.value.hint in ("It has " + ", ".join(f"a{number}" for number in range(20)) + ".",)


def test_a_table_has_at_most_a_hundred_thousand_columns() -> None:
    check_width(100_000, "a.csv")
    with pytest.raises(UsageError, match=r"^'a\.csv' has 100001 columns, and at most 100000 can be read\.$"):
        check_width(100_001, "a.csv")


@pytest.mark.parametrize("number", [0, (1 << 63) - 1, -(1 << 63)])
def test_a_whole_number_has_64_bits(number: int) -> None:
    assert whole(number) == number


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1])
def test_a_larger_whole_number_is_refused(number: int) -> None:
    with pytest.raises(InvalidValue):
        whole(number)


def test_a_number_is_one_that_rounds_to_32_bits() -> None:
    first = 3.4028235677973366e38
    below = float(np.nextafter(first, 0))
    assert [real(number) for number in (below, -below, 0.0, math.inf)] == [below, -below, 0.0, math.inf]
    assert math.isnan(real(math.nan))
    for number in (first, -first):
        with pytest.raises(InvalidValue):
            real(number)


def said(column: Column[Any], cell: object) -> tuple[str, str]:
    record = Columns([column], "").record([cell])
    assert record.example == b""
    return record.why, record.hint


@pytest.mark.parametrize(
    ("kind", "cell", "why", "hint"),
    [
        ("int", "x", "has 'x' in the column 'n', which holds whole numbers", "text"),
        ("int", "0.5", "has '0.5' in the column 'n', which holds whole numbers", "float"),
        ("int", "", "has nothing in the column 'n', which holds whole numbers", "float"),
        ("int", " ", "has nothing in the column 'n', which holds whole numbers", "float"),
        ("int", "NA", "has 'NA' in the column 'n', which holds whole numbers", "float"),
        ("int", "inf", "has 'inf' in the column 'n', which holds whole numbers", "text"),
        ("int", "1e39", "has '1e39' in the column 'n', which holds whole numbers", "text"),
        ("float", "x", "has 'x' in the column 'n', which holds numbers", "text"),
        ("float", "1e39", "has '1e39' in the column 'n', which holds numbers", "text"),
        ("bool", "2", "has '2' in the column 'n', which holds true or false", "text"),
        ("int", "x" * 40, f"has '{'x' * 40}' in the column 'n', which holds whole numbers", "text"),
        ("int", "x" * 41, f"has '{'x' * 37}...' in the column 'n', which holds whole numbers", "text"),
    ],
)
def test_a_cell_that_does_not_fit_is_named_with_the_type_that_does(
    kind: str, cell: str, why: str, hint: str
) -> None:
    assert said(given_column("n", kind), cell) == (why, f"Give --type n={hint}")


def refuse(cell: object) -> int:
    raise InvalidValue("is damaged")


def test_other_cells_are_named_by_what_they_are() -> None:
    number = Column("n", Tensor("int64"), refuse, "whole numbers")
    assert said(number, None) == (
        "has nothing in the column 'n', which holds whole numbers",
        "Give --type n=float",
    )
    assert said(number, b"\xff")[0] == "has 'bytes' in the column 'n', which holds whole numbers"
    assert said(number, {"a": 1})[0] == "has 'bytes' in the column 'n', which holds whole numbers"
    image = Column("p", Image((None, None, 3)), refuse, "images")
    assert said(image, b"x") == ("has an image in the column 'p' which is damaged", "")


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("", "has no label in the column 'y'"),
        (None, "has no label in the column 'y'"),
        ("n/a", "has no label in the column 'y'"),
        ("cow", "has the label 'cow', which is no class, in the column 'y'"),
    ],
)
def test_a_label_that_is_no_class_is_named(cell: object, why: str) -> None:
    collector = ClassCollector("y")
    collector.add(["cat", "dog"])
    assert said(class_column("y", collector.finish()), cell) == (why, "")


def test_lists_of_classes_are_numbers() -> None:
    collector = ClassCollector("y")
    collector.add([["cat", "dog"]])
    column = class_column("y", collector.finish())
    assert (column.feature, column.holds) == (Several(Label(("cat", "dog"))), "lists of classes")
    assert [column.convert(cell) for cell in (None, [], ["dog", "cat"])] == [[], [], [1, 0]]
    with pytest.raises(InvalidValue):
        column.convert("cat")
    with pytest.raises(KeyError):
        column.convert(["cow"])


def test_a_target_is_never_missing() -> None:
    column = target_column(given_column("y", "float"))
    assert column.convert("0.5") == 0.5
    for cell in ("", "nan"):
        with pytest.raises(InvalidValue):
            column.convert(cell)


def test_rows_become_records_of_their_columns() -> None:
    columns = Columns([given_column("b", "int"), given_column("a", "text")], "b")
    assert columns.supervised == ("a", "b")
    assert decode(columns.record(["1", "x"]).example) == {"a": [b"x"], "b": [1]}
    assert columns.examples([["1", "x"], ["2", "y"]]) == [
        columns.record([number, text]).example for number, text in (("1", "x"), ("2", "y"))
    ]
    assert columns.examples([["1", "x"], ["z", "y"]]) is None
    assert Columns([given_column("a", "int")], "").supervised is None


def test_columns_of_rows_become_framed_records_or_none() -> None:
    columns = Columns(
        [
            given_column("b", "int")._replace(convert_many=None),
            given_column("a", "text")._replace(convert_many=None),
        ],
        "b",
    )
    cells = [["1", "2"], ["x", "y"]]
    frames = columns.frames(cells, list, None)
    assert frames is not None
    assert list(frames.records()) == columns.examples([["1", "x"], ["2", "y"]])
    of_classes = columns.frames(cells, list, np.array([7, 8]))
    assert of_classes is not None
    assert [decode(record)["b"] for record in of_classes.records()] == [[7], [8]]
    assert columns.frames(cells, list, np.array([7, -1])) is None
    assert columns.frames([["1", "z"], ["x", "y"]], list, None) is None


def test_a_name_in_a_hint_is_one_word_of_a_shell() -> None:
    """Users copy it; a table from elsewhere names its columns."""
    assert said(given_column("x; rm -rf ~", "int"), "a")[1] == "Give --type 'x; rm -rf ~'=text"
