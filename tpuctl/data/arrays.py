"""Reads arrays (NumPy, IDX) as records.

- Infers field and split from an array's name: `x_train`, `test_labels`, `t10k-images-idx3-ubyte`.
- Reads arrays as a source: row i of each array of a split belongs to record i.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.rows import Contents
from tpuctl.data.files.source_files import SPLIT_WORDS, words
from tpuctl.data.images.decoding import CHANNELS, RawPng
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.classes import ClassCollector, Classes, learn_numbers
from tpuctl.data.schema.features import TYPES, Feature, Image, Label, Tensor, Text, example_kind
from tpuctl.data.source import (
    Indices,
    Observations,
    Part,
    Records,
    ScanProgress,
    Source,
    changed,
    evenly_spaced,
    supervised_pair,
)
from tpuctl.data.tables.columns import InvalidValue, check_options, label_column
from tpuctl.data.tfrecord.example_encoding import Encoder, Value, packed_floats, packed_ints
from tpuctl.errors import UsageError

_ENDING = re.compile(r"npy|npz|gz|ubyte|idx\d?")
"""Words after which a name says the format: `points-idx2-short`."""
_INPUTS = ("x", "data", "img", "imgs", "image", "images", "input", "inputs")
_TARGETS = ("y", "label", "labels", "target", "targets", "class", "classes")


class NamedArray(NamedTuple):
    """An array and its name; the arrays of one group and split belong together."""

    group: str
    split: str
    name: str
    array: Array


def pair(arrays: Iterable[NamedArray]) -> list[Block]:
    """Return the blocks that arrays form, by split; raises UsageError where two would be the same field."""
    blocks: dict[tuple[str, str], dict[str, Array]] = {}
    for group, split, name, array in arrays:
        named = list(takewhile(lambda word: not _ENDING.fullmatch(word), words(name)))
        splits = {SPLIT_WORDS[word] for word in named if word in SPLIT_WORDS}
        own = split or (splits.pop() if len(splits) == 1 else "")
        fields = blocks.setdefault((own, group), {})
        field = _field_name([word for word in named if word not in SPLIT_WORDS], array)
        if field in fields:
            raise UsageError(
                f"'{fields[field].where}' and '{array.where}' would both be the {field} of the same records.",
                hint="Remove one of them, or name them train and test.",
            )
        fields[field] = array
    if len({split == "" for split, _ in blocks}) > 1:
        lost = blocks[min(blocks)]
        raise UsageError(
            f"The name of '{next(iter(lost.values())).where}' says no split, and others do.",
            hint="Name all arrays after their split, such as x_train and x_test, or none.",
        )
    return [Block(split, blocks[split, group]) for split, group in sorted(blocks)]


def _field_name(named: list[str], array: Array) -> str:
    if any(word in _TARGETS for word in named):
        return "label"
    if any(word in _INPUTS for word in named):
        return "image" if _is_image(array) else named[-1] if named[-1] in _INPUTS else "_".join(named)
    return "_".join(named) or ("image" if _is_image(array) else "value")


def _is_image(array: Array) -> bool:
    pixels = array.shape[1:]
    return array.dtype == np.uint8 and (len(pixels) == 2 or (len(pixels) == 3 and pixels[2] in CHANNELS))


_MEASURED = 500
"""Records that are encoded to estimate the size of all."""
_BLOCK = 1 << 16
"""Labels gathered at once."""


class Array(NamedTuple):
    """One array: its place, the type and shape of its numbers."""

    where: str
    """For messages: `mnist.npz: x_train`."""
    file: int
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    read: Callable[[int, int], bytes]
    """Return from a place in the array so many bytes; fewer when its file has become shorter."""

    @property
    def row(self) -> int:
        """Bytes of one record."""
        return self.dtype.itemsize * prod(self.shape[1:])


class Block(NamedTuple):
    """Arrays whose records belong together, by the names of their fields."""

    split: str
    arrays: dict[str, Array]

    @property
    def records(self) -> int:
        """How many each of the arrays has."""
        return next(iter(self.arrays.values())).shape[0]


class ArraySource(Source):
    """The records of several blocks, one after the other."""

    def __init__(
        self, kind: str, contents: Contents, blocks: Sequence[Block], fields: dict[str, Field],
        target: str, labels: NDArray[np.int32] | None,
    ) -> None:  # fmt: skip
        self._contents = contents
        self._readers = [
            [(block.arrays[name], block.arrays[name].row, field.convert) for name, field in fields.items()]
            for block in blocks
        ]
        self._firsts = np.cumsum([0, *(block.records for block in blocks)], dtype=np.int64)
        self._encoder = Encoder({name: example_kind(field.feature) for name, field in fields.items()})
        super().__init__(
            kind=kind,
            origin=contents.files,
            features={name: field.feature for name, field in fields.items()},
            supervised=supervised_pair(list(fields), target),
            labels=labels,
            parts=self._measured(blocks),
        )

    def read(self, indices: Indices, observations: Observations) -> Records:
        blocks = np.searchsorted(self._firsts, indices, side="right") - 1
        places = (indices - self._firsts[blocks]).tolist()
        for number, place in zip(blocks.tolist(), places, strict=True):
            yield self._one(number, place)

    def close(self) -> None:
        self._contents.close()

    def _one(self, block: int, place: int) -> bytes | BadRecord:
        values = []
        for array, size, convert in self._readers[block]:
            row = array.read(place * size, size)
            if len(row) < size:
                raise changed(self._contents.files.name(array.file), "has become shorter")
            try:
                values.append(convert(row))
            except InvalidValue as error:
                self._contents.files.unchanged(array.file)
                return BadRecord(array.where, str(error), place + 1, unit="record")
        return self._encoder.encode(values)

    def _measured(self, blocks: Sequence[Block]) -> tuple[Part, ...]:
        """Return the splits, with their sizes estimated from some records."""
        parts: dict[str, Part] = {}
        for block, first in zip(blocks, self._firsts.tolist(), strict=False):
            sizes = self.sizes(first + evenly_spaced(block.records, _MEASURED))
            size = round(sum(sizes) / max(len(sizes), 1) * block.records)
            before = parts.get(block.split, Part(block.split, 0, 0))
            parts[block.split] = Part(block.split, before.records + block.records, before.size + size)
        return tuple(parts.values())


def read_arrays(
    kind: str, contents: Contents, blocks: Sequence[Block], options: Options, progress: ScanProgress
) -> ArraySource:
    """Return the source of blocks in the order of their splits; raises UsageError where they do not agree."""
    _check(blocks)
    first = blocks[0].arrays
    check_options(options, tuple(first), f"'{contents.files.tree.name}'")
    target, named_by_user = label_column(options, first)
    classes = _classes(blocks, target, options, progress, named_by_user) if target else None
    fields = {}
    for name, array in first.items():
        if classes and name == target:
            fields[name] = label_field(array.dtype, classes)
            continue
        field = _field(array, options.types.get(name, ""))
        fields[name] = target_field(field, array.dtype) if name == target else field
    return ArraySource(kind, contents, blocks, fields, target, classes.labels if classes else None)


def _field(array: Array, kind: str) -> Field:
    if kind:
        return given_field(array.where, array.dtype, array.shape[1:], kind)
    return infer_field(array.where, array.dtype, array.shape[1:])


def _classes(
    blocks: Sequence[Block], name: str, options: Options, progress: ScanProgress, named_by_user: bool
) -> Classes | None:
    """Return the classes of an array with one value for each record; None where it is something else."""
    arrays = [block.arrays[name] for block in blocks]
    one_each = all(array.row == array.dtype.itemsize for array in arrays)
    if options.types.get(name, "label") != "label" or (
        not named_by_user and (not one_each or arrays[0].dtype.kind == "f")
    ):
        return None
    if not one_each:
        shape = ", ".join(map(str, arrays[0].shape))
        raise UsageError(
            f"'{arrays[0].where}' has the shape ({shape}), and a label has one value for each record.",
            hint="Name another with --label.",
        )
    collector = ClassCollector(name)
    for array in arrays:
        for start in range(0, array.shape[0], _BLOCK):
            count = min(_BLOCK, array.shape[0] - start)
            collector.add(
                np.frombuffer(array.read(start * array.row, count * array.row), array.dtype).tolist()
            )
            progress(start + count, array.shape[0])
    classes = collector.finish()
    if classes.fractions or not classes.names:
        holds = f"fractions, such as {classes.names[0]}" if classes.names else "nothing but NaN"
        raise UsageError(
            f"'{arrays[0].where}' holds {holds}: they are no classes.",
            hint=learn_numbers(name),
        )
    return classes


def _check(blocks: Sequence[Block]) -> None:
    model = blocks[0].arrays
    for block in blocks:
        if block.arrays.keys() != model.keys():
            other = next(iter(block.arrays.values())).where
            raise UsageError(
                f"'{other}' and its like have the fields {', '.join(block.arrays)}, "
                f"and '{next(iter(model.values())).where}' {', '.join(model)}.",
                hint="Every split has the same arrays: x_train, y_train, x_test, y_test.",
            )
        for name, array in block.arrays.items():
            _check_array(array, next(iter(block.arrays.values())), model[name])


def _check_array(array: Array, neighbour: Array, model: Array) -> None:
    if not array.shape or not array.shape[0]:
        raise UsageError(f"'{array.where}' has no records.", hint="Its first dimension counts them.")
    if min(array.shape) < 0 or not array.row:
        shape = ", ".join(map(str, array.shape))
        raise UsageError(
            f"The records of '{array.where}' have no values: its shape is ({shape}).",
            hint="Save an array with values, or remove it.",
        )
    if neighbour.shape and array.shape[0] != neighbour.shape[0]:
        raise UsageError(
            f"'{neighbour.where}' has {neighbour.shape[0]} records, and '{array.where}' {array.shape[0]}.",
            hint="Arrays that belong together have the same number of records.",
        )
    if (array.shape[1:], array.dtype.kind) != (model.shape[1:], model.dtype.kind):
        raise UsageError(
            f"'{array.where}' holds {array.dtype.name} of the shape {array.shape[1:]}, "
            f"and '{model.where}' {model.dtype.name} of {model.shape[1:]}.",
            hint="Arrays of one field have the same type and shape in every split.",
        )


# Chooses the feature of an array: images, numbers, texts or classes.


class Field(NamedTuple):
    """A field of the records, and the conversion of a row's bytes to a value for the `Encoder`."""

    feature: Feature
    convert: Callable[[bytes], Value]
    """Raises InvalidValue."""


