"""Reads the first examples of a dataset in the bucket, and its vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tpuctl.data.output.manifest import Manifest
from tpuctl.data.output.shards import shard_records
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.data.tokens import FILE as VOCABULARY
from tpuctl.data.tokens import Vocabulary, parse_vocabulary
from tpuctl.display import Record
from tpuctl.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket

_FIRST_PART = 1 << 18
"""Bytes fetched at a time for a few examples."""
MOST_BYTES, MOST_VALUES = 1 << 28, 1 << 24
"""Size and values of the examples that are held at once."""


@dataclass(frozen=True)
class Example(Record):
    """One record of a dataset, decoded."""

    split: str
    values: Mapping[str, tuple[bytes | int | float, ...]]
    """By the field's name."""


def head(bucket: Bucket, manifest: Manifest, *, split: str, count: int) -> list[Example]:
    """Return the first examples of a split (of the first one, where it is empty); raises UsageError.

    Of ArrayRecord the first shard is fetched as a whole.
    """
    name = split or next(iter(manifest.splits))
    if name not in manifest.splits:
        raise UsageError(
            f"The dataset '{manifest.name}' has no split '{name}'.",
            hint=f"One of {', '.join(manifest.splits)}.",
        )
    examples: list[Example] = []
    held = values = 0
    for entry in manifest.splits[name].shards:
        shard = bucket.stat(manifest.ref.folder + entry.file)
        if shard is None:
            raise NotFoundError(f"{entry.file} is missing.", hint="See: tpuctl data verify " + manifest.name)
        is_whole = manifest.file_format != "tfrecord"
        stream = bucket.stream(shard) if is_whole else bucket.stream(shard, _FIRST_PART)
        records = shard_records(stream, manifest.file_format, shard.size)
        for record in islice(records, count - len(examples)):
            held += len(record)
            decoded: dict[str, tuple[bytes | int | float, ...]]
            decoded = {field: (*items,) for field, items in decode(record).items()}
            examples.append(Example(name, decoded))
            values += sum(map(len, decoded.values()))
            if held > MOST_BYTES or values > MOST_VALUES:
                raise _too_large(manifest, len(examples))
        if len(examples) == count:
            break
    return examples


READERS = {
    "tfrecord": "TensorFlow: tf.data.TFRecordDataset",
    "arrayrecord": "Grain: grain.sources.ArrayRecordDataSource",
}
"""Format of shards -> what reads them."""


def _too_large(manifest: Manifest, count: int) -> UsageError:
    dataset = manifest.name
    fewer = f"Show fewer: tpuctl data head {dataset} -n {count - 1}" if count > 1 else ""
    number = f"{count} examples of the dataset '{dataset}' have" if count > 1 else "The first example has"
    return UsageError(
        f"{number} more than {MOST_BYTES / 1e6:.0f} MB or {MOST_VALUES} values: too much to show.",
        hint=fewer or f"Read it with {READERS[manifest.file_format]}.",
    )


def read_vocabulary(bucket: Bucket, manifest: Manifest) -> Vocabulary | None:
    """Return the vocabulary of a dataset whose text became token ids, None for others."""
    tokens = manifest.source.options.tokens if manifest.source.options else None
    if tokens is None:
        return None
    return parse_vocabulary(bucket.read(manifest.ref.folder + VOCABULARY), tokens.kind, Path(VOCABULARY))
