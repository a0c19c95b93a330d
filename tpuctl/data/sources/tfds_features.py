"""Reads features as TFDS writes them in `features.json`; what tpuctl does not know is passed on as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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

ClassNames = Callable[[str, int], tuple[str, ...]]
"""Called with the name of a label's file and the number of its classes; returns their names."""
_Json = Mapping[str, Any]


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
