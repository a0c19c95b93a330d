"""Defines the features of a record's fields, as in TFDS's `features.json`, and the types users can name.

- Says in words what the features of a record are: `png image, 28 × 28 × 1, uint8`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from tpuctl.errors import UsageError

_MOST_CLASSES = 6


def feature_type(feature: Feature) -> str:
    """Return the type of a field as text."""
    match feature:
        case Image():
            return f"{feature.encoding or 'PNG or JPEG'} image, {_shape(feature.shape)}, {feature.dtype}"
        case Label(classes):
            more = ", ..." if len(classes) > _MOST_CLASSES else ""
            count = f"{len(classes)} class{'es' * (len(classes) != 1)}"
            return f"label, {count}: {', '.join(classes[:_MOST_CLASSES])}{more}"
        case Tensor(dtype, shape):
            return f"{dtype}, {_shape(shape)}" if shape else dtype
        case Text():
            return "text"
        case Box():
            return "box: ymin, xmin, ymax, xmax"
        case Several(item):
            return f"list of {feature_type(item)}"
        case Objects(fields):
            return f"objects: {'; '.join(f'{name} ({feature_type(item)})' for name, item in fields.items())}"
        case Audio(rate, channels, encoding):
            kind = f"{encoding or 'WAV or FLAC'} audio, {rate} samples a second"
            return f"{kind}, {channels} channel{'s' * (channels > 1)}"
        case Other(content):
            return str(content.get("pythonClassName", "of TFDS")).rpartition(".")[2]


def _shape(shape: tuple[int | None, ...]) -> str:
    return " × ".join("?" if size is None else str(size) for size in shape)


Kind = Literal["bytes", "float", "int64"]
"""The list of a tf.train.Feature that holds a field's values."""


class Image(msgspec.Struct, frozen=True, tag="image", tag_field="kind"):
    """An encoded PNG or JPEG image; a dimension that varies is None."""

    shape: tuple[int | None, int | None, int | None]
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


class Box(msgspec.Struct, frozen=True, tag="box", tag_field="kind"):
    """A bounding box: ymin, xmin, ymax and xmax as shares of the picture's height and width, in 32 bits."""


class Several(msgspec.Struct, frozen=True, tag="several", tag_field="kind"):
    """Any number of values of one feature; none, too."""

    item: Label | Text | Tensor | Box


class Objects(msgspec.Struct, frozen=True, tag="objects", tag_field="kind"):
    """Any number of objects in a picture, each with the same fields: a record holds a list of each field."""

    fields: dict[str, Label | Text | Tensor | Box]


class Audio(msgspec.Struct, frozen=True, tag="audio", tag_field="kind"):
    """Samples as whole numbers, an int64 for each; with several channels those of one moment in a row."""

    sample_rate: int
    """Samples a second."""
    channels: int = 1
    encoding: str | None = None
    """`wav` or `flac`: what the samples were decoded from; None when both occur."""


class Other(msgspec.Struct, frozen=True, tag="other", tag_field="kind"):
    """A feature of TFDS that tpuctl passes on unchanged: video, ragged sequences."""

    content: dict[str, Any]
    """Its JSON in `features.json`."""


Feature = Image | Label | Text | Tensor | Box | Several | Objects | Audio | Other

TYPES: dict[str, Feature] = {
    "int": Tensor("int64"),
    "float": Tensor("float32"),
    "bool": Tensor("bool"),
    "text": Text(),
    "bytes": Tensor("string"),
}
"""Types of a field that a user can name; besides them `label`, whose classes the reader collects."""


def example_kind(feature: Feature) -> Kind:
    """Return the list of a tf.train.Feature that TFDS looks for; `Objects` have one for each field."""
    if isinstance(feature, Several):
        return example_kind(feature.item)
    if isinstance(feature, Label | Audio):
        return "int64"
    if isinstance(feature, Box):
        return "float"
    if isinstance(feature, Objects | Other):
        raise ValueError("the list in which TFDS stores this feature is not known")
    if isinstance(feature, Image | Text) or feature.dtype == "string":
        return "bytes"
    return "float" if "float" in feature.dtype else "int64"


def flat(features: Mapping[str, Feature]) -> dict[str, Feature]:
    """Return the features by the names under which a tf.train.Example holds their values: `objects/label`."""
    fields: dict[str, Feature] = {}
    for name, feature in features.items():
        if isinstance(feature, Objects):
            fields |= {f"{name}/{field}": Several(item) for field, item in feature.fields.items()}
        else:
            fields[name] = feature
    return fields


def example_kinds(features: Mapping[str, Feature]) -> dict[str, Kind]:
    """Return the kind of each list of an Example, by its name; raises ValueError for `Other`."""
    return {name: example_kind(feature) for name, feature in flat(features).items()}


def labels_of(features: Mapping[str, Feature]) -> dict[str, Label]:
    """Return all labels, those in lists and objects too, by the name of their file of classes."""
    return {file: label for _, file, label in _labels(features)}


def check_labels(features: Mapping[str, Feature]) -> None:
    """Raise UsageError where the classes of two labels would overwrite each other in one file."""
    owners: dict[str, tuple[str, Label]] = {}
    for name, file, label in _labels(features):
        other, first = owners.setdefault(file, (name, label))
        if first != label:
            raise UsageError(
                f"The classes of '{other}' and '{name}' would be in the same file, {file}.",
                hint="Rename one of them: TFDS writes '/' as '.' in that name.",
                columns=[other, name],
            )


def labels_file(name: str, field: str = "") -> str:
    """Return the name of the file with the classes of a label, or of that of a field of objects."""
    file = "-".join(part.replace("/", ".") for part in (name, field) if part)
    return f"{file}.labels.txt"


def _labels(features: Mapping[str, Feature]) -> Iterator[tuple[str, str, Label]]:
    """Yield the name of each label, that of its file of classes, and the label."""
    for name, feature in features.items():
        inner = feature.fields if isinstance(feature, Objects) else {"": feature}
        for part, item in inner.items():
            label = item.item if isinstance(item, Several) else item
            if isinstance(label, Label):
                yield f"{name}/{part}" if part else name, labels_file(name, part), label
