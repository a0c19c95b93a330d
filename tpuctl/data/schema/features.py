"""Defines the features of a record's fields, as in TFDS's `features.json`, and the types users can name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Kind = Literal["bytes", "float", "int64"]
"""The list of a tf.train.Feature that holds a field's values."""


class Image(msgspec.Struct, frozen=True, tag="image", tag_field="kind"):
    """An encoded PNG or JPEG image; a dimension that varies is None."""

    shape: tuple[int | None, int | None, int]
    """Height, width and channels, as `tf.io.decode_image` returns them."""
    dtype: str = "uint8"
    encoding: str | None = None
    """`png` or `jpeg`; None when both occur."""


class Label(msgspec.Struct, frozen=True, tag="label", tag_field="kind"):
    """The index of a class, an int64."""

    classes: tuple[str, ...]


class Text(msgspec.Struct, frozen=True, tag="text", tag_field="kind"):
    """UTF-8 text, one string."""


class Tensor(msgspec.Struct, frozen=True, tag="tensor", tag_field="kind"):
    """Numbers or strings of a NumPy type, in C order; no shape is one value.

    A first dimension that varies is None. The record holds floats with 32 bits and all integers as int64:
    that is what a tf.train.Example can hold.
    """

    dtype: str
    """`int64`, `float32`, `bool`, `uint8`, ...; `string` for bytes as they are."""
    shape: tuple[int | None, ...] = ()


class Other(msgspec.Struct, frozen=True, tag="other", tag_field="kind"):
    """A feature of TFDS that tpuctl passes on unchanged: sequences, boxes, audio, video."""

    content: dict[str, Any]
    """Its JSON in `features.json`."""


Feature = Image | Label | Text | Tensor | Other

TYPES: dict[str, Feature] = {
    "int": Tensor("int64"),
    "float": Tensor("float32"),
    "bool": Tensor("bool"),
    "text": Text(),
    "bytes": Tensor("string"),
}
"""Types of a field that a user can name; besides them `label`, whose classes the reader collects."""

_PACKAGE = "tensorflow_datasets.core.features"


def example_kind(feature: Feature) -> Kind:
    """Return the list of a tf.train.Feature that TFDS looks for."""
    if isinstance(feature, Label):
        return "int64"
    if isinstance(feature, Other):
        raise ValueError("the list in which TFDS stores this feature is not known")
    if isinstance(feature, Image | Text) or feature.dtype == "string":
        return "bytes"
    return "float" if "float" in feature.dtype else "int64"


def tfds_features(features: dict[str, Feature]) -> Mapping[str, object]:
    """Return the content of TFDS's `features.json`: protobuf JSON, in which 64-bit integers are strings."""
    return {
        "pythonClassName": f"{_PACKAGE}.features_dict.FeaturesDict",
        "featuresDict": {"features": {name: _tfds_feature(feature) for name, feature in features.items()}},
    }


def _tfds_feature(feature: Feature) -> Mapping[str, object]:
    match feature:
        case Label(classes):
            return _named("class_label_feature.ClassLabel", "classLabel", {"numClasses": str(len(classes))})
        case Other(content):
            return content
        case Text():
            return _named("text_feature.Text", "text", {})
        case Image():
            image: dict[str, object] = {"shape": _dimensions(feature.shape), "dtype": feature.dtype}
            if feature.encoding:
                image["encodingFormat"] = feature.encoding
            return _named("image_feature.Image", "image", image)
        case Tensor(dtype, shape):
            tensor = {"shape": _dimensions(shape), "dtype": dtype, "encoding": "none"}
            name = "tensor_feature.Tensor" if shape else "scalar.Scalar"
            return _named(name, "tensor", tensor)


def _named(python: str, field: str, content: Mapping[str, object]) -> Mapping[str, object]:
    return {"pythonClassName": f"{_PACKAGE}.{python}", field: content}


def _dimensions(shape: tuple[int | None, ...]) -> dict[str, list[str]]:
    return {"dimensions": ["-1" if size is None else str(size) for size in shape]} if shape else {}
