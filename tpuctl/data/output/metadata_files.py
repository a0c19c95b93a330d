"""The small files of a dataset, in the order they are written: TFDS's metadata, then the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tpuctl import __version__
from tpuctl.data.options import Options
from tpuctl.data.output.manifest import (
    FILE,
    MOST_BAD,
    SCHEMA,
    FileEntry,
    Manifest,
    ShardEntry,
    SourceEntry,
    SplitEntry,
    encode_manifest,
)
from tpuctl.data.output.shards import ShardResult
from tpuctl.data.schema.features import Feature, Label, tfds_features
from tpuctl.data.source import Observations, Source
from tpuctl.data.tfrecord.framing import OVERHEAD
from tpuctl.data.tokens.vocabulary import FILE as VOCABULARY
from tpuctl.data.tokens.vocabulary import Vocabulary
from tpuctl.objects import Content


def small_files(
    name: str, version: str, source: Source, seed: int, options: Options,
    splits: Mapping[str, Sequence[ShardResult]], vocabulary: Vocabulary | None = None,
) -> dict[str, bytes]:  # fmt: skip
    """Return file name -> content, the manifest last.

    The others are what `tfds.builder_from_directory` reads; their format is that of tensorflow_datasets 4.9,
    core/proto/dataset_info.proto and feature.proto written as JSON.
    """
    notes = [note for split in splits.values() for note in split]
    features = dict(source.final_features(_all_seen(notes)))
    shards = {split: [note.entry for note in found] for split, found in splits.items()}
    files = _text_files(features, vocabulary)
    files["features.json"] = _json(tfds_features(features))
    files["dataset_info.json"] = _json(_dataset_info(name, version, source, shards))
    manifest = Manifest(
        schema=SCHEMA,
        name=name,
        version=version,
        features=features,
        classes=classes_of(source, features),
        splits={split: _split_entry(found) for split, found in shards.items()},
        source=_source_entry(source, seed, options, notes),
        files={file: FileEntry.of(Content.of(data)) for file, data in files.items()},
        tpuctl=__version__,
    )
    return {**files, FILE: encode_manifest(manifest)}


def small_file_names(source: Source, vocabulary: Vocabulary | None = None) -> tuple[str, ...]:
    """Return the names of these files, in the same order."""
    return (*_text_files(source.features, vocabulary), "features.json", "dataset_info.json", FILE)


def classes_of(source: Source, features: Mapping[str, Feature]) -> tuple[str, ...]:
    """Return the names of the classes of the target feature; none where it is no label."""
    if source.supervised:
        target = features[source.supervised[1]]
        return target.classes if isinstance(target, Label) else ()
    labels = [one for one in features.values() if isinstance(one, Label)]  # of a table with several columns
    return labels[0].classes if len(labels) == 1 else ()


def _all_seen(notes: Sequence[ShardResult]) -> Observations:
    seen = Observations()
    for note in notes:
        seen.merge(Observations(note.observed))
    return seen


def _source_entry(source: Source, seed: int, options: Options, notes: Sequence[ShardResult]) -> SourceEntry:
    bad = sorted(
        (*source.bad, *(one for note in notes for one in note.bad)), key=lambda one: (one.file, one.line)
    )
    skipped = len(source.bad) + sum(note.skipped for note in notes)
    said = options if options != Options() else None
    return SourceEntry(source.kind, source.fingerprint, seed, said, skipped, tuple(bad[:MOST_BAD]))


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


def _text_files(features: Mapping[str, Feature], vocabulary: Vocabulary | None) -> dict[str, bytes]:
    """Return the files with a name a line: of each label's classes, and of the tokens."""
    labels = {
        f"{key}.labels.txt": "".join(f"{name}\n" for name in feature.classes).encode()
        for key, feature in features.items()
        if isinstance(feature, Label)
    }
    return {**labels, VOCABULARY: vocabulary.content} if vocabulary else labels


def _json(content: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
