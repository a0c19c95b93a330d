"""Rows of values beside files: the cells that a record lacks, the types of columns, and the classes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tpuctl.data.options import Options
from tpuctl.data.schema.features import Label, Tensor, Text
from tpuctl.data.sources.annotated import records as module
from tpuctl.data.sources.annotated.records import Rows
from tpuctl.errors import UsageError


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
