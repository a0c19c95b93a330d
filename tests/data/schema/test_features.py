"""Which list of an Example holds a feature, which file a label's classes, and what a type is called.

Features as TFDS 4.9 writes them in `features.json`, written and read.
"""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.data.output.metadata_files import tfds_features
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
from tpuctl.data.sources.tfds_folder import read_features
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


CORE = "tensorflow_datasets.core.features"
CLASSES = {"n.labels.txt": ("cat", "dog"), "n-kind.labels.txt": ("cat", "dog")}
PET = Label(("cat", "dog"))
LABEL = {"pythonClassName": f"{CORE}.class_label_feature.ClassLabel", "classLabel": {"numClasses": "2"}}
TEXT: dict[str, Any] = {"pythonClassName": f"{CORE}.text_feature.Text", "text": {}}
BOX = {
    "pythonClassName": f"{CORE}.bounding_boxes.BBoxFeature",
    "boundingBox": {"shape": {"dimensions": ["4"]}, "dtype": "float32", "bboxFormat": "REL_YXYX"},
}


def image(**content: object) -> dict[str, Any]:
    return {"pythonClassName": f"{CORE}.image_feature.Image", "image": content}


def tensor(**content: object) -> dict[str, Any]:
    return {"pythonClassName": f"{CORE}.tensor_feature.Tensor", "tensor": content}


def scalar(**content: object) -> dict[str, Any]:
    return {"pythonClassName": f"{CORE}.scalar.Scalar", "tensor": content}


def audio(**content: object) -> dict[str, Any]:
    return {"pythonClassName": f"{CORE}.audio_feature.Audio", "audio": content}


def sequence(feature: object, length: str = "-1") -> dict[str, Any]:
    return {
        "pythonClassName": f"{CORE}.sequence_feature.Sequence",
        "sequence": {"feature": feature, "length": length},
    }


def fields(**features: object) -> dict[str, Any]:
    return {
        "pythonClassName": f"{CORE}.features_dict.FeaturesDict",
        "featuresDict": {"features": features},
    }


def shape(*sizes: int) -> dict[str, list[str]]:
    return {"dimensions": [str(size) for size in sizes]}


def read(content: object) -> Feature:
    """Return the feature `n`, with the classes from its file."""

    def class_names(file: str, count: int) -> tuple[str, ...]:
        assert count == 2
        return CLASSES[file]

    return read_features({"featuresDict": {"features": {"n": content}}}, class_names)["n"]


@pytest.mark.parametrize(
    ("feature", "content"),
    [
        (PET, LABEL),
        (Text(), TEXT),
        (Box(), BOX),
        (Image((None, None, 3)), image(shape=shape(-1, -1, 3), dtype="uint8")),
        (
            Image((6, 8, 1), "uint16", "png"),
            image(shape=shape(6, 8, 1), dtype="uint16", encodingFormat="png"),
        ),
        (Tensor("int64"), scalar(shape={}, dtype="int64", encoding="none")),
        (Tensor("float32", (2, 3)), tensor(shape=shape(2, 3), dtype="float32", encoding="none")),
        (Tensor("string", (None,)), tensor(shape=shape(-1), dtype="string", encoding="none")),
        (Several(PET), sequence(LABEL)),
        (Several(Text()), sequence(TEXT)),
        (Objects({"bbox": Box(), "kind": PET}), sequence(fields(bbox=BOX, kind=LABEL))),
        (
            Audio(16000),
            audio(shape=shape(-1), dtype="int64", encoding="NONE", sampleRate="16000"),
        ),
        (
            Audio(8000, 2, "flac"),
            audio(shape=shape(-1, 2), dtype="int64", encoding="NONE", fileFormat="flac", sampleRate="8000"),
        ),
        (Other({"pythonClassName": "a.Video", "video": {}}), {"pythonClassName": "a.Video", "video": {}}),
    ],
)
def test_a_feature_is_written_and_read_as_tfds_has_it(feature: Feature, content: object) -> None:
    assert tfds_features({"n": feature}) == fields(n=content)
    assert read(content) == feature


@pytest.mark.parametrize(
    ("content", "feature"),
    [
        (image(shape=shape(-1, -1, 3)), Image((None, None, 3), "uint8", None)),
        (image(shape=shape(-1, -1, 3), encodingFormat=""), Image((None, None, 3), "uint8", None)),
        (tensor(shape=shape(0, 2), dtype="int32"), Tensor("int32", (0, 2))),
        (scalar(dtype="bool"), Tensor("bool")),
        (
            audio(shape=shape(-1, 1), dtype="int64", encoding="none", sampleRate="1", fileFormat=""),
            Audio(1, 1, None),
        ),
        (audio(shape=shape(-1), dtype="int64", sampleRate=44100), Audio(44100)),
        (sequence(scalar(dtype="int64")), Several(Tensor("int64"))),
        (sequence(tensor(shape=shape(2), dtype="int64")), Several(Tensor("int64", (2,)))),
        (
            {"pythonClassName": "Text", "text": {"encoder": ""}},
            Text(),
        ),
    ],
)
def test_what_other_versions_leave_out_has_their_default(content: object, feature: Feature) -> None:
    assert read(content) == feature


@pytest.mark.parametrize(
    "content",
    [
        {**TEXT, "text": {"encoder": "SubwordTextEncoder"}},
        image(shape=shape(-1, -1)),
        image(shape=shape(-1, -1, -1)),
        image(shape=shape(-1, -1, 0)),
        image(),
        image(shape=shape(-1, -1, 3), dtype="uint8", useColormap=True),
        tensor(shape=shape(2), dtype="int64", encoding="zlib"),
        tensor(shape=shape(2), dtype="int64", optional=True),
        tensor(shape=shape(2, -1), dtype="int64"),
        {**BOX, "boundingBox": {"shape": shape(4), "dtype": "float32"}},
        {**BOX, "boundingBox": {"bboxFormat": "REL_XYXY"}},
        {"pythonClassName": BOX["pythonClassName"]},
        sequence(TEXT, length="3"),
        sequence(TEXT, length="0"),
        {**sequence(TEXT), "sequence": {"feature": TEXT}},
        sequence(image(shape=shape(-1, -1, 3))),
        sequence(tensor(shape=shape(-1), dtype="int64")),
        sequence(sequence(TEXT)),
        sequence(fields(text=TEXT, picture=image(shape=shape(-1, -1, 3)))),
        audio(shape=shape(-1), dtype="int64", encoding="zlib", sampleRate="8000"),
        audio(shape=shape(-1), dtype="int64", lazyDecode=True, sampleRate="8000"),
        audio(shape=shape(-1), dtype="float32", sampleRate="8000"),
        audio(shape=shape(-1), dtype="int64"),
        audio(shape=shape(-1), sampleRate="8000"),
        audio(shape=shape(-1, 0), dtype="int64", sampleRate="8000"),
        audio(shape=shape(-1, -1), dtype="int64", sampleRate="8000"),
        audio(shape=shape(100), dtype="int64", sampleRate="8000"),
        audio(dtype="int64", sampleRate="8000"),
    ],
)
def test_what_is_not_known_is_passed_on_as_it_is(content: dict[str, Any]) -> None:
    assert read(content) == Other(content)


def test_features_are_read_in_the_order_of_their_names() -> None:
    content = fields(b=TEXT, a=TEXT)
    assert list(read_features(content, lambda file, count: ())) == ["a", "b"]
    objects = read(sequence(fields(b=BOX, a=BOX)))
    assert isinstance(objects, Objects)
    assert list(objects.fields) == ["a", "b"]
