"""The small files of a dataset, in the order they are written: TFDS's metadata, then the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import google_crc32c
import msgspec

from tpuctl import __version__
from tpuctl.data.features import Label, tfds_features
from tpuctl.data.manifest import (
    FILE,
    SCHEMA,
    FileEntry,
    Manifest,
    ShardEntry,
    SourceEntry,
    SplitEntry,
    checksum_text,
    encode_manifest,
)
from tpuctl.data.source import Source, fingerprint
from tpuctl.data.tfrecord import OVERHEAD


def small_files(
    name: str, version: str, source: Source, seed: int, splits: Mapping[str, Sequence[ShardEntry]]
) -> dict[str, bytes]:
    """Return file name -> content, the manifest last.

    The others are what `tfds.builder_from_directory` reads; their format is that of tensorflow_datasets 4.9,
    core/proto/dataset_info.proto and feature.proto written as JSON.
    """
    files = _label_files(source)
    files["features.json"] = _json(tfds_features(source.features))
    files["dataset_info.json"] = _json(_dataset_info(name, version, source, splits))
    manifest = Manifest(
        schema=SCHEMA,
        name=name,
        version=version,
        features=source.features,
        classes=source.classes,
        splits={split: _split_entry(shards) for split, shards in splits.items()},
        source=SourceEntry(source.kind, fingerprint(source.records), seed),
        files={file: FileEntry(len(data), _checksum(data)) for file, data in files.items()},
        tpuctl=__version__,
    )
    return {**files, FILE: encode_manifest(manifest)}


def small_file_names(source: Source) -> tuple[str, ...]:
    """Return the names of these files, in the same order."""
    return (*_label_files(source), "features.json", "dataset_info.json", FILE)


def _dataset_info(
    name: str, version: str, source: Source, splits: Mapping[str, Sequence[ShardEntry]]
) -> dict[str, Any]:
    info: dict[str, Any] = {
        "name": name,
        "version": version,
        "fileFormat": "tfrecord",
        "splits": [_split_info(split, shards) for split, shards in splits.items()],
    }
    if source.supervised:
        info["supervisedKeys"] = {"tuple": {"items": [{"featureKey": key} for key in source.supervised]}}
    return info


def _split_info(split: str, shards: Sequence[ShardEntry]) -> dict[str, Any]:
    return {
        "name": split,
        "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
        "shardLengths": [str(shard.records) for shard in shards],
        # TFDS counts the examples without their framing
        "numBytes": str(sum(shard.bytes - OVERHEAD * shard.records for shard in shards)),
    }


def _split_entry(shards: Sequence[ShardEntry]) -> SplitEntry:
    return SplitEntry(
        records=sum(shard.records for shard in shards),
        bytes=sum(shard.bytes for shard in shards),
        shards=tuple(shards),
    )


def _label_files(source: Source) -> dict[str, bytes]:
    return {
        f"{key}.labels.txt": "".join(f"{name}\n" for name in feature.classes).encode()
        for key, feature in source.features.items()
        if isinstance(feature, Label)
    }


def _json(content: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def _checksum(data: bytes) -> str:
    return checksum_text(google_crc32c.value(data))
