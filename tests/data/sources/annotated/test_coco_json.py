"""The JSON of COCO's instances (https://cocodataset.org/#format-data): what is kept, and what is bad."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tpuctl.data.options import BadRecord
from tpuctl.data.sources.annotated.coco import Annotations, Instance, Picture, read_annotations, relative_box
from tpuctl.errors import UsageError

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
