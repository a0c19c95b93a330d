"""Reads a folder that TFDS wrote: `dataset_info.json`, `features.json` and TFRecord shards."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from tpuctl.data.files.listing import unreadable
from tpuctl.data.files.source_files import chosen_files
from tpuctl.data.options import Options
from tpuctl.data.schema.classes import MOST_CLASSES
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
    labels_file,
)
from tpuctl.data.source import ScanProgress, closed_on_error
from tpuctl.data.sources.names import TFDS_FEATURES, TFDS_INFO
from tpuctl.data.sources.tfrecord_files import TFRecordSource, open_records
from tpuctl.data.trees.tree import ListedFile, Tree
from tpuctl.errors import UsageError

ClassNames = Callable[[str, int], tuple[str, ...]]
"""Called with the name of a label's file and the number of its classes; returns their names."""
_Json = Mapping[str, Any]
_SPLIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_LARGEST = 64 << 20
"""Bytes of a file of metadata."""
MOST_SHARDS = 100_000
"""Of all splits: as many files as a manifest may have."""
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


def read_tfds(tree: Tree, options: Options, progress: ScanProgress) -> TFRecordSource:
    """Return the dataset in the folder at `root`, or in the only version below it; raises UsageError."""
    if options.types or options.label or options.resize or options.channels:
        raise UsageError(
            "A dataset of TFDS has the types of its fields itself, and its records are not changed.",
            hint="Run it without --type, --label, --resize or --channels.",
        )
    folder = _version(tree)
    info, features = read_json(folder, TFDS_INFO), _features(folder)
    lengths = _lengths(info)
    rows, damaged = open_records(
        chosen_files(folder, [(split, file) for file, (split, _) in lengths.items()]), progress
    )
    with closed_on_error(rows):
        if not damaged:  # else the damage says more than the count
            for number, count in enumerate(np.diff(rows.firsts).tolist()):
                _check_count(rows.files.name(number), count, lengths[rows.files.name(number)][1])
        supervised = _supervised(info, features)
        return TFRecordSource("tfds", rows, damaged, features, supervised)


def _version(tree: Tree) -> Tree:
    """Return the tree of the only version; raises UsageError."""
    folders = sorted(_versions(tree))
    if len(folders) == 1:
        return tree.below(folders[0]) if folders[0] else tree
    versions = ", ".join(f"'{folder or '.'}'" for folder in folders)
    raise UsageError(
        f"There are several datasets in '{tree}': {versions}."
        if folders
        else f"There is no {TFDS_INFO} in '{tree}'.",
        hint="Name one of them." if folders else "Give the folder of a version, which has it.",
        file=str(tree),
    )


def _versions(tree: Tree) -> Iterator[str]:
    """Yield the folders, at any depth, that have both files of metadata."""
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            entries = {entry.name: entry for entry in tree.scan(folder)}
        except OSError as error:
            raise unreadable(folder or str(tree), error) from error
        if TFDS_INFO in entries and TFDS_FEATURES in entries and entries[TFDS_FEATURES].kind != "folder":
            yield folder
        inner = (name for name, entry in entries.items() if entry.kind == "folder")
        folders += [f"{folder}/{name}" if folder else name for name in inner]


