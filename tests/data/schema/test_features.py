"""Which list of an Example holds a feature, which file a label's classes, and what a type is called."""

from __future__ import annotations

import pytest

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
    example_kind,
    example_kinds,
    feature_type,
    flat,
    labels_file,
    labels_of,
)
from tpuctl.errors import UsageError

PETS, COLOURS = Label(("cat", "dog")), Label(("black", "white"))


@pytest.mark.parametrize(
    ("feature", "kind"),
    [
        (Image((None, None, 3)), "bytes"),
        (Text(), "bytes"),
        (Tensor("string"), "bytes"),
        (Tensor("float32"), "float"),
        (Tensor("bfloat16", (2,)), "float"),
        (Tensor("int64"), "int64"),
        (Tensor("bool"), "int64"),
        (Tensor("uint8", (None,)), "int64"),
        (PETS, "int64"),
        (Audio(8000), "int64"),
        (Box(), "float"),
        (Several(Text()), "bytes"),
        (Several(Box()), "float"),
        (Several(PETS), "int64"),
    ],
)
def test_tfds_looks_for_each_feature_in_one_list(feature: Feature, kind: str) -> None:
    assert example_kind(feature) == kind


@pytest.mark.parametrize("feature", [Objects({"box": Box()}), Other({})])
def test_of_other_features_the_list_is_not_known(feature: Feature) -> None:
    with pytest.raises(ValueError, match="is not known"):
        example_kind(feature)


def test_objects_have_a_list_for_each_of_their_fields() -> None:
    features = {"image": Image((None, None, 3)), "objects": Objects({"bbox": Box(), "label": PETS})}
    assert flat(features) == {
        "image": Image((None, None, 3)),
        "objects/bbox": Several(Box()),
        "objects/label": Several(PETS),
    }
    assert example_kinds(features) == {"image": "bytes", "objects/bbox": "float", "objects/label": "int64"}


@pytest.mark.parametrize(
    ("name", "field", "file"),
    [
        ("label", "", "label.labels.txt"),
        ("a/b", "", "a.b.labels.txt"),
        ("objects", "label", "objects-label.labels.txt"),
        ("a/b", "c/d", "a.b-c.d.labels.txt"),
    ],
)
def test_the_file_of_classes_is_called_as_tfds_calls_it(name: str, field: str, file: str) -> None:
    assert labels_file(name, field) == file


def test_the_labels_of_lists_and_objects_have_files_too() -> None:
    features = {"a": PETS, "b": Several(COLOURS), "c": Objects({"kind": PETS, "text": Text()}), "d": Text()}
    assert labels_of(features) == {
        "a.labels.txt": PETS,
        "b.labels.txt": COLOURS,
        "c-kind.labels.txt": PETS,
    }


def test_two_labels_may_share_a_file_if_they_have_the_same_classes() -> None:
    check_labels({"a/b": PETS, "a.b": PETS})
    with pytest.raises(UsageError) as refused:
        check_labels({"a/b": PETS, "x": COLOURS, "a.b": COLOURS})
    assert refused.value.message == (
        "The classes of 'a/b' and 'a.b' would be in the same file, a.b.labels.txt."
    )
    assert refused.value.facts["columns"] == ["a/b", "a.b"]
    with pytest.raises(UsageError, match=r"The classes of 'o/k' and 'o-k' would"):
        check_labels({"o": Objects({"k": PETS}), "o-k": COLOURS})


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
