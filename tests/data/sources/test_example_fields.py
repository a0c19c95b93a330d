from __future__ import annotations

from typing import Any

import pytest

from tpuctl.data.options import Options
from tpuctl.data.schema.features import Box, Feature, Label, Several, Tensor, Text
from tpuctl.data.source import Observations
from tpuctl.data.sources.tfrecord_files import ExampleChecks, infer_features
from tpuctl.data.tfrecord.example_encoding import encode


def inferred(*values: list[Any]) -> Feature | None:
    features, images = infer_features([{"x": items} for items in values], Options(), sampled=False)
    assert not images
    return features.get("x")


@pytest.mark.parametrize(
    ("values", "feature"),
    [
        ([[1], [2]], Tensor("int64")),
        ([[1.5], [2.0]], Tensor("float32")),
        ([[b"a"], ["\u00e9".encode()]], Text()),
        ([[b"a"], [b"\xff"]], Tensor("string")),
        ([[b"a"], [b"a\0b"]], Tensor("string")),
        ([[1, 2], [3, 4]], Tensor("int64", (2,))),
        ([[1.5, 2.0, 0.0]], Tensor("float32", (3,))),
        ([[b"a", b"b"]], Tensor("string", (2,))),
        ([[1, 2], [3]], Tensor("int64", (None,))),
        ([[1], []], None),
        ([[1], [2], []], Tensor("int64", (None,))),
        ([[1]] * 99 + [[1, 2]], Tensor("int64")),
        ([[1]] * 98 + [[1, 2]] * 2, Tensor("int64", (None,))),
        ([[1]] * 99 + [[]], Tensor("int64")),
    ],
)
def test_a_feature_is_what_nearly_all_records_have(values: list[list[Any]], feature: Feature | None) -> None:
    assert inferred(*values) == feature


def test_features_are_in_the_order_of_their_names() -> None:
    features, _ = infer_features([{"b": [1], "a": [b"x"], "c": [1.0]}], Options(), sampled=False)
    assert list(features.items()) == [("a", Text()), ("b", Tensor("int64")), ("c", Tensor("float32"))]


@pytest.mark.parametrize(
    ("feature", "values", "why"),
    [
        (Tensor("int64"), [1], ""),
        (Tensor("int64"), [], "has nothing in the feature 'x', expected 1"),
        (Tensor("int64"), [1, 2], "has 2 values in the feature 'x', expected 1"),
        (Tensor("int64"), [1.0], "has floats in the feature 'x', expected integers"),
        (Tensor("float32"), [1], "has integers in the feature 'x', expected floats"),
        (Text(), [1], "has integers in the feature 'x', expected bytes"),
        (Tensor("int64"), [b"a"], "has bytes in the feature 'x', expected integers"),
        (Tensor("float32", (2, 3)), [1.0] * 6, ""),
        (Tensor("float32", (2, 3)), [1.0], "has 1 value in the feature 'x', expected 6"),
        (Tensor("int64", (None,)), [], ""),
        (Tensor("int64", (None,)), [1, 2, 3], ""),
        (Tensor("int64", (None, 2)), [1, 2, 3, 4], ""),
        (Tensor("int64", (None, 2)), [1, 2, 3], "has 3 values in the feature 'x', expected 2"),
        (Label(("a", "b")), [1], ""),
        (Label(("a", "b")), [0, 1], "has 2 values in the feature 'x', expected 1"),
        (Box(), [0.0, 0.0, 1.0, 1.0], ""),
        (Box(), [0.0, 0.0, 1.0], "has 3 values in the feature 'x', expected 4"),
        (Several(Label(("a", "b"))), [0, 1, 1], ""),
        (Several(Label(("a", "b"))), [], ""),
        (Several(Box()), [0.0] * 8, ""),
        (Several(Box()), [0.0] * 6, "has 6 values in the feature 'x', expected 4"),
    ],
)
def test_a_record_of_another_kind_or_number_is_bad(feature: Feature, values: list[Any], why: str) -> None:
    record = encode({"x": values} if values else {"y": [1]})
    assert ExampleChecks({"x": feature}, {})(record, Observations()) == (record, why)


def test_what_is_no_example_is_named() -> None:
    checks = ExampleChecks({"x": Tensor("int64")}, {})
    assert checks(b"\xff", Observations()) == (b"\xff", "is not a tf.train.Example")