def _lengths(info: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Return split and number of records of each shard, by the name of its file; raises UsageError."""
    try:
        lengths = {file: (split, count) for split, file, count in islice(_shards(info), MOST_SHARDS + 1)}
        if len(lengths) > MOST_SHARDS:
            raise UsageError(
                f"{TFDS_INFO} names more than {MOST_SHARDS} shards.",
                hint="Write fewer, larger ones.",
                file=TFDS_INFO,
            )
        if not lengths:
            raise ValueError("no shards")
        return lengths
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"'{TFDS_INFO}' is not in the form that TFDS writes.",
            hint="Copy the dataset again.",
            file=TFDS_INFO,
        ) from error


def _shards(info: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Yield split, file name and number of records of each shard that the dataset's info names."""
    suffix = info.get("fileFormat") or "tfrecord"
    if suffix != "tfrecord":
        raise UsageError(
            f"The dataset's files are {suffix}, expected TFRecord.",
            hint="Build it again: tfds build --file_format=tfrecord.",
            file=TFDS_INFO,
        )
    for split in info.get("splits", []):
        if not _SPLIT.fullmatch(split["name"]):
            raise ValueError(split["name"])
        lengths = split.get("shardLengths", [])
        for number, length in enumerate(map(int, lengths)):
            names = {
                "DATASET": info.get("name", ""),
                "SPLIT": split["name"],
                "FILEFORMAT": suffix,
                "SHARD_X_OF_Y": f"{number:05d}-of-{len(lengths):05d}",
                "SHARD_INDEX": f"{number:05d}",
                "NUM_SHARDS": f"{len(lengths):05d}",
            }
            yield split["name"], _file(split.get("filepathTemplate") or _TEMPLATE, names), length


def _file(template: str, names: Mapping[str, str]) -> str:
    """Return the name of a shard, which is in the folder itself."""
    file = re.sub(r"\{(\w+)\}", lambda match: names.get(match[1], match[0]), template)
    if "/" in file or "{" in file:
        raise UsageError(
            f"{TFDS_INFO} says that a shard is called '{file}'.",
            hint="A shard is in the same folder, under a name that TFDS gives.",
            file=TFDS_INFO,
        )
    return file


def _check_count(file: str, actual: int, expected: int) -> None:
    if actual != expected:
        raise UsageError(
            f"'{file}' has {actual} records, and {TFDS_INFO} says {expected}.",
            hint="Copy the dataset again, all of its files.",
            file=file,
        )


def _features(folder: Tree) -> dict[str, Feature]:
    content, classes = read_json(folder, TFDS_FEATURES), 0

    def class_names(file: str, count: int) -> tuple[str, ...]:
        nonlocal classes
        names = _class_names(folder, file, count)
        classes += count
        if classes > MOST_CLASSES:
            raise UsageError(
                f"{TFDS_FEATURES} says that all labels have more than {MOST_CLASSES} classes together.",
                hint="A label of so many values is a number: change its feature to a Scalar.",
                file=TFDS_FEATURES,
            )
        return names

    try:
        return read_features(content, class_names)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"'{TFDS_FEATURES}' is not in the form that TFDS writes since 4.3.",
            hint="Write it again: tfds.builder_from_directory(FOLDER).info.write_to_directory(FOLDER).",
            file=TFDS_FEATURES,
        ) from error


def _class_names(folder: Tree, file: str, count: int) -> tuple[str, ...]:
    """Return the names of the classes; their numbers where TFDS wrote no names."""
    if not 0 <= count <= MOST_CLASSES:
        field = file.removesuffix(".labels.txt")
        raise UsageError(
            f"{TFDS_FEATURES} says that '{field}' has {count} classes, "
            f"and at most {MOST_CLASSES} can be used.",
            hint="A label of so many values is a number: change its feature to a Scalar.",
            file=TFDS_FEATURES,
        )
    if folder.look(file) is None:
        return tuple(str(number) for number in range(count))
    names = tuple(
        line.strip() for line in read_small_file(folder, file).decode().splitlines() if line.strip()
    )
    if len(names) != count:
        raise UsageError(
            f"'{file}' names {len(names)} classes, and {TFDS_FEATURES} says {count}.",
            hint="Copy the dataset again, all of its files.",
            file=file,
        )
    return names


def _supervised(info: Mapping[str, Any], features: Mapping[str, Feature]) -> tuple[str, str] | None:
    items = info.get("supervisedKeys", {}).get("tuple", {}).get("items", [])
    keys = [item.get("featureKey", "") for item in items]
    return (keys[0], keys[1]) if len(keys) == 2 and all(key in features for key in keys) else None


def read_json(folder: Tree, file: str) -> dict[str, Any]:
    """Return the object in a file of metadata; raises UsageError."""
    try:
        content = json.loads(read_small_file(folder, file))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"'{file}' is not JSON ({error}).", hint="Copy it again.", file=file) from error
    return content if isinstance(content, dict) else {}


def read_small_file(folder: Tree, file: str) -> bytes:
    """Return the content of a file of metadata; raises UsageError."""
    try:
        entry = folder.look(file)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if entry.problem:
            raise UsageError(f"'{file}' {entry.problem}.", hint="Copy the file into the source.", file=file)
        with folder.stream(ListedFile(file, entry.size, entry.stamp)) as stream:
            data = stream.read(_LARGEST + 1)
    except OSError as error:
        raise unreadable(file, error) from error
    if len(data) > _LARGEST:
        raise UsageError(
            f"'{file}' is larger than {_LARGEST / 1e6:.1f} MB.",
            hint="TFDS writes small ones: copy it again.",
            file=file,
        )
    return data