def infer_field(where: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Field:
    """Return the field for rows of this type and shape; raises UsageError where a record cannot hold them.

    Bytes in two dimensions, or three with 1, 3 or 4 channels last, are images.
    """
    if dtype == np.uint8 and (image := _image(shape)):
        return Field(Image((image.height, image.width, image.channels), "uint8", "png"), image.encode)
    if dtype.kind in "US":
        return _texts(dtype, shape)
    if dtype.kind in "iub":
        return Field(Tensor(dtype.name, shape), _numbers(dtype, packed_ints))
    if dtype.kind == "f":
        return Field(Tensor("float32", shape), _numbers(dtype, _narrowed))
    raise UsageError(
        f"'{where}' holds {dtype.name}, which no record can.",
        hint="Numbers, truth values and texts are supported.",
    )


def given_field(where: str, dtype: np.dtype[np.generic], shape: tuple[int, ...], kind: str) -> Field:
    """Return the field of a type in `features.TYPES`; raises UsageError where the array cannot be that."""
    feature = TYPES[kind]
    if kind == "bytes" and dtype.itemsize:
        return Field(feature, bytes)
    if kind in ("int", "float", "bool") and dtype.kind in "iubf" and isinstance(feature, Tensor):
        pack = _narrowed if kind == "float" else _rounded if dtype.kind == "f" else packed_ints
        return Field(Tensor(feature.dtype, shape), _numbers(dtype, pack))
    if kind == "text" and dtype.kind in "US":
        return _texts(dtype, shape)
    raise UsageError(
        f"'{where}' holds {dtype.name}, and cannot be {kind}.", hint="Run it without --type for this array."
    )


def label_field(dtype: np.dtype[np.generic], classes: Classes) -> Field:
    """Return the field of a class; a row of the array holds its name or number."""

    numbers = classes.numbers

    def convert(row: bytes) -> int:
        try:
            return numbers[np.frombuffer(row, dtype)[0].item()]
        except KeyError:
            raise InvalidValue("has no label") from None

    return Field(Label(classes.names), convert)


def target_field(field: Field, dtype: np.dtype[np.generic]) -> Field:
    """Return a field that is to be learnt: NaN raises InvalidValue."""
    if dtype.kind != "f":
        return field

    def convert(row: bytes) -> Value:
        if np.isnan(np.frombuffer(row, dtype)).any():
            raise InvalidValue("has no label, but NaN")
        return field.convert(row)

    return field._replace(convert=convert)


def _image(shape: tuple[int, ...]) -> RawPng | None:
    height, width, channels = (*shape, 1) if len(shape) == 2 else shape if len(shape) == 3 else (0, 0, 0)
    return RawPng(height, width, channels) if height and width and channels in CHANNELS else None


def _texts(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Field:
    def single(row: bytes) -> str | bytes:
        return np.frombuffer(row, dtype)[0].item()  # type: ignore[no-any-return]

    def several(row: bytes) -> list[str] | list[bytes]:
        return list(np.frombuffer(row, dtype).tolist())

    scalar: Feature = Text() if dtype.kind == "U" else Tensor("string")
    return Field(Tensor("string", shape), several) if shape else Field(scalar, single)


def _numbers(dtype: np.dtype[np.generic], pack: Callable[[NDArray[Any]], bytes]) -> Callable[[bytes], bytes]:
    return lambda row: pack(np.frombuffer(row, dtype))


def _narrowed(values: NDArray[np.floating]) -> bytes:
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if np.isinf(narrow).any() and not np.isinf(values).any():
        raise InvalidValue("holds a number that is too large for 32 bits")
    return packed_floats(narrow)


def _rounded(values: NDArray[np.floating]) -> bytes:
    if not (np.isfinite(values) & (values == np.trunc(values))).all():
        raise InvalidValue("holds a number that is not whole")
    return packed_ints(values.astype(np.int64))
