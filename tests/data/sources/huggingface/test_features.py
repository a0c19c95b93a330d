"""What `datasets` declares of a column, as JSON: which column it becomes, and how its cells are read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tpuctl.data.schema.features import Feature, Label, Several, Tensor
from tpuctl.data.sources.huggingface.features import (
    class_names,
    declared_column,
    declared_features,
    is_audio,
)
from tpuctl.errors import UsageError

PETS = {"_type": "ClassLabel", "names": ["cat", "dog"]}


def array(shape: object, dtype: object = "int64", kind: str = "Array2D") -> dict[str, Any]:
    return {"_type": kind, "shape": shape, "dtype": dtype}


def column(declared: Any) -> tuple[Feature, str, Callable[[Any], Any]]:
    found = declared_column("x", declared)
    assert found
    assert found.name == "x"
    return found.feature, found.holds, found.convert


@pytest.mark.parametrize(
    ("metadata", "features"),
    [
        (None, {}),
        ({"huggingface": json.dumps({"info": {"features": {"x": PETS}}})}, {"x": PETS}),
        ({"pandas": json.dumps({"info": {"features": {"x": PETS}}})}, {}),
        ({"huggingface": json.dumps({"info": {"features": [PETS]}})}, {}),
        ({"huggingface": json.dumps({"info": None})}, {}),
        ({"huggingface": json.dumps({"info": {}})}, {}),
        ({"huggingface": json.dumps({"features": {"x": PETS}})}, {}),
        ({"huggingface": "{"}, {}),
        ({"huggingface": b'"\xff"'}, {}),
    ],
)
def test_features_are_in_the_metadata_of_the_schema(metadata: Any, features: dict[str, Any]) -> None:
    assert declared_features(pa.schema([("x", pa.int64())], metadata=metadata)) == features


@pytest.mark.parametrize(
    ("declared", "names"),
    [
        (PETS, ("cat", "dog")),
        ({**PETS, "names": ["a  b", " c\n"]}, ("a b", "c")),
        ([PETS], ("cat", "dog")),
        ({"_type": "Sequence", "feature": PETS}, ("cat", "dog")),
        ({"_type": "List", "feature": PETS}, ("cat", "dog")),
        ({"_type": "LargeList", "feature": PETS}, ("cat", "dog")),
        ({"_type": "Value", "feature": PETS}, ()),
        ({"_type": "Sequence", "feature": [PETS]}, ()),
        ([PETS, PETS], ()),
        ([[PETS]], ()),
        ([], ()),
        ({**PETS, "_type": "Value"}, ()),
        ({"names": ["cat", "dog"]}, ()),
        ({**PETS, "names": "cat"}, ()),
        ({**PETS, "names": ["cat", 1]}, ()),
        ({"_type": "ClassLabel"}, ()),
        ("ClassLabel", ()),
        (None, ()),
    ],
)
def test_only_a_label_has_names(declared: Any, names: tuple[str, ...]) -> None:
    assert class_names(declared) == names


@pytest.mark.parametrize("names", [["a", "a"], ["a", " a "], ["a", ""], [" "]])
def test_each_class_needs_a_name_of_its_own(names: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        class_names({**PETS, "names": names})
    assert refused.value.message == (
        f"The source declares {len(names)} classes, of which some have the same name, or none."
    )


def test_a_million_classes_have_names() -> None:
    names = [f"class {number}" for number in range(1_000_000)]
    assert class_names({**PETS, "names": names}) == tuple(names)
    with pytest.raises(UsageError, match="declares 1000001 classes"):
        class_names({**PETS, "names": [*names, "another"]})


@pytest.mark.parametrize(
    ("declared", "expected"),
    [({"_type": "Audio"}, True), ({"_type": "Image"}, False), (["Audio"], False), (None, False)],
)
def test_sounds_are_told(declared: Any, expected: bool) -> None:
    assert is_audio(declared) is expected


def test_a_label_is_a_number_of_its_classes() -> None:
    feature, holds, convert = column(PETS)
    assert (feature, holds) == (Label(("cat", "dog")), "classes")
    assert [convert(0), convert(1)] == [0, 1]
    for bad in (-1, 2, None, "0", 0.0):
        with pytest.raises(ValueError, match=r"^$"):
            convert(bad)


@pytest.mark.parametrize("declared", [[PETS], {"_type": "Sequence", "feature": PETS}])
def test_a_list_of_labels_is_several_numbers(declared: Any) -> None:
    feature, holds, convert = column(declared)
    assert (feature, holds) == (Several(Label(("cat", "dog"))), "lists of classes")
    assert [convert(None), convert([]), convert([1, 0, 1])] == [[], [], [1, 0, 1]]
    for bad in ([2], [None], 1, "01"):
        with pytest.raises(ValueError, match=r"^$"):
            convert(bad)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("int8", "int8"), ("int16", "int16"), ("int32", "int32"), ("int64", "int64"),
        ("uint8", "uint8"), ("uint16", "uint16"), ("uint32", "uint32"), ("uint64", "uint64"),
        ("float16", "float32"), ("float32", "float32"), ("float64", "float32"), ("bool", "bool"),
    ],
)  # fmt: skip
def test_an_array_has_its_shape_and_type(dtype: str, kind: str) -> None:
    feature, holds, convert = column(array([2, 3], dtype))
    assert (feature, holds) == (Tensor(kind, (2, 3)), "arrays of [2, 3]")
    assert convert([[1, 0, 1], [0, 1, 1]]) == [1, 0, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("kind", "dimensions"), [("Array2D", 2), ("Array3D", 3), ("Array4D", 4), ("Array5D", 5)]
)
def test_arrays_have_up_to_five_dimensions(kind: str, dimensions: int) -> None:
    feature, _, convert = column(array([1] * dimensions, kind=kind))
    assert feature == Tensor("int64", (1,) * dimensions)
    nested: Any = 7
    for _ in range(dimensions):
        nested = [nested]
    assert convert(nested) == [7]


@pytest.mark.parametrize(
    "declared",
    [
        array([]),
        array(None),
        array("23"),
        array([2, 0]),
        array([2, -1]),
        array([None, 3]),
        array([2, "3"]),
        array([2, 3], "string"),
        array([2, 3], None),
        array([1] * 6, kind="Array5D"),
        array([2, 3], kind="Array6D"),
        {"_type": "Value", "dtype": "int64"},
        [array([2, 3])],
        None,
    ],
)
def test_another_feature_becomes_no_column(declared: Any) -> None:
    assert declared_column("x", declared) is None


@pytest.mark.parametrize(
    "cell",
    [None, 1, [[1, 2, 3]], [[1, 2], [3, 4]], [[1, 2, 3], [4, 5]], [[1, 2, 3], 4], [["1", 2, 3], [4, 5, 6]],
     [[None, 2, 3], [4, 5, 6]], [[[1], [2], [3]], [[4], [5], [6]]], [[1 << 63, 2, 3], [4, 5, 6]]],
)  # fmt: skip
def test_a_cell_of_another_shape_does_not_fit(cell: Any) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        column(array([2, 3]))[2](cell)


def test_the_numbers_of_an_array_are_of_its_type() -> None:
    wholes = column(array([1, 2]))[2]([[2.0, (1 << 63) - 1]])
    assert [type(number) for number in wholes] == [int, int]
    reals = column(array([1, 2], "float64"))[2]([[2, math.inf]])
    assert [type(number) for number in reals] == [float, float]
    with pytest.raises(ValueError, match=r"^$"):
        column(array([1, 1], "float64"))[2]([[1e39]])
