"""Defines the manifest: splits, shards and features of a dataset. A dataset without one does not exist."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.options import Options
from tpuctl.data.schema.features import Feature
from tpuctl.datasets import DatasetRef
from tpuctl.errors import UsageError
from tpuctl.object_content import Content

FILE = "manifest.json"
MOST_BAD = 10_000
"""Bad records that are listed one by one; the others are only counted."""
SCHEMA = 2


class FileEntry(msgspec.Struct, frozen=True):
    """One of the small files beside the shards."""

    bytes: int
    crc32c: str

    @classmethod
    def of(cls, content: Content) -> FileEntry:
        """Return the entry of a file with this content."""
        return cls(content.size, content.crc32c)

    @property
    def content(self) -> Content:
        """Size and checksum of the file."""
        return Content(self.bytes, self.crc32c)


class ShardEntry(msgspec.Struct, frozen=True):
    """One TFRecord file."""

    file: str
    """Object name below the dataset's folder."""
    records: int
    bytes: int
    crc32c: str
    """Base64 of the big-endian CRC-32C of the complete file, as GCS reports it of an object."""

    @property
    def content(self) -> Content:
        """Size and checksum of the file."""
        return Content(self.bytes, self.crc32c)


class SplitEntry(msgspec.Struct, frozen=True):
    """One split and its shards, in order."""

    records: int
    bytes: int
    shards: tuple[ShardEntry, ...]


class SourceEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The source of the dataset, and the options it was read with."""

    kind: str
    fingerprint: str
    """SHA-256 of the names and sizes of the source files; the shards' checksums cover their contents."""
    seed: int
    options: Options | None = None
    """None for the defaults."""
    skipped: int = 0
    """Bad records that were skipped."""
    bad: tuple[BadRecord, ...] = ()
    """The first `MOST_BAD` of them."""


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A dataset: the same source, splits, seed and shard count give the same manifest."""

    schema: int
    name: str
    version: str
    features: dict[str, Feature]
    classes: tuple[str, ...]
    splits: dict[str, SplitEntry]
    source: SourceEntry
    files: dict[str, FileEntry]
    tpuctl: str
    """Version of the program that wrote it."""

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


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest as indented JSON, always the same bytes for the same manifest."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode_manifest(data: bytes) -> Manifest:
    """Return the manifest in `data`; raises UsageError if it is none, or of a later schema."""
    try:
        schema = msgspec.json.decode(data, type=_Schema).schema
        if schema > SCHEMA:
            raise UsageError(
                f"The manifest has schema {schema}, and this tpuctl reads up to {SCHEMA}.",
                hint="Update tpuctl.",
                schema=schema,
            )
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"This is not a dataset's manifest: {error}.", hint="Upload the dataset again."
        ) from error


class _Schema(msgspec.Struct):
    schema: int
