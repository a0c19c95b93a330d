"""Writes features as TFDS's `features.json` has them: protobuf JSON, in which 64-bit integers are strings."""

from __future__ import annotations

from collections.abc import Mapping

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
)

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
