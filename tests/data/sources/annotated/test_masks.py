"""Masks beside pictures, and which picture an annotation means by a name."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.source_trees import examples, items, no_progress, opened, write_image
from tests.data.sources.annotated.trees import turn, write_mask
from tpuctl.data.files.source_files import SourceFiles, list_files
from tpuctl.data.images.rule import HINTS, TURNED
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.features import Image as ImageFeature
from tpuctl.data.source import Source
from tpuctl.data.sources.annotated.coco import PicturesByName
from tpuctl.data.sources.registry import open_source
from tpuctl.data.trees.local import LocalTree
from tpuctl.errors import UsageError


def read(root: Path, options: Options = Options()) -> Source:  # noqa: B008
    return opened(open_source(root, None, options, no_progress))


@pytest.mark.parametrize(
    ("picture", "mask", "split"),
    [
        ("images/1.jpg", "masks/1.png", ""),
        ("train/images/1.jpg", "train/masks/1.png", "train"),
        ("images/val/a/1.jpg", "masks/val/a/1.png", "validation"),
        ("JPEGImages/1.jpg", "SegmentationClass/1.png", ""),
        ("images/1.jpg", "masks/1_mask.png", ""),
        ("1.jpg", "1_mask.png", ""),
        ("photos/1.jpg", "photos/1-seg.png", ""),
    ],
)
def test_a_picture_and_its_mask_are_a_record(tmp_path: Path, picture: str, mask: str, split: str) -> None:
    write_image(tmp_path / picture, shade=1)
    write_mask(tmp_path / mask)
    source = read(tmp_path)
    assert (source.kind, source.bad, source.supervised) == ("masks", (), ("image", "segmentation_mask"))
    assert source.features["segmentation_mask"] == ImageFeature((None, None, 1), "uint8", "png")
    assert [part.split for part in source.parts] == [split]
    (record,) = examples(source)
    assert record == {
        "image": [(tmp_path / picture).read_bytes()],
        "segmentation_mask": [(tmp_path / mask).read_bytes()],
    }


def test_the_numbers_of_a_palette_are_the_classes(tmp_path: Path) -> None:
    write_image(tmp_path / "images" / "1.png")
    path = write_mask(tmp_path / "masks" / "1.png", mode="P")
    (data,) = examples(read(tmp_path))[0]["segmentation_mask"]
    assert isinstance(data, bytes)
    image = Image.open(io.BytesIO(data))
    assert image.mode == "L"
    assert np.array_equal(np.asarray(image), np.asarray(Image.open(path)))
    assert set(np.asarray(image).ravel()) == {0, 1, 2, 3}


def test_what_has_no_partner_or_another_size_is_named(tmp_path: Path) -> None:
    for name in "abcde":
        write_image(tmp_path / "images" / f"{name}.png")
        write_mask(tmp_path / "masks" / f"{name}.png")
    (tmp_path / "masks" / "a.png").unlink()
    (tmp_path / "images" / "b.png").unlink()
    write_mask(tmp_path / "masks" / "c.png", size=(6, 8))
    write_mask(tmp_path / "masks" / "d.png", mode="RGB")
    write_image(tmp_path / "images" / "e.jpg")
    source = read(tmp_path)
    bad = [str(record) for record in (*source.bad, *items(source)) if isinstance(record, BadRecord)]
    assert bad == [
        "'images/e.png' has the same name as 'images/e.jpg'",
        "'images/a.png' has no mask",
        "'masks/b.png' is the mask of no picture",
        "'masks/c.png' has 6 × 8 pixels, and its picture 8 × 6",
        "'masks/d.png' is a PNG with 3 channels of uint8, and a mask is a PNG with one of uint8",
    ]


def test_folders_of_classes_are_no_masks(tmp_path: Path) -> None:
    for name in ("masks", "no_masks"):
        write_image(tmp_path / name / "1.png")
    assert read(tmp_path).kind == "images"


@pytest.mark.daily
def test_a_thousand_masks_are_found_beside_a_thousand_pictures(tmp_path: Path) -> None:
    data = write_image(tmp_path / "images" / "a.png").read_bytes()
    mask = write_mask(tmp_path / "masks" / "a.png").read_bytes()
    for number in range(1100):
        (tmp_path / "images" / f"{number}.png").write_bytes(data)
        (tmp_path / "masks" / f"{number}.png").write_bytes(mask)
    source = read(tmp_path)
    assert (source.kind, source.parts[0].records) == ("masks", 1101)


def test_masks_are_not_resized(tmp_path: Path) -> None:
    write_image(tmp_path / "images" / "a.png")
    write_mask(tmp_path / "masks" / "a.png")
    with pytest.raises(UsageError, match="Masks have the size of their pictures"):
        read(tmp_path, Options(resize=(3, 3)))


def test_a_picture_without_a_split_beside_others_is_an_error(tmp_path: Path) -> None:
    for name in ("train/1", "2"):
        write_image(tmp_path / "images" / f"{name}.png")
        write_mask(tmp_path / "masks" / f"{name}.png")
    with pytest.raises(UsageError, match=r"'images/2\.png' is in no split, and others are"):
        read(tmp_path)


@pytest.mark.parametrize("orientation", [3, 6])
def test_a_picture_that_exif_turns_is_bad_whose_mask_may_not_be_turned(
    tmp_path: Path, orientation: int
) -> None:
    for name in "ab":
        write_image(tmp_path / "images" / f"{name}.jpg")
        write_mask(tmp_path / "masks" / f"{name}.png")
    turn(tmp_path / "images" / "b.jpg", orientation)
    source = read(tmp_path)
    bad = BadRecord("images/b.jpg", TURNED, hint=HINTS[TURNED])
    first, second = items(source)
    assert isinstance(first, bytes)
    assert second == bad
    assert list(source.bad_images) == [bad]


@pytest.mark.parametrize(
    ("files", "name", "table", "found"),
    [
        (["a.png"], "a.png", "notes.json", "a.png"),
        (["images/a.png"], "a.png", "notes.json", "images/a.png"),
        (["images/a.png"], "images/a.png", "notes.json", "images/a.png"),
        (["images/a.png"], "./images/a.png", "notes.json", "images/a.png"),
        (["x/a.png", "y/a.png"], "y/a.png", "notes.json", "y/a.png"),
        (["x/a.png", "y/a.png"], "a.png", "y/notes.json", "y/a.png"),
        (["a.png", "x/a.png"], "a.png", "notes.json", "a.png"),
        (["Train2017/a.png", "val2017/a.png"], "a.png", "instances_train2017.json", "Train2017/a.png"),
        (["a.PNG"], "a.PNG", "notes.json", "a.PNG"),
        (["a.png"], "b.png", "notes.json", "is listed in 'notes.json', and is not there"),
        (["xa.png"], "a.png", "notes.json", "is listed in 'notes.json', and is not there"),
        (["a.txt"], "a.txt", "notes.json", "is listed in 'notes.json', and is not there"),
        (["x/a.png"], "y/a.png", "notes.json", "is listed in 'notes.json', and is not there"),
        (
            ["v/a.png", "x/a.png", "y/a.png", "z/a.png"], "a.png", "notes.json",
            "is listed in 'notes.json', and there are 'v/a.png', 'x/a.png', 'y/a.png'",
        ),
        (
            ["train/x/a.png", "train/y/a.png"], "a.png", "train.json",
            "is listed in 'train.json', and there are 'train/x/a.png', 'train/y/a.png'",
        ),
    ],
)  # fmt: skip
def test_a_name_is_that_of_the_nearest_file(
    tmp_path: Path, files: list[str], name: str, table: str, found: str
) -> None:
    listed = listed_files(tmp_path, files)
    answer = PicturesByName(listed, (".png",)).find(name, table)
    assert (listed.name(answer) if isinstance(answer, int) else answer) == found


def test_no_name_is_compared_with_all_files_of_its_last_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Annotations that name each of them took a time that grew with the square of their number."""
    count = 500
    listed = listed_files(tmp_path, [f"x/{number}/a.png" for number in range(count)])
    pictures, looked = PicturesByName(listed, (".png",)), 0
    name = type(listed).name

    def looking(files: SourceFiles, number: int) -> str:
        nonlocal looked
        looked += 1
        return name(files, number)

    monkeypatch.setattr(SourceFiles, "name", looking)
    for number in range(count):
        assert isinstance(pictures.find(f"{number}/a.png", "notes.json"), int)
        assert "there are" in str(pictures.find("a.png", "notes.json"))
    assert looked < 10 * count


def listed_files(folder: Path, names: Sequence[str]) -> SourceFiles:
    """Return empty files of these names."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return list_files(LocalTree.at(folder), re.compile("a"))
