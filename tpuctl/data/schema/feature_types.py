"""Says in words what the features of a record are: `png image, 28 × 28 × 1, uint8`."""

from __future__ import annotations

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

_MOST_CLASSES = 6


def feature_type(feature: Feature) -> str:
    """Return the type of a field as text."""
    match feature:
        case Image():
            return f"{feature.encoding or 'PNG or JPEG'} image, {_shape(feature.shape)}, {feature.dtype}"
        case Label(classes):
            more = ", ..." if len(classes) > _MOST_CLASSES else ""
            count = f"{len(classes)} class{'es' * (len(classes) != 1)}"
            return f"label, {count}: {', '.join(classes[:_MOST_CLASSES])}{more}"
        case Tensor(dtype, shape):
            return f"{dtype}, {_shape(shape)}" if shape else dtype
        case Text():
            return "text"
        case Box():
            return "box: ymin, xmin, ymax, xmax"
        case Several(item):
            return f"list of {feature_type(item)}"
        case Objects(fields):
            return f"objects: {'; '.join(f'{name} ({feature_type(item)})' for name, item in fields.items())}"
        case Audio(rate, channels, encoding):
            kind = f"{encoding or 'WAV or FLAC'} audio, {rate} samples a second"
            return f"{kind}, {channels} channel{'s' * (channels > 1)}"
        case Other(content):
            return str(content.get("pythonClassName", "of TFDS")).rpartition(".")[2]


def _shape(shape: tuple[int | None, ...]) -> str:
    return " × ".join("?" if size is None else str(size) for size in shape)
