"""Reads TFRecord files of tf.train.Example: verifies each record, and does not change it."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.rows import BLOCK, Contents, Rows
from tpuctl.data.files.source_files import SourceFiles, list_files
from tpuctl.data.images.header import InvalidImage
from tpuctl.data.images.report import merged
from tpuctl.data.images.rule import ImageRule
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.classes import ClassCollector
from tpuctl.data.schema.features import (
    TYPES,
    Audio,
    Box,
    Feature,
    Image,
    Label,
    Other,
    Several,
    Tensor,
    Text,
    example_kind,
    flat,
)
from tpuctl.data.source import (
    Indices,
    Observations,
    Part,
    Records,
    ScanProgress,
    Source,
    closed_on_error,
    supervised_pair,
)
from tpuctl.data.sources.folders import ImageField, image_feature, image_field
from tpuctl.data.sources.names import TFRECORDS
from tpuctl.data.tables.columns import check_options, check_width, label_column
from tpuctl.data.tfrecord.example_decoding import Values, counts, decode
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.data.tfrecord.framing import LONGEST, OVERHEAD, frame_parts, framed_length
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

_SHARE = 0.99
"""Share of records that decides on the number of values: the others are bad."""
_PYTHON: dict[str, type] = {"bytes": bytes, "float": float, "int64": int}
_TENSORS: dict[type, str] = {bytes: "string", float: "float32", int: "int64"}
_WORDS: dict[type, str] = {bytes: "bytes", float: "floats", int: "integers"}
_HEAD = 12
"""Bytes before a record: its length, and the checksum of that."""
_SAMPLE = 1000


class TFRecordSource(Source):
    """Records of TFRecord files."""

    def __init__(
        self, kind: str, rows: Rows, damaged: Sequence[BadRecord], features: Mapping[str, Feature],
        supervised: tuple[str, str] | None, labels: NDArray[np.int32] | None = None,
        images: Mapping[str, ImageField] = {},
    ) -> None:  # fmt: skip
        """`damaged` are the records after which the rest of a file is lost; `images` are looked at."""
        self._rows = rows
        self._checks = ExampleChecks(features, {name: field.rule for name, field in images.items()})
        report = merged([field.report for field in images.values()])
        super().__init__(
            kind=kind,
            origin=rows.files,
            features=features,
            supervised=supervised,
            labels=labels,
            exact=not damaged and not (report and report.converted),
            parts=_parts(rows),
            images=report,
        )
        self.bad = [*self.bad, *damaged]

    def read(self, indices: Indices, observations: Observations) -> Records:
        for batch in self._rows.batches(indices):
            for index, framed in zip(batch.tolist(), self._rows.read(batch), strict=True):
                record, why = unframed(framed)
                if not why:
                    record, why = self._checks(record, observations)
                yield self._bad(index, why) if why else record

    def final_features(self, observations: Observations) -> Mapping[str, Feature]:
        return self._checks.final_features(self.features, observations)

    def close(self) -> None:
        self._rows.close()

    def _bad(self, index: int, why: str) -> BadRecord:
        file = self._rows.file_of(index)
        self._rows.files.unchanged(file)
        number = index - int(self._rows.firsts[file]) + 1
        return BadRecord(self._rows.files.name(file), why, number, unit="record")


def read_tfrecords(tree: Tree, options: Options, progress: ScanProgress) -> TFRecordSource:
    """Return the records of the only file of a tree, or of all TFRecord files below it; raises UsageError."""
    rows, damaged = open_records(list_files(tree, TFRECORDS), progress)
    with closed_on_error(rows):
        sample = _sample(rows)
        check_width(len({feature for record in sample for feature in record}), tree.name)
        features, images = infer_features(sample, options, sampled=len(sample) < len(rows))
        if not features:
            raise _no_examples(tree.name, damaged)
        check_options(options, tuple(features), f"'{tree.name}'", images=bool(images))
        features |= {
            name: _given(name, features[name], kind)
            for name, kind in options.types.items()
            if kind != "label"
        }
        label, named_by_user = label_column(options, features)
        labels = None
        if named_by_user and options.types.get(label, "label") == "label":
            features[label], labels = _classes(rows, label, features[label], progress)
        supervised = supervised_pair(list(features), label)
        return TFRecordSource("tfrecord", rows, damaged, features, supervised, labels, images)


def open_records(files: SourceFiles, progress: ScanProgress) -> tuple[Rows, list[BadRecord]]:
    """Find where the records begin; return as bad each damaged one, after which its file's rest is lost."""
    damaged: list[BadRecord] = []
    return Rows(files, partial(_begins, damaged), header=False, progress=progress), damaged


