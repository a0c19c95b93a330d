"""What is said of a field's type in `data describe` and `data diff`."""

from __future__ import annotations

from tpuctl.data.schema.features import (
    Audio,
    Box,
    Image,
    Label,
    Objects,
    Other,
    Several,
    Tensor,
    Text,
    feature_type,
)


def test_the_type_of_a_field_is_short() -> None:
    assert feature_type(Image((None, 8, 3))) == "PNG or JPEG image, ? × 8 × 3, uint8"
    assert feature_type(Label(tuple("abcdef"))) == "label, 6 classes: a, b, c, d, e, f"
    assert feature_type(Label(tuple("abcdefg"))) == "label, 7 classes: a, b, c, d, e, f, ..."
    assert feature_type(Label(("a",))) == "label, 1 class: a"
    assert feature_type(Tensor("float32", (2, 3))) == "float32, 2 × 3"
    assert feature_type(Tensor("int64", ())) == "int64"
    assert feature_type(Text()) == "text"
    assert feature_type(Several(Label(("a", "b")))) == "list of label, 2 classes: a, b"
    objects = Objects({"bbox": Box(), "area": Tensor("int64")})
    assert feature_type(objects) == "objects: bbox (box: ymin, xmin, ymax, xmax); area (int64)"
    assert feature_type(Audio(8000)) == "WAV or FLAC audio, 8000 samples a second, 1 channel"
    assert feature_type(Audio(44100, 2, "wav")) == "wav audio, 44100 samples a second, 2 channels"
    assert feature_type(Other({"pythonClassName": "x.Video"})) == "Video"
