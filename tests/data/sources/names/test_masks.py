"""Which pictures are masks, and of which pictures."""

from __future__ import annotations

import pytest

from tpuctl.data.sources.names import is_mask, pair_name, shows_masks


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        *((f"{folder}/1.png", True) for folder in ("masks", "mask", "annotations", "labels")),
        *((f"{folder}/1.png", False) for folder in ("images", "image", "imgs", "jpegimages", "other")),
        ("SegmentationClass/1.png", True),
        ("train/Masks/a/1.png", True),
        ("1_mask.png", True),
        ("1-seg.png", True),
        ("1.segmentation.png", True),
        ("1_MASK.PNG", True),
        ("1mask.png", False),
        ("mask.png", False),
        ("1_mask_2.png", False),
        ("masks.png", False),
        ("1.png", False),
    ],
)
def test_a_mask_is_told_by_its_folder_or_by_the_end_of_its_name(path: str, expected: bool) -> None:
    assert is_mask(path) is expected


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("images/1.jpg", "1"), ("masks/1.png", "1"), ("train/Images/a/1.jpg", "train/a/1"),
        ("JPEGImages/1.jpg", "1"), ("SegmentationClass/1.png", "1"), ("imgs/1.jpg", "1"),
        ("image/1.jpg", "1"), ("mask/1_mask.png", "1"), ("annotations/1.png", "1"), ("labels/1.png", "1"),
        ("1_mask.png", "1"), ("1-seg.png", "1"), ("1.segmentation.png", "1"), ("a/1.x.png", "a/1.x"),
    ],
)  # fmt: skip
def test_a_picture_and_its_mask_have_a_name_in_common(path: str, name: str) -> None:
    assert pair_name(path) == name


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["images/1.jpg", "masks/1.png"], True),
        (["Images/1.JPG", "Masks/1.PNG"], True),
        (["1.jpg", "1_mask.png"], True),
        (["1.jpg", "1_mask.png", "notes.txt"], True),
        (["1.jpg", "1_mask.png", "2.jpg"], False),
        (["images/1.jpg", "masks/1.png", "1.jpg"], False),
        (["masks/1.png"], False),
        (["images/1.jpg"], False),
        (["images/1.jpg", "masks/1.txt"], False),
        ([], False),
        (["a/1.jpg", "b/1_mask.png"], False),
        (["image/1.jpg", "labels/1.png"], True),
        (["imgs/1.jpg", "annotations/1.png"], True),
        (["JPEGImages/1.jpg", "SegmentationClass/1.png"], True),
        (["images.jpg", "masks/1.png"], False),
    ],
)
def test_a_source_shows_masks_if_each_picture_has_one_or_lies_among_pictures(
    names: list[str], expected: bool
) -> None:
    assert shows_masks(names) is expected
