"""Builds the small files of a dataset in the order of writing: TFDS's metadata, then the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tpuctl import __version__
from tpuctl.data.options import Options
from tpuctl.data.output.manifest import (
    FILE,
    MOST_BAD,
    SUFFIXES,
    FileEntry,
    FileFormat,
    Manifest,
    ShardEntry,
    SourceEntry,
    SplitEntry,
    encode_manifest,
    schema_of,
)
from tpuctl.data.output.shards import ShardResult
from tpuctl.data.schema.features import (
    Audio,
    Box,
    Feature,
    Image,
    Label,
    Objects,
    Other,
    Several,
    Tensor,
    Text,
    check_labels,
    labels_of,
)
from tpuctl.data.source import Observations, Source
from tpuctl.data.tokens import FILE as VOCABULARY
from tpuctl.data.tokens import Vocabulary
from tpuctl.object_content import Content

_PACKAGE = "tensorflow_datasets.core.features"
_Json = Mapping[str, object]


def tfds_features(features: Mapping[str, Feature]) -> _Json:
    """Return the content of `features.json`."""
    fields = {name: _feature(feature) for name, feature in features.items()}
    return _named("features_dict.FeaturesDict", "featuresDict", {"features": fields})


def _feature(feature: Feature) -> _Json:
    match feature:
        case Label(classes):
            return _named("class_label_feature.ClassLabel", "classLabel", {"numClasses": str(len(classes))})
        case Other(content):
            return content
        case Text():
            return _named("text_feature.Text", "text", {})
        case Image():
            return _named("image_feature.Image", "image", _image(feature))
        case Tensor(dtype, shape):
            tensor = {"shape": _dimensions(shape), "dtype": dtype, "encoding": "none"}
            return _named("tensor_feature.Tensor" if shape else "scalar.Scalar", "tensor", tensor)
        case Box():
            box = {"shape": _dimensions((4,)), "dtype": "float32", "bboxFormat": "REL_YXYX"}
            return _named("bounding_boxes.BBoxFeature", "boundingBox", box)
        case Several(item):
            return _sequence(_feature(item))
        case Objects(fields):
            return _sequence(tfds_features(fields))
        case Audio():
            return _named("audio_feature.Audio", "audio", _audio(feature))


def _image(feature: Image) -> _Json:
    encoding = {"encodingFormat": feature.encoding} if feature.encoding else {}
    return {"shape": _dimensions(feature.shape), "dtype": feature.dtype, **encoding}


def _audio(feature: Audio) -> _Json:
    encoding = {"fileFormat": feature.encoding} if feature.encoding else {}
    shape = (None, feature.channels) if feature.channels > 1 else (None,)
    content = {"shape": _dimensions(shape), "dtype": "int64", "encoding": "NONE", **encoding}
    return {**content, "sampleRate": str(feature.sample_rate)}


def _sequence(item: _Json) -> _Json:
    return _named("sequence_feature.Sequence", "sequence", {"feature": item, "length": "-1"})


def _named(python: str, field: str, content: _Json) -> _Json:
    return {"pythonClassName": f"{_PACKAGE}.{python}", field: content}


def _dimensions(shape: tuple[int | None, ...]) -> dict[str, list[str]]:
    return {"dimensions": ["-1" if size is None else str(size) for size in shape]} if shape else {}


def small_files(
    name: str, version: str, source: Source, seed: int, options: Options,
    splits: Mapping[str, Sequence[ShardResult]], vocabulary: Vocabulary | None = None,
    file_format: FileFormat = "tfrecord",
) -> dict[str, bytes]:  # fmt: skip
    """Return file name -> content, the manifest last.

    The others are what `tfds.builder_from_directory` reads; their format is that of tensorflow_datasets 4.9,
    core/proto/dataset_info.proto and feature.proto written as JSON.
    """
    results = [result for split in splits.values() for result in split]
    features = dict(source.final_features(_all_observations(results)))
    files = _text_files(features, vocabulary)
    files["features.json"] = _json(tfds_features(features))
    files["dataset_info.json"] = _json(_dataset_info(name, version, source, splits, file_format))
    manifest = Manifest(
        schema=schema_of(features, file_format),
        name=name,
        version=version,
        features=features,
        classes=classes_of(source, features),
        splits={split: _split_entry([result.entry for result in made]) for split, made in splits.items()},
        source=_source_entry(source, seed, options, results),
        files={file: FileEntry.of(Content.of(data)) for file, data in files.items()},
        tpuctl=__version__,
        file_format=file_format,
    )
    return {**files, FILE: encode_manifest(manifest)}


def small_file_names(source: Source, vocabulary: Vocabulary | None = None) -> tuple[str, ...]:
    """Return the names of these files, in the same order; raises UsageError where two would have one name."""
    check_labels(source.features)
    return (*_text_files(source.features, vocabulary), "features.json", "dataset_info.json", FILE)


def classes_of(source: Source, features: Mapping[str, Feature]) -> tuple[str, ...]:
    """Return the names of the classes of the target feature, or of the only label; none without one."""
    if source.supervised:
        target = features[source.supervised[1]]
        label = target.item if isinstance(target, Several) else target
        return label.classes if isinstance(label, Label) else ()
    labels = list(labels_of(features).values())
    return labels[0].classes if len(labels) == 1 else ()


def _all_observations(results: Sequence[ShardResult]) -> Observations:
    observations = Observations()
    for result in results:
        observations.merge(Observations(result.observed))
    return observations


def _source_entry(source: Source, seed: int, options: Options, results: Sequence[ShardResult]) -> SourceEntry:
    of_shards = (record for result in results for record in result.bad)
    bad = sorted((*source.bad, *of_shards), key=lambda record: (record.file, record.line))
    skipped = len(source.bad) + sum(result.skipped for result in results)
    chosen = options if options != Options() else None
    return SourceEntry(source.kind, source.fingerprint, seed, chosen, skipped, tuple(bad[:MOST_BAD]))


def _dataset_info(
    name: str,
    version: str,
    source: Source,
    splits: Mapping[str, Sequence[ShardResult]],
    file_format: FileFormat,
) -> dict[str, object]:
    info: dict[str, object] = {
        "name": name,
        "version": version,
        "fileFormat": SUFFIXES[file_format],
        "splits": [_split_info(split, results) for split, results in splits.items()],
    }
    if source.supervised:
        info["supervisedKeys"] = {"tuple": {"items": [{"featureKey": key} for key in source.supervised]}}
    return info


def _split_info(split: str, results: Sequence[ShardResult]) -> dict[str, object]:
    return {
        "name": split,
        "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
        "shardLengths": [str(result.entry.records) for result in results],
        "numBytes": str(sum(result.bytes_of_records for result in results)),
    }


def _split_entry(shards: Sequence[ShardEntry]) -> SplitEntry:
    return SplitEntry(
        records=sum(shard.records for shard in shards),
        bytes=sum(shard.bytes for shard in shards),
        shards=tuple(shards),
    )


def _text_files(features: Mapping[str, Feature], vocabulary: Vocabulary | None) -> dict[str, bytes]:
    """Return the files with one name a line: the classes of each label, and the vocabulary."""
    labels = {
        file: "".join(f"{line}\n" for line in label.classes).encode()
        for file, label in labels_of(features).items()
    }
    return {**labels, VOCABULARY: vocabulary.content} if vocabulary else labels


def _json(content: Mapping[str, object]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
