"""Defines the manifest: splits, shards and features of a dataset. A dataset without one does not exist."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tpuctl import bucket_objects
from tpuctl.bucket_objects import BadObjectError, Count, Crc32c, FileName, Label, ObjectName, Text, too_large
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.features import Audio, Feature, Objects, Several
from tpuctl.datasets import DatasetRef
from tpuctl.object_content import Content

FILE = "manifest.json"
MOST_BAD = 10_000
"""Bad records that are listed one by one; the others are only counted."""
SCHEMA = 4
_SCHEMA_OF_TFRECORD = 3
_SCHEMA_OF_VALUES = 2
"""That of a dataset without lists of features, objects and audio: earlier versions of tpuctl read it too."""
FileFormat = Literal["tfrecord", "arrayrecord"]
"""Of the shards."""
SUFFIXES: dict[FileFormat, str] = {"tfrecord": "tfrecord", "arrayrecord": "array_record"}
"""What TFDS calls them, also in the names of files (tensorflow_datasets/core/file_adapters.py)."""
LARGEST = 64 << 20
"""Most bytes of a manifest: 100,000 shards or a million class names take about 20 MB."""


class FileEntry(msgspec.Struct, frozen=True):
    """One of the small files beside the shards."""

    bytes: Count
    crc32c: Crc32c

    @classmethod
    def of(cls, content: Content) -> FileEntry:
        """Return the entry of a file with this content."""
        return cls(content.size, content.crc32c)

    @property
    def content(self) -> Content:
        """Size and checksum of the file."""
        return Content(self.bytes, self.crc32c)


class ShardEntry(msgspec.Struct, frozen=True):
    """One file with records."""

    file: FileName
    """Object name below the dataset's folder."""
    records: Count
    bytes: Count
    crc32c: Crc32c
    """Base64 of the big-endian CRC-32C of the complete file, as GCS reports it of an object."""

    @property
    def content(self) -> Content:
        """Size and checksum of the file."""
        return Content(self.bytes, self.crc32c)


class SplitEntry(msgspec.Struct, frozen=True):
    """One split and its shards, in order."""

    records: Count
    bytes: Count
    shards: tuple[ShardEntry, ...]


class SourceEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The source of the dataset, and the options it was read with."""

    kind: Label
    fingerprint: Label
    """SHA-256 of the names and sizes of the source files; the shards' checksums cover their contents."""
    seed: int
    options: Options | None = None
    """None for the defaults."""
    skipped: Count = 0
    """Bad records that were skipped."""
    bad: Annotated[tuple[BadRecord, ...], Meta(max_length=MOST_BAD)] = ()
    """The first `MOST_BAD` of them."""


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A dataset: the same source, splits, seed and shard count give the same manifest."""

    schema: int
    name: Label
    version: Label
    features: Annotated[dict[Text, Feature], Meta(max_length=100_000)]
    classes: Annotated[tuple[Text, ...], Meta(max_length=1_000_000)]
    splits: Annotated[dict[FileName, SplitEntry], Meta(min_length=1, max_length=1000)]
    source: SourceEntry
    files: Annotated[dict[ObjectName, FileEntry], Meta(max_length=100_000)]
    tpuctl: Label
    """Version of the program that wrote it."""
    file_format: FileFormat = "tfrecord"

    @property
    def ref(self) -> DatasetRef:
        """Name and version."""
        return DatasetRef(self.name, self.version)

    @property
    def records(self) -> int:
        """Records in all splits."""
        return sum(split.records for split in self.splits.values())

    @property
    def bytes(self) -> int:
        """Bytes of all shards."""
        return sum(split.bytes for split in self.splits.values())

    @property
    def shards(self) -> tuple[ShardEntry, ...]:
        """The shards of all splits."""
        return tuple(shard for split in self.splits.values() for shard in split.shards)

    @property
    def digest(self) -> str:
        """SHA-256 of all fields but the version of tpuctl and its wording of what is bad in a record."""
        bad = tuple(msgspec.structs.replace(record, why="", hint="") for record in self.source.bad)
        source = msgspec.structs.replace(self.source, bad=bad)
        return sha256(encode_manifest(msgspec.structs.replace(self, source=source, tpuctl=""))).hexdigest()


def schema_of(features: Mapping[str, Feature], file_format: FileFormat) -> int:
    """Return the schema of a manifest with these features and this format of shards."""
    if file_format != "tfrecord":
        return SCHEMA
    later = any(isinstance(feature, Several | Objects | Audio) for feature in features.values())
    return _SCHEMA_OF_TFRECORD if later else _SCHEMA_OF_VALUES


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest as indented JSON, always the same bytes for the same manifest."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode_manifest(data: bytes, ref: DatasetRef | None = None, file: str = FILE) -> Manifest:
    """Return the manifest in `data`, of `ref` if that is given; `file` is where it is from.

    Raises BadObjectError if it is none, of another dataset, or of a later schema.
    """

    def check(manifest: Manifest) -> None:
        if not manifest.ref.is_valid or manifest.ref != (ref or manifest.ref):
            raise ValueError(f"it is of {str(manifest.ref)!r}")
        if len({shard.file for shard in manifest.shards}) < len(manifest.shards):
            raise ValueError("it names a shard twice")

    name = f"{ref.folder}{file}" if ref else file
    if len(data) > LARGEST:
        raise too_large(name, LARGEST)
    try:
        manifest = bucket_objects.decode(data, Manifest, check)
        _check_schema(manifest.schema, name)
        return manifest
    except bucket_objects.DecodeError as error:
        with suppress(bucket_objects.DecodeError):
            _check_schema(bucket_objects.decode(data, _Schema).schema, name)
        reason = f"is not a dataset's manifest: {error}"
        hint = f"Remove it with 'tpuctl data rm {ref}', and upload the dataset again." if ref else ""
        raise BadObjectError(name, reason, hint=hint or "Upload the dataset again.") from error


def _check_schema(schema: int, name: str) -> None:
    if schema > SCHEMA:
        reason = f"has schema {schema}, and this tpuctl reads up to {SCHEMA}"
        raise BadObjectError(name, reason, hint="Update tpuctl.", schema=schema)


class _Schema(msgspec.Struct):
    schema: Count