def unframed(framed: bytes) -> tuple[bytes, str]:
    """Return the record in its framing, and what is wrong with it."""
    size = struct.unpack_from("<Q", framed)[0] if len(framed) >= _HEAD else 0
    record = framed[_HEAD : _HEAD + size]
    head, _, tail = frame_parts(record)
    if framed[:_HEAD] != head or framed[_HEAD + size : size + OVERHEAD] != tail:
        return record, "is damaged: the checksum of its data does not match"
    return record, ""


def _begins(damaged: list[BadRecord], contents: Contents, file: int) -> Iterator[NDArray[np.int64]]:
    """Yield where the records of a file begin: only their lengths are read."""
    size, at, length, records = contents.sizes[file], 0, 0, 0
    block, block_at = b"", 0
    begins: list[int] = []
    while at < size:
        if at + _HEAD > block_at + len(block):
            # small records are read by the block, and large ones are skipped
            block, block_at = contents.read(file, at, _HEAD if length > BLOCK >> 4 else BLOCK), at
        head = block[at - block_at : at - block_at + _HEAD]
        length = framed_length(head) or 0
        if (not length and head[:8] != bytes(8)) or length > LONGEST or at + length + OVERHEAD > size:
            damaged.append(_lost(contents.files.name(file), records + 1, length))
            break
        begins.append(at)
        records += 1
        at += length + OVERHEAD
        if len(begins) == BLOCK >> 4:
            yield np.array(begins)
            begins.clear()
    yield np.array(begins, np.int64)


def _lost(file: str, record: int, length: int) -> BadRecord:
    """Return the record with which a file is lost; `length` is 0 where its length is damaged."""
    damage = "the file ends in the middle of it" if length else "the checksum of its length does not match"
    if length > LONGEST:
        damage = f"it would have {length} bytes, and at most {LONGEST} are read"
    why = f"is damaged ({damage}), and what follows is lost"
    return BadRecord(file, why, record, "Copy the file again", "record")