# Reads features as TFDS writes them in `features.json`; what tpuctl does not know is passed on as it is.


def read_features(content: _Json, class_names: ClassNames) -> dict[str, Feature]:
    """Return the features by name; raises KeyError, TypeError or ValueError for what TFDS does not write."""
    fields = content["featuresDict"]["features"]
    return {name: _feature(name, field, class_names) for name, field in sorted(fields.items())}


def _feature(name: str, content: dict[str, Any], class_names: ClassNames) -> Feature:
    kind = content["pythonClassName"].rpartition(".")[2]
    read = _READERS.get(kind)
    return (read(name, content, class_names) if read else None) or Other(content)


def _label(name: str, content: _Json, class_names: ClassNames) -> Feature:
    return Label(class_names(labels_file(*name.split("\0")), int(content["classLabel"]["numClasses"])))


def _text(name: str, content: _Json, class_names: ClassNames) -> Feature | None:
    return None if content["text"].get("encoder") else Text()


def _image(name: str, content: _Json, class_names: ClassNames) -> Feature | None:
    image = content.get("image", {})
    shape = _shape(image)
    if len(shape) != 3 or not shape[2] or set(image) - {"shape", "dtype", "encodingFormat"}:
        return None
    dtype, encoding = image.get("dtype", "uint8"), image.get("encodingFormat") or None
    return Image((shape[0], shape[1], shape[2]), dtype, encoding)


def _tensor(name: str, content: _Json, class_names: ClassNames) -> Feature | None:
    tensor = content.get("tensor", {})
    plain = tensor.get("encoding", "none") == "none" and not set(tensor) - {"shape", "dtype", "encoding"}
    return Tensor(tensor["dtype"], _shape(tensor)) if plain and None not in _shape(tensor)[1:] else None


def _box(name: str, content: _Json, class_names: ClassNames) -> Feature | None:
    return Box() if content.get("boundingBox", {}).get("bboxFormat") == "REL_YXYX" else None


def _sequence(name: str, content: _Json, class_names: ClassNames) -> Feature | None:
    sequence = content["sequence"]
    if int(sequence.get("length", 0)) != -1:
        return None
    inner = sequence["feature"]
    if "featuresDict" not in inner:
        return _several(_feature(name, inner, class_names))
    fields = {
        field: _feature(f"{name}\0{field}", item, class_names)
        for field, item in sorted(inner["featuresDict"]["features"].items())
    }
    items = {field: several.item for field, item in fields.items() if (several := _several(item))}
    return Objects(items) if len(items) == len(fields) else None


def _several(item: Feature) -> Several | None:
    known = isinstance(item, Label | Text | Box) or (isinstance(item, Tensor) and None not in item.shape)
    return Several(item) if known else None  # type: ignore[arg-type]  # one of these


def _audio(name: str, content: _Json, class_names: ClassNames) -> Feature | None:
    audio = content["audio"]
    shape, rate = _shape(audio), int(audio.get("sampleRate", 0))
    plain = audio.get("encoding", "NONE").upper() == "NONE" and not audio.get("lazyDecode")
    channels = shape[1] if len(shape) == 2 else 1
    if not plain or audio.get("dtype") != "int64" or not rate or not channels or shape[:1] != (None,):
        return None
    return Audio(rate, channels, audio.get("fileFormat") or None)


def _shape(content: _Json) -> tuple[int | None, ...]:
    sizes = content.get("shape", {}).get("dimensions", [])
    return tuple(None if int(size) < 0 else int(size) for size in sizes)


_READERS: dict[str, Callable[[str, _Json, ClassNames], Feature | None]] = {
    "ClassLabel": _label,
    "Text": _text,
    "Image": _image,
    "Tensor": _tensor,
    "Scalar": _tensor,
    "BBoxFeature": _box,
    "Sequence": _sequence,
    "Audio": _audio,
}
"""Name of TFDS's class -> its reader; None where the feature has something that tpuctl does not know."""
