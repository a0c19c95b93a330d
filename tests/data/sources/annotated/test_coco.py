"""COCO as a source: its JSON, what of it is kept and what is bad, and the records that it becomes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.data.source_trees import examples, items, no_progress, opened, produce, write_image
from tests.data.sources.annotated.trees import CATEGORIES, coco_content, turn, write_coco
from tpuctl.data.images.rule import TURNED
from tpuctl.data.options import BadRecord, BadRecordsError, Options
from tpuctl.data.plan import plan
from tpuctl.data.schema.features import Box, Label, Objects, Tensor
from tpuctl.data.source import Source
from tpuctl.data.sources.annotated.coco import Annotations, Instance, Picture, read_annotations, relative_box
from tpuctl.data.sources.registry import open_source
from tpuctl.errors import UsageError

NOT_THERE = "is listed in 'annotations/instances_train2017.json', and is not there"
OF_NONE = "is of the image 12, which is not listed"


def read(root: Path, options: Options = Options(), kind: str | None = None) -> Source:  # noqa: B008
    return opened(open_source(root, kind, options, no_progress))


def float32(*values: float) -> list[float]:
    return list(struct.unpack(f"{len(values)}f", struct.pack(f"{len(values)}f", *values)))


def test_a_record_has_a_picture_and_its_boxes_as_tfds_has_coco(tmp_path: Path) -> None:
    write_coco(tmp_path)
    source = read(tmp_path)
    assert (source.kind, source.bad) == ("coco", ())
    assert [(part.split, part.records) for part in source.parts] == [("train", 3)]
    assert source.features["objects"] == Objects(
        {
            "area": Tensor("int64"),
            "bbox": Box(),
            "id": Tensor("int64"),
            "is_crowd": Tensor("bool"),
            "label": Label(("cat", "dog")),
        }
    )
    records = examples(source)
    assert records[0]["objects/bbox"] == []
    assert records[2] == {
        "image": [(tmp_path / "train2017" / "2.png").read_bytes()],
        "image/filename": [b"2.png"],
        "image/id": [12],
        "objects/area": [12, 12],
        "objects/bbox": float32(1.5 / 6, 0.25, 4.5 / 6, 0.75, 1.5 / 6, 0.25, 3.5 / 6, 0.75),
        "objects/id": [200, 201],
        "objects/is_crowd": [0, 1],
        "objects/label": [0, 1],
    }


def test_splits_are_those_of_the_files_and_pictures_may_have_the_same_names(tmp_path: Path) -> None:
    write_coco(tmp_path)
    write_coco(tmp_path, coco_content(2), split="val2017")
    write_image(tmp_path / "val2017" / "0.png", shade=50)
    source = read(tmp_path)
    assert [(part.split, part.records) for part in source.parts] == [("train", 3), ("validation", 2)]
    images = [record["image"][0] for record in examples(source)]
    assert images[3] == (tmp_path / "val2017" / "0.png").read_bytes() != images[0]


def test_the_layout_of_roboflow_is_read(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        write_image(tmp_path / split / "0.png", shade=len(split))
        (tmp_path / split / "_annotations.coco.json").write_text(json.dumps(coco_content(1)))
    source = read(tmp_path)
    assert {part.split: part.records for part in source.parts} == {"test": 1, "train": 1, "validation": 1}


def changed(**fields: Any) -> dict[str, Any]:
    """Annotations whose last box has other values."""
    content = coco_content()
    content["annotations"][-1] |= fields
    return content


def changed_image(**fields: Any) -> dict[str, Any]:
    content = coco_content()
    content["images"][-1] |= fields
    return content


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (changed(bbox=[2, 1, 8, 2]), "'2.png' has a box that leaves the picture, the annotation 201"),
        (changed(bbox=[-2, 1, 1, 1]), "'2.png' has a box that leaves the picture, the annotation 201"),
        (changed(bbox=[2, 1, -1, 2]), "'2.png' has a box with the size -1 × 2, the annotation 201"),
        (changed(category_id=9), "'2.png' has a box of the category 9, which is not listed"),
        (changed(id=200), "'2.png' has a box with the id 200 of another"),
        (changed_image(file_name="9.png"), f"'9.png' {NOT_THERE}"),
        (changed_image(file_name="../../etc/passwd"), f"'../../etc/passwd' {NOT_THERE}"),
        (changed_image(file_name="1.png"), "'1.png' is listed twice"),
        (changed_image(width=0), "'2.png' is listed with a size of 0 × 6"),
        (changed_image(width=9), "'train2017/2.png' has 8 × 6 pixels, and the annotations say 9 × 6"),
    ],
)  # fmt: skip
def test_a_picture_whose_boxes_cannot_be_used_is_a_bad_record(
    tmp_path: Path, content: dict[str, Any], why: str
) -> None:
    write_coco(tmp_path, content)
    source = read(tmp_path)
    records = items(source)
    assert [str(bad) for bad in (*source.bad, *records) if isinstance(bad, BadRecord)] == [why]
    assert sum(isinstance(record, bytes) for record in records) == 2


@pytest.mark.parametrize(
    ("content", "bad"),
    [
        (changed(bbox=[1, 2, 3]), ["annotation 3", "'2.png' has a bad annotation, number 3"]),
        (changed(bbox="1 2 3 4"), ["annotation 3", "'2.png' has a bad annotation, number 3"]),
        (changed(image_id=99), ["annotation 3 of 'annotations/instances_train2017.json' is of the image 99"]),
        (changed(id=1 << 63), ["annotation 3", "'2.png' has a bad annotation, number 3"]),
        (changed(area=1e30), ["annotation 3", "'2.png' has a bad annotation, number 3"]),
        (changed(image_id=None), ["annotation 3 of 'annotations/instances_train2017.json' is not one"]),
        (changed_image(id=10), ["'2.png' has the id of", "'0.png' has the id 10", *2 * [OF_NONE]]),
        (changed_image(id="x"), ["image 3 of", *2 * [OF_NONE]]),
        (changed_image(id=10**30), ["image 3 of", *2 * [OF_NONE]]),
        (changed_image(width=10**30), ["image 3 of", *2 * [OF_NONE]]),
    ],
)  # fmt: skip
def test_an_entry_that_is_none_is_named_by_its_number(
    tmp_path: Path, content: dict[str, Any], bad: list[str]
) -> None:
    write_coco(tmp_path, content)
    texts = [str(record) for record in read(tmp_path).bad]
    assert len(texts) == len(bad)
    for part in bad:
        assert any(part in text for text in texts), (part, texts)
    with pytest.raises(BadRecordsError):
        plan(tmp_path, name="coco")
    assert opened(plan(tmp_path, name="coco", skip_bad=True, shards=1).source).parts


def changed_name(name: str) -> dict[str, Any]:
    return {**coco_content(), "categories": [{"id": 1, "name": "cat"}, {"id": 3, "name": name}]}


def two_names() -> dict[str, Any]:
    return {**coco_content(), "categories": [{"id": 1, "name": "cat"}, {"id": 3, "name": "cat"}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "'annotations/instances_train2017.json' is not a file of COCO instances"),
        ("[]", "is not a file of COCO instances"),
        ('{"images": NaN}', "is not a file of COCO instances"),
        (json.dumps(coco_content()).replace("12.75", "NaN"), "not a file of COCO instances: invalid"),
        ("[" * 100_000, "is not a file of COCO instances"),
        ({"images": [], "categories": CATEGORIES, "annotations": []}, "has no picture with annotations"),
        ({"images": []}, "is not a file of COCO instances: Object missing required field `categories`"),
        (changed_name(" "), "The category 3 of 'annotations/instances_train2017.json' has no name"),
        (two_names(), "Two categories are called 'cat'"),
        ({**coco_content(), "categories": [*CATEGORIES, {"id": 1, "name": "cow"}]}, "two categories with"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: Any, message: str) -> None:
    write_coco(tmp_path, content)
    with pytest.raises(UsageError, match=message):
        read(tmp_path)


def test_a_box_that_is_rounded_out_of_its_picture_is_cut(tmp_path: Path) -> None:
    write_coco(tmp_path, changed(bbox=[-0.5, 0, 9, 6.5]))
    assert examples(read(tmp_path))[2]["objects/bbox"][4:] == [0.0, 0.0, 1.0, 1.0]


def test_pictures_follow_one_rule_and_may_be_resized(tmp_path: Path) -> None:
    write_coco(tmp_path)
    write_image(tmp_path / "train2017" / "1.png", mode="L", shade=1)
    source = read(tmp_path, Options(resize=(3, 4)))
    assert source.images
    assert source.images.converted == 1
    assert len(examples(source)) == 3


def test_any_name_is_read_with_the_format_named(tmp_path: Path) -> None:
    write_coco(tmp_path).rename(tmp_path / "boxes.json")
    assert len(examples(read(tmp_path, kind="coco"))) == 3
    (tmp_path / "boxes.json").unlink()
    with pytest.raises(UsageError, match="There is no JSON with annotations"):
        read(tmp_path, kind="coco")


@pytest.mark.parametrize("change", [lambda root: (root / "train2017" / "1.png").unlink(), write_coco])
def test_a_change_under_way_stops_the_manifest(tmp_path: Path, change: Callable[[Path], object]) -> None:
    write_coco(tmp_path)
    planned = plan(tmp_path, name="coco")
    files = produce(planned)
    assert files["objects-label.labels.txt"] == b"cat\ndog\n"
    change(tmp_path)
    with pytest.raises(UsageError, match="The source changed during the conversion"):
        planned.source.check()


def test_the_identity_of_a_shard_is_that_of_its_pictures_and_of_the_boxes(tmp_path: Path) -> None:
    def identities() -> list[str]:
        planned = plan(tmp_path, name="coco", shards=3)
        opened(planned.source)
        return [shard.identity for shard in planned.shards()]

    write_coco(tmp_path)
    first = identities()
    assert identities() == first
    write_image(tmp_path / "train2017" / "1.png", shade=9)
    assert len(set(first) & set(identities())) == 2
    (tmp_path / "annotations" / "instances_train2017.json").write_text(json.dumps(coco_content()))
    assert not set(first) & set(identities())


def test_a_picture_that_exif_turns_is_bad_whose_boxes_may_not_be_turned(tmp_path: Path) -> None:
    """Also where it is resized, and nobody could see it by the sizes."""
    write_coco(tmp_path)
    turn(tmp_path / "train2017" / "1.png", 3)
    for options in (Options(), Options(resize=(4, 4))):
        bad = [str(record) for record in items(read(tmp_path, options)) if isinstance(record, BadRecord)]
        assert bad == [f"'train2017/1.png' {TURNED}"]


@pytest.mark.slow
def test_very_many_categories_are_read_and_two_of_one_name_are_found(tmp_path: Path) -> None:
    """Each compared with all others would take an hour."""
    names = [*(f"c{number}" for number in range(300_000)), "c299999"]
    categories = [{"id": number, "name": name} for number, name in enumerate(names)]
    write_coco(tmp_path, {**coco_content(), "categories": categories})
    with pytest.raises(UsageError, match="Two categories are called 'c299999'"):
        read(tmp_path)


MOST = (1 << 63) - 1


def image(number: int = 1, name: str = "", width: int = 100, height: int = 50) -> dict[str, Any]:
    return {"id": number, "file_name": name or f"{number}.jpg", "width": width, "height": height}


def box(number: int, of: int = 1, category: int = 7, **more: Any) -> dict[str, Any]:
    return {"id": number, "image_id": of, "category_id": category, "bbox": [1, 2, 3, 4], **more}


def read_json(
    images: list[Any] | None = None,
    annotations: list[Any] | None = None,
    categories: list[Any] | None = None,
) -> Annotations:
    content = {
        "images": [image()] if images is None else images,
        "annotations": annotations or [],
        "categories": [{"id": 7, "name": "cat"}] if categories is None else categories,
    }
    return read_annotations(json.dumps(content).encode(), "a.json")


def test_pictures_have_their_boxes_in_the_order_of_the_file() -> None:
    found = read_json(
        [image(5), image(2)],
        [box(30, 2, area=1.5), box(10, 5, iscrowd=1), box(20, 2, iscrowd=True), box(40, 2, iscrowd=0)],
    )
    assert found.pictures == [Picture(5, "5.jpg", 100, 50), Picture(2, "2.jpg", 100, 50)]
    assert (found.categories, found.problems, found.bad) == ({7: "cat"}, {}, [])
    corners = (1.0, 2.0, 3.0, 4.0)
    assert found.instances.of(5) == [Instance(10, 5, 7, corners, 0.0, True)]
    assert found.instances.of(2) == [
        Instance(30, 2, 7, corners, 1.5, False),
        Instance(20, 2, 7, corners, 0.0, True),
        Instance(40, 2, 7, corners, 0.0, False),
    ]
    assert found.instances.of(3) == []


def test_numbers_have_up_to_64_bits() -> None:
    found = read_json([image(MOST), image(-MOST - 1)], [box(MOST, MOST), box(-MOST - 1, -MOST - 1)])
    assert [len(found.instances.of(number)) for number in (MOST, -MOST - 1)] == [1, 1]
    assert (found.problems, found.bad) == ({}, [])
    outside = read_json([image(MOST + 1), image(-MOST - 2), image()], [box(MOST + 1), box(-MOST - 2)])
    assert [(bad.file, bad.unit, bad.line) for bad in outside.bad] == [
        ("a.json", "image", 1),
        ("a.json", "image", 2),
        ("a.json", "annotation", 1),
        ("a.json", "annotation", 2),
    ]


@pytest.mark.parametrize("area", [2.0**63, -(2.0**63), "1"])
def test_an_area_is_a_number_of_64_bits(area: object) -> None:
    (bad,) = read_json(annotations=[box(1, area=area)]).bad
    assert str(bad).startswith("annotation 1 of 'a.json' is not one: Expected `float`")
    assert len(read_json(annotations=[box(1, area=2.0**62), box(2, area=-(2.0**62))]).instances.of(1)) == 2


@pytest.mark.parametrize(
    ("images", "annotations", "problems", "bad"),
    [
        ([image(1, width=0)], [], {1: "is listed with a size of 0 × 50"}, []),
        ([image(1, height=0)], [], {1: "is listed with a size of 100 × 0"}, []),
        ([image(1, width=-1)], [], {1: "is listed with a size of -1 × 50"}, []),
        ([image(1, width=1, height=1)], [], {}, []),
        ([image(1, "a"), image(2, "a")], [], {2: "is listed twice"}, []),
        (
            [image(1, "a"), image(1, "b")],
            [],
            {1: "has the id 1 of another image"},
            ["'b' has the id of 'a', 1"],
        ),
        (
            [image()],
            [box(3, 9)],
            {},
            ["annotation 1 of 'a.json' is of the image 9, which is not listed"],
        ),
        ([image()], [box(3, 1, 8)], {1: "has a box of the category 8, which is not listed"}, []),
        (
            [image()],
            [box(3, 1, 8), box(4, 1, 9)],
            {1: "has a box of the category 8, which is not listed"},
            [],
        ),
        ([image(1), image(2)], [box(3, 1), box(3, 2)], {2: "has a box with the id 3 of another"}, []),
        ([image(1), image(2)], [box(3, 1), box(4, 2), box(5, 2)], {}, []),
    ],
)
def test_what_contradicts_itself_is_bad(
    images: list[Any], annotations: list[Any], problems: dict[int, str], bad: list[str]
) -> None:
    found = read_json(images, annotations)
    assert found.problems == problems
    assert [str(record) for record in found.bad] == bad


def test_a_bad_annotation_makes_its_picture_bad() -> None:
    found = read_json(annotations=[box(1), {"image_id": 1, "id": "x"}, {"image_id": 1}, {"id": 4}, 5])
    assert list(found.problems) == [1]
    assert found.problems[1].startswith(
        "has a bad annotation, number 2 of 'a.json': Expected `int`, got `str`"
    )
    assert [bad.line for bad in found.bad] == [2, 3, 4, 5]
    assert all(str(bad).startswith(f"annotation {bad.line} of 'a.json' is not one: ") for bad in found.bad)


def test_a_bad_image_or_category_is_named_by_its_number() -> None:
    found = read_json([image(), {"id": 2}, image(3)], categories=[{"id": 7, "name": "cat"}, {"id": "x"}])
    assert [picture.id for picture in found.pictures] == [1, 3]
    assert [(bad.unit, bad.line) for bad in found.bad] == [("category", 2), ("image", 2)]
    assert isinstance(found.bad[0], BadRecord)


def test_a_text_that_is_no_text_is_bad() -> None:
    content = json.dumps({"images": [image(), image(2, "x")], "categories": [], "annotations": []})
    found = read_annotations(content.encode().replace(b'"x"', b'"\xff"'), "a.json")
    assert [str(bad) for bad in found.bad] == ["image 2 of 'a.json' is not one: it is not UTF-8"]


def test_categories_have_names_without_line_breaks_and_ids_of_their_own() -> None:
    same = [{"id": 7, "name": "traffic  light"}, {"id": 7, "name": " traffic\nlight"}, {"id": 8, "name": "x"}]
    assert read_json(categories=same).categories == {7: "traffic light", 8: "x"}
    with pytest.raises(UsageError, match=r"^'a\.json' has two categories with the id 7\.$"):
        read_json(categories=[{"id": 7, "name": "cat"}, {"id": 7, "name": "dog"}])
    with pytest.raises(UsageError, match=r"^The category 7 of 'a\.json' has no name\.$"):
        read_json(categories=[{"id": 7, "name": " \n"}])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"[]", "Expected `object`, got `array`"),
        (b'{"images": [], "annotations": []}', "Object missing required field `categories`"),
        (b'{"images": [', "Input data was truncated"),
        (b"nothing", "invalid character"),
        (b'{"a": ' + b"[" * 100_000, "it is nested too deeply"),
    ],
)
def test_a_file_that_is_not_of_coco_is_named(data: bytes, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_annotations(data, "a.json")
    assert refused.value.message.startswith(f"'a.json' is not a file of COCO instances: {why}")
    assert refused.value.hint == "It is a JSON object with the lists images, annotations and categories."
    assert refused.value.facts == {"file": "a.json"}


@pytest.mark.parametrize(
    ("bbox", "shares"),
    [
        ((10, 5, 20, 30), [0.1, 0.1, 0.7, 0.3]),
        ((0, 0, 100, 50), [0, 0, 1, 1]),
        ((0, 0, 0, 0), [0, 0, 0, 0]),
        ((-1, -1, 102, 52), [0, 0, 1, 1]),
        ((-0.5, 5, 20, 30), [0.1, 0, 0.7, 0.195]),
        ((100, 50, 1, 1), [1, 1, 1, 1]),
    ],
)
def test_a_box_is_in_shares_of_its_picture_up_to_a_pixel_outside(
    bbox: tuple[float, float, float, float], shares: list[float]
) -> None:
    picture = Picture(1, "1.jpg", 100, 50)
    assert relative_box(Instance(1, 1, 7, bbox), picture) == pytest.approx(shares)


@pytest.mark.parametrize(
    ("bbox", "why"),
    [
        ((1, 1, -1, 2), "has a box with the size -1 × 2"),
        ((1, 1, 2, -0.5), "has a box with the size 2 × -0.5"),
        ((1, 1, float("nan"), 2), "has a box with the size nan × 2"),
        ((-1.1, 0, 1, 1), "has a box that leaves the picture"),
        ((0, -1.1, 1, 1), "has a box that leaves the picture"),
        ((0, 0, 101.1, 1), "has a box that leaves the picture"),
        ((0, 0, 1, 51.1), "has a box that leaves the picture"),
        ((99, 0, 2.1, 1), "has a box that leaves the picture"),
        ((0, 49, 1, 2.1), "has a box that leaves the picture"),
        ((float("nan"), 0, 1, 1), "has a box that leaves the picture"),
    ],
)
def test_a_box_that_leaves_its_picture_is_told(bbox: tuple[float, float, float, float], why: str) -> None:
    with pytest.raises(ValueError, match=f"^{why}$"):
        relative_box(Instance(1, 1, 7, bbox), Picture(1, "1.jpg", 100, 50))
