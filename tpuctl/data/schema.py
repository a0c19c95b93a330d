"""Says in words what the features of a record are: `png image, 28 × 28 × 1, uint8`."""

from __future__ import annotations

import re
import shlex
from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

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


MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})
"""Texts, in small letters, of cells that have no value."""
MOST_LABELS = 1 << 23
"""Records whose labels are held, 4 bytes each: up to so many, a drawn split keeps the share of each class."""
MOST_CLASSES = 1_000_000
"""Classes of a dataset whose files name them."""
_MOST, _MOST_CHARACTERS = 100_000, 64 << 20
"""Different values of a label, and their characters or bytes together: all are held."""
_NUMBERED = 1000
"""Whole numbers from 0 to below this are the numbers of their classes, even if some of them never occur."""

_WHOLE = re.compile(r"-?\d{1,18}(\.0*)?")
_REAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def learn_numbers(label: str) -> str:
    """Return the hint for a label column whose values are no classes."""
    name = shlex.quote(label)
    return f"To learn numbers, give its type: --label {name} --type {name}=float."


@dataclass(frozen=True)
class Classes:
    """The classes of a label column."""

    names: tuple[str, ...]
    numbers: dict[Hashable, int]
    """Value in the source -> index of its class; missing values have none."""
    labels: NDArray[np.int32] | None
    """Class of each record, -1 for none; None where they are too many to hold."""
    fractions: bool
    """Whether it holds numbers that are not whole, and so no classes."""
    several: bool = False
    """Whether a record has a list of classes."""

    def called(self, names: tuple[str, ...]) -> Classes:
        """Return the classes with these names, which the values number from 0."""
        values = [int(name) if _WHOLE.fullmatch(name) else -1 for name in self.names]
        numbers = {value: values[place] for value, place in self.numbers.items()}
        known = {value: number for value, number in numbers.items() if 0 <= number < len(names)}
        labels = None
        if self.labels is not None:
            wide = np.array([*values, -1], np.int64)[self.labels]
            labels = np.where((wide >= 0) & (wide < len(names)), wide, -1).astype(np.int32)
        return Classes(names, known, labels, False, self.several)


@dataclass
class ClassCollector:
    """Collects the values of a label column in one pass."""

    column: str
    _keys: dict[Hashable, int] = field(default_factory=dict)
    _labels: array[int] = field(default_factory=lambda: array("i"))
    _records: int = 0
    _characters: int = 0
    _counted: int = 0
    _several: bool = False

    def add(self, values: Iterable[object]) -> None:
        """Add the values of the next records, or lists of them, None for a missing one; raises UsageError."""
        keys = self._keys
        labels = []
        for value in values:
            if isinstance(value, list):
                self._several = True
                for item in value:
                    keys.setdefault(_hashable(item), len(keys))
            labels.append(0 if isinstance(value, list) else keys.setdefault(_hashable(value), len(keys)))
        self._add(np.array(labels, np.int32))

    def add_ranked(self, values: Iterable[Hashable], ranks: NDArray[np.int64]) -> None:
        """Add the same by the different values, and which of them each of the records has."""
        keys = self._keys
        self._add(np.array([keys.setdefault(value, len(keys)) for value in values], np.int32)[ranks])

    def _add(self, labels: NDArray[np.int32]) -> None:
        self._records += len(labels)
        if self._records <= MOST_LABELS:
            self._labels.frombytes(labels.tobytes())
        keys = self._keys
        new = islice(reversed(keys), len(keys) - self._counted)
        self._characters += sum(len(value) for value in new if isinstance(value, str | bytes))
        self._counted = len(keys)
        if self._characters > _MOST_CHARACTERS:
            raise UsageError(
                f"The column '{self.column}' has different values of more than {_MOST_CHARACTERS} characters"
                ": they are no classes.",
                hint=f"Give it a type: --type {shlex.quote(self.column)}=text.",
                column=self.column,
            )
        if len(keys) > _MOST:
            raise UsageError(
                f"The column '{self.column}' has more than {_MOST} different values: they are no classes.",
                hint=f"Give it a type: --type {shlex.quote(self.column)}=text.",
                column=self.column,
            )

    def finish(self) -> Classes:
        """Return the classes, in the order of numbers if all are numbers, else of the alphabet."""
        names = {value: name for value in self._keys if (name := _name(value)) is not None}
        ordered = sorted(set(names.values()))
        fractions = any(not _WHOLE.fullmatch(name) for name in ordered) and all(map(_REAL.fullmatch, ordered))
        if ordered and all(map(_WHOLE.fullmatch, ordered)):
            ordered = _numbered({int(float(name)) if "." in name else int(name) for name in ordered})
            names = {value: str(int(name.partition(".")[0])) for value, name in names.items()}
        places = {name: place for place, name in enumerate(ordered)}
        numbers = {value: places[name] for value, name in names.items()}
        labels = None if self._several else self._class_of_each(numbers)
        return Classes(tuple(ordered), numbers, labels, fractions, self._several)

    def _class_of_each(self, numbers: dict[Hashable, int]) -> NDArray[np.int32] | None:
        if self._records > MOST_LABELS:
            return None
        final = np.array([numbers.get(value, -1) for value in self._keys], np.int32)
        return final[np.frombuffer(self._labels, np.int32)] if self._records else np.empty(0, np.int32)


def _hashable(value: object) -> Hashable:
    return value if isinstance(value, Hashable) else None


def _name(value: Hashable) -> str | None:
    """Return the name of the class of a value; None for a missing one."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return None if value != value else str(int(value)) if value.is_integer() else repr(value)
    text = " ".join(str(value).split())  # one name a line in the labels file
    return None if text.lower() in MISSING else text


def _numbered(numbers: set[int]) -> list[str]:
    most = max(numbers)
    if min(numbers) >= 0 and (most < _NUMBERED or most + 1 == len(numbers)):
        return [str(number) for number in range(most + 1)]
    return [str(number) for number in sorted(numbers)]
