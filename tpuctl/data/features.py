"""What each field of a record is, and how TFDS writes that in `features.json`."""

from __future__ import annotations

from typing import Any

import msgspec


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


Feature = Image | Label


def tfds_features(features: dict[str, Feature]) -> dict[str, Any]:
    """Return the content of TFDS's `features.json`: protobuf JSON, in which 64-bit integers are strings."""
    return {
        "pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
        "featuresDict": {"features": {name: _tfds_feature(one) for name, one in features.items()}},
    }


def _tfds_feature(feature: Feature) -> dict[str, Any]:
    if isinstance(feature, Label):
        return {
            "pythonClassName": "tensorflow_datasets.core.features.class_label_feature.ClassLabel",
            "classLabel": {"numClasses": str(len(feature.classes))},
        }
    dimensions = ["-1" if size is None else str(size) for size in feature.shape]
    image: dict[str, Any] = {"shape": {"dimensions": dimensions}, "dtype": feature.dtype}
    if feature.encoding:
        image["encodingFormat"] = feature.encoding
    return {"pythonClassName": "tensorflow_datasets.core.features.image_feature.Image", "image": image}
