"""The reader of existing TFRecord files of tf.train.Example: each record goes on as it is, but verified."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.contents import BLOCK, Contents
from tpuctl.data.files.rows import Rows
from tpuctl.data.files.source_files import SourceFiles, list_files
from tpuctl.data.options import Options
from tpuctl.data.schema.classes import ClassCollector
from tpuctl.data.schema.features import TYPES, Feature, Label, Tensor, example_kind
from tpuctl.data.source import Indices, Observations, Part, Records, ScanProgress
from tpuctl.data.sources.example_fields import Checks, infer_fields
from tpuctl.data.tables.columns import check_options, label_column
from tpuctl.data.tfrecord.example_decoding import Values, decode
from tpuctl.data.tfrecord.framing import OVERHEAD, frame_parts, framed_length
from tpuctl.errors import UsageError

FILES = re.compile(r"\.tfrec(ords?)?(-\d{5}-of-\d{5})?(\.gz)?$")
_HEAD = 12
"""Bytes before a record: its length, and the checksum of that."""
_SAMPLE = 1000


class TFRecordSource:
    """Records of TFRecord files."""

    def __init__(
        self, kind: str, rows: Rows, bad: Sequence[BadRecord], features: Mapping[str, Feature],
        supervised: tuple[str, str] | None, labels: NDArray[np.int32] | None = None, *, pictures: bool,
    ) -> None:  # fmt: skip
        """With `pictures`, the images of every record are looked into."""
        self.kind = kind
        self.features = features
        self.supervised = supervised
        self.labels = labels
        self.bad = [*rows.files.bad, *bad]
        self.exact = not bad
        self.fingerprint = rows.files.listing.fingerprint
        self.parts: Sequence[Part] = _parts(rows)
        self._rows = rows
        self._checks = Checks(features, pictures=pictures)

    def read(self, indices: Indices, seen: Observations) -> Records:
        for start in range(0, len(indices), self._rows.batch):
            some = indices[start : start + self._rows.batch]
            for index, framed in zip(some.tolist(), self._rows.read(some), strict=True):
                record, why = unframed(framed)
                why = why or self._checks(record, seen)
                yield self._bad(index, why) if why else record

    def stamp(self, indices: Indices) -> bytes:
        return self._rows.files.stamp

    def check(self) -> None:
        self._rows.files.check()

    def final_features(self, seen: Observations) -> Mapping[str, Feature]:
        return self._checks.final_features(self.features, seen)

    def close(self) -> None:
        self._rows.close()

    def _bad(self, index: int, why: str) -> BadRecord:
        file = self._rows.file_of(index)
        self._rows.files.unchanged(file)
        return BadRecord(
            self._rows.files.name(file), why, index - int(self._rows.firsts[file]) + 1, unit="record"
        )


def read_tfrecords(root: Path, options: Options, progress: ScanProgress) -> TFRecordSource:
    """Return the records of the file at `root`, or of all TFRecord files below it; raises UsageError."""
    rows, bad = open_records(list_files(root, FILES), progress)
    try:
        features = infer_fields(_sample(rows))
        if not features:
            raise _no_examples(root.name, bad)
        check_options(options, tuple(features), f"'{root.name}'")
        features |= {
            name: _given(name, features[name], kind)
            for name, kind in options.types.items()
            if kind != "label"
        }
        label, said = label_column(options, features)
        labels = None
        if said and options.types.get(label, "label") == "label":
            features[label], labels = _classes(rows, label, features[label], progress)
        others = [name for name in features if name != label]
        supervised = (others[0], label) if label and len(others) == 1 else None
        return TFRecordSource("tfrecord", rows, bad, features, supervised, labels, pictures=True)
    except BaseException:
        rows.close()
        raise


def open_records(files: SourceFiles, progress: ScanProgress) -> tuple[Rows, list[BadRecord]]:
    """Find where the records begin; what follows a damaged length is lost, and bad."""
    bad: list[BadRecord] = []
    return Rows(files, partial(_begins, bad), header=False, progress=progress), bad


def unframed(framed: bytes) -> tuple[bytes, str]:
    """Return the record in its framing, and what is wrong with it."""
    size = struct.unpack_from("<Q", framed)[0] if len(framed) >= _HEAD else 0
    record = framed[_HEAD : _HEAD + size]
    head, _, tail = frame_parts(record)
    if framed[:_HEAD] != head or framed[_HEAD + size : size + OVERHEAD] != tail:
        return record, "is damaged: the checksum of its data does not match"
    return record, ""


def _begins(bad: list[BadRecord], contents: Contents, file: int) -> Iterator[NDArray[np.int64]]:
    """Yield where the records of a file begin: only their lengths are looked at."""
    size, at, length, records = contents.sizes[file], 0, 0, 0
    block, block_at = b"", 0
    begins: list[int] = []
    while at < size:
        if at + _HEAD > block_at + len(block):
            # small records come by the block, and large ones are jumped over
            block, block_at = contents.read(file, at, _HEAD if length > BLOCK >> 4 else BLOCK), at
        head = block[at - block_at : at - block_at + _HEAD]
        length = framed_length(head) or 0
        if (not length and head[:8] != bytes(8)) or at + length + OVERHEAD > size:
            bad.append(_lost(contents.files.name(file), records + 1, in_length=not length))
            break
        begins.append(at)
        records += 1
        at += length + OVERHEAD
        if len(begins) == BLOCK >> 4:
            yield np.array(begins)
            begins.clear()
    yield np.array(begins, np.int64)


def _lost(file: str, record: int, *, in_length: bool) -> BadRecord:
    what = "the checksum of its length does not match" if in_length else "the file ends in the middle of it"
    why = f"is damaged ({what}), and what follows is lost"
    return BadRecord(file, why, record, "Copy the file again", "record")


def _sample(rows: Rows) -> list[dict[str, Values]]:
    some = rows.sample()
    found = []
    for framed in rows.read(some[:: max(len(some) // _SAMPLE, 1)]):
        record, why = unframed(framed)
        try:
            found += [] if why else [decode(record)]
        except UsageError:
            continue
    return found


def _given(name: str, inferred: Feature, kind: str) -> Feature:
    wanted = TYPES[kind]
    if example_kind(wanted) != example_kind(inferred):
        raise UsageError(
            f"The feature '{name}' holds {example_kind(inferred)} values, and cannot be {kind}.",
            hint="The records go on as they are: a type says how they are read, and does not change them.",
            feature=name,
        )
    shape = inferred.shape if isinstance(inferred, Tensor) else ()
    return Tensor(wanted.dtype if isinstance(wanted, Tensor) else "string", shape) if shape else wanted


def _classes(
    rows: Rows, name: str, feature: Feature, progress: ScanProgress
) -> tuple[Label, NDArray[np.int32] | None]:
    if example_kind(feature) != "int64" or feature != Tensor("int64"):
        raise UsageError(
            f"The feature '{name}' is no label: it is not one whole number.",
            hint="The records go on as they are, and a label is the number of its class.",
            feature=name,
        )
    gathering, done = ClassCollector(name), 0
    for some in rows.in_order():
        gathering.add(_value(framed, name) for framed in some)
        done += len(some)
        progress(done, len(rows))
    classes = gathering.finish()
    if not classes.names or any(value != number for value, number in classes.numbers.items()):
        raise UsageError(
            f"The feature '{name}' is no label: its numbers do not count the classes from 0 on.",
            hint="The records go on as they are; leave the label out.",
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


def _no_examples(name: str, bad: Sequence[BadRecord]) -> UsageError:
    why = f": {bad[0]}" if bad else ""
    return UsageError(
        f"'{name}' has no records of tf.train.Example{why}.",
        hint="Give TFRecord files, with the features of an Example in each record.",
        file=name,
    )
