"""Defines the records of datasets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuctl.display import Record

if TYPE_CHECKING:
    from tpuctl.data.output.manifest import Manifest


@dataclass(frozen=True)
class SplitInfo(Record):
    """One split of a dataset."""

    name: str
    records: int
    shards: int
    bytes: int


@dataclass(frozen=True)
class DatasetInfo(Record):
    """One version of a dataset in the bucket."""

    name: str
    version: str
    uri: str
    """Its folder: `gs://...`."""
    records: int
    bytes: int
    """Of all shards."""
    splits: tuple[SplitInfo, ...]
    fields: tuple[str, ...]
    """Names of the fields of a record."""
    classes: tuple[str, ...]
    """Names of the classes; none without a label."""
    skipped: int
    """Bad records of the source that were left out."""
    digest: str
    """SHA-256 of its manifest: the same source, options and seed give the same."""

    @property
    def shards(self) -> int:
        """Shards of all splits."""
        return sum(split.shards for split in self.splits)

    @classmethod
    def _of(cls, manifest: Manifest, bucket: str) -> DatasetInfo:
        splits = tuple(
            SplitInfo(name, split.records, len(split.shards), split.bytes)
            for name, split in manifest.splits.items()
        )
        return cls(
            name=manifest.name,
            version=manifest.version,
            uri=manifest.ref.uri(bucket),
            records=manifest.records,
            bytes=manifest.bytes,
            splits=splits,
            fields=tuple(manifest.features),
            classes=tuple(manifest.classes),
            skipped=manifest.source.skipped,
            digest=manifest.digest,
        )