def _sample(rows: Rows) -> list[dict[str, Values]]:
    sample = rows.sample()
    examples = []
    for framed in rows.read(sample[:: max(len(sample) // _SAMPLE, 1)]):
        record, why = unframed(framed)
        try:
            examples += [] if why else [decode(record)]
        except UsageError:
            continue
    return examples


def _given(name: str, inferred: Feature, kind: str) -> Feature:
    feature = TYPES[kind]
    if example_kind(feature) != example_kind(inferred):
        raise UsageError(
            f"The feature '{name}' holds {example_kind(inferred)} values, and cannot be {kind}.",
            hint="The records are not changed: a type only says how they are read.",
            feature=name,
        )
    shape = inferred.shape if isinstance(inferred, Tensor) else ()
    return Tensor(feature.dtype if isinstance(feature, Tensor) else "string", shape) if shape else feature


def _classes(
    rows: Rows, name: str, feature: Feature, progress: ScanProgress
) -> tuple[Label, NDArray[np.int32] | None]:
    if example_kind(feature) != "int64" or feature != Tensor("int64"):
        raise UsageError(
            f"The feature '{name}' is no label: it is not one whole number.",
            hint="The records are not changed, and a label is the number of its class.",
            feature=name,
        )
    collector, scanned = ClassCollector(name), 0
    for batch in rows.in_order():
        collector.add(_value(framed, name) for framed in batch)
        scanned += len(batch)
        progress(scanned, len(rows))
    classes = collector.finish()
    if not classes.names or any(value != number for value, number in classes.numbers.items()):
        raise UsageError(
            f"The feature '{name}' is no label: its numbers do not count the classes from 0 on.",
            hint="The records are not changed; run it without --label.",
            feature=name,
        )
    return Label(classes.names), classes.labels


def _value(framed: bytes, name: str) -> object:
    record, why = unframed(framed)
    try:
        values = [] if why else decode(record).get(name, [])
    except UsageError:
        return None
    return values[0] if values else None


def _parts(rows: Rows) -> tuple[Part, ...]:
    return tuple(
        Part(split, end - first, size - OVERHEAD * (end - first)) for split, first, end, size in rows.splits()
    )


def _no_examples(name: str, damaged: Sequence[BadRecord]) -> UsageError:
    why = f": {damaged[0]}" if damaged else ""
    return UsageError(
        f"'{name}' has no records of tf.train.Example{why}.",
        hint="Give TFRecord files, with the features of an Example in each record.",
        file=name,
    )


# Infers the features of existing examples from some of them, and checks every record.


def infer_features(
    sample: Sequence[Mapping[str, Values]], options: Options, *, sampled: bool
) -> tuple[dict[str, Feature], dict[str, ImageField]]:
    """Return the features that most of the records have, by name in order; and those that are images.

    `sampled` tells that there are more records.
    """
    features: dict[str, Feature] = {}
    images: dict[str, ImageField] = {}
    for name in sorted({name for record in sample for name in record}):
        values = [record.get(name) or [] for record in sample]
        present = [items for items in values if items]
        if 2 * len(present) > len(values):
            length = _usual([len(items) for items in values])
            encoded = [item for items in present for item in items if isinstance(item, bytes)]
            field = image_field(encoded, options, sampled=sampled) if length == 1 else None
            features[name] = field.feature if field else _inferred(present, length)
            images |= {name: field} if field else {}
    return features, images


class ExampleChecks:
    """Checks that a record has the right kind and number of values of each feature; converts its images."""

    def __init__(self, features: Mapping[str, Feature], rules: Mapping[str, ImageRule]) -> None:
        """`rules` are those of the images that are to be looked at, by their names."""
        known = flat({name: feature for name, feature in features.items() if not isinstance(feature, Other)})
        self._kinds = [(name, example_kind(feature)) for name, feature in known.items()]
        self._numbers = [_number(feature) for feature in known.values()]
        self._rules = {name: rule for name, rule in rules.items() if isinstance(features.get(name), Image)}

    def __call__(self, record: bytes, observations: Observations) -> tuple[bytes, str]:
        """Return a record, with its images converted, and what is wrong with it; notes the images' shapes."""
        try:
            actual = counts(record, self._kinds)
        except UsageError:
            return record, "is not a tf.train.Example"
        for place, (number, varies) in enumerate(self._numbers):
            if not actual[place] or (actual[place] % number if varies else actual[place] != number):
                if why := self._explained(decode(record)):
                    return record, why
                break
        return self._with_images(record, observations)

    def final_features(
        self, features: Mapping[str, Feature], observations: Observations
    ) -> dict[str, Feature]:
        """Return the features with the heights, widths and encodings that all images had in common."""
        final = dict(features)
        for name, rule in self._rules.items():
            final[name] = image_feature(rule, observations, name)
        return final

    def _explained(self, record: Mapping[str, Values]) -> str:
        for (name, kind), (number, varies) in zip(self._kinds, self._numbers, strict=True):
            values = record.get(name) or []
            if len(values) % number if varies else len(values) != number:
                return f"has {_described(len(values))} in the feature '{name}', expected {number}"
            if values and not isinstance(values[0], _PYTHON[kind]):
                actual, expected = _WORDS[type(values[0])], _WORDS[_PYTHON[kind]]
                return f"has {actual} in the feature '{name}', expected {expected}"
        return ""

    def _with_images(self, record: bytes, observations: Observations) -> tuple[bytes, str]:
        values = decode(record) if self._rules else {}
        changed = False
        for name, rule in self._rules.items():
            original = values[name][0]
            try:
                image, info = rule.apply(original if isinstance(original, bytes) else b"")
            except InvalidImage as error:
                return record, f"has an image in the feature '{name}' which {error}"
            for side, value in (("height", info.height), ("width", info.width), ("encoding", info.encoding)):
                observations.note(f"{name} {side}", value)
            changed = changed or image is not original
            values[name] = [image]
        return encode({name: items for name, items in values.items() if items}) if changed else record, ""


def _usual(lengths: Sequence[int]) -> int | None:
    """Return the number of values that (nearly) all records have, None where it varies."""
    length, count = Counter(lengths).most_common(1)[0]
    return length if length and count >= _SHARE * len(lengths) else None


def _inferred(present: Sequence[Values], length: int | None) -> Feature:
    first = present[0][0]
    if length != 1:
        return Tensor(_TENSORS[type(first)], (length,))
    if not isinstance(first, bytes):
        return Tensor(_TENSORS[type(first)])
    return Text() if all(map(_is_text, present)) else Tensor("string")


def _number(feature: Feature) -> tuple[int, bool]:
    """Return how many values a record has, and whether it may also be several times as many, or none."""
    if isinstance(feature, Several):
        return _number(feature.item)[0], True
    if isinstance(feature, Audio):
        return feature.channels, True
    shape = feature.shape if isinstance(feature, Tensor) else (4,) if isinstance(feature, Box) else ()
    return prod(size for size in shape if size is not None), None in shape


def _described(count: int) -> str:
    return "nothing" if not count else f"{count} value{'s' if count > 1 else ''}"


def _is_text(values: Values) -> bool:
    try:
        return all(
            b"\0" not in value and value.decode() is not None for value in values if isinstance(value, bytes)
        )
    except UnicodeDecodeError:
        return False
