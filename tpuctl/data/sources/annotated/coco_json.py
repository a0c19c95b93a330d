"""Reads the JSON of COCO's instances: pictures, categories, and boxes as TFDS has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Annotated, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tpuctl.data.bad_records import BadRecord
from tpuctl.errors import UsageError

_Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Area = Annotated[float, msgspec.Meta(gt=-(2.0**63), lt=2.0**63)]
_SIDES = ("x", "y", "width", "height")
_ROW = np.dtype(
    [
        *((number, "<i8") for number in ("image", "id", "category")),
        *((number, "<f8") for number in (*_SIDES, "area")),
        ("crowd", "?"),
    ]
)
_EDGES: tuple[Literal["left", "right"], ...] = ("left", "right")
_PACKED = Struct("<3q5d?")
_ROUNDING = 1.0
"""Pixels by which a box may lie outside of its picture: it is cut there."""


class Picture(msgspec.Struct, frozen=True):
    """An image of the JSON."""

    id: _Int64
    file_name: str
    width: _Int64
    height: _Int64


class _Category(msgspec.Struct, frozen=True):
    id: int
    name: str


class Instance(msgspec.Struct, frozen=True):
    """An annotation of the JSON; its segmentation is not read."""

    id: _Int64
    image_id: _Int64
    category_id: _Int64
    bbox: tuple[float, float, float, float]
    """x and y of the upper left corner, width and height, in pixels."""
    area: _Area = 0.0
    iscrowd: bool | int = 0


class Instances:
    """The annotations of a file, in 81 bytes each; grows by `add`, and is read after `finish`."""

    def __init__(self) -> None:
        self._rows = bytearray()
        self._sorted: NDArray[np.void] = np.empty(0, _ROW)
        self._images: NDArray[np.int64] = np.empty(0, np.int64)

    def add(self, instance: Instance) -> None:
        """Add the next annotation; its numbers fit 64 bits."""
        crowd, area = bool(instance.iscrowd), instance.area
        self._rows += _PACKED.pack(
            instance.image_id, instance.id, instance.category_id, *instance.bbox, area, crowd
        )

    def finish(self) -> list[tuple[int, int]]:
        """To be called once, after the last `add`; return images with an id of an annotation before it."""
        rows = np.frombuffer(self._rows, _ROW)
        self._sorted = rows[np.argsort(rows["image"], kind="stable")]
        self._images = np.ascontiguousarray(self._sorted["image"])
        self._rows = bytearray()
        order = np.argsort(rows["id"], kind="stable")
        later = order[1:][np.diff(rows["id"][order]) == 0]
        return [(int(rows["image"][place]), int(rows["id"][place])) for place in np.sort(later).tolist()]

    def of(self, image: int) -> list[Instance]:
        """Return the annotations of an image in their order."""
        start, end = (int(np.searchsorted(self._images, image, side)) for side in _EDGES)
        return [
            Instance(number, image, category, (left, top, width, height), area, crowd)
            for _, number, category, left, top, width, height, area, crowd in self._sorted[start:end].tolist()
        ]


class _Content(msgspec.Struct):
    images: list[msgspec.Raw]
    categories: list[msgspec.Raw]
    annotations: list[msgspec.Raw]


@dataclass
class Annotations:
    """The content of one file."""

    pictures: list[Picture] = field(default_factory=list)
    categories: dict[int, str] = field(default_factory=dict)
    instances: Instances = field(default_factory=lambda: Instances())
    problems: dict[int, str] = field(default_factory=dict)
    """Why a picture cannot be used, by its id, to complete a sentence about it."""
    bad: list[BadRecord] = field(default_factory=list)
    """Entries that belong to no picture."""


def read_annotations(data: bytes, name: str) -> Annotations:
    """Return the content of a file of this name; raises UsageError where it is not COCO's."""
    try:
        content = msgspec.json.decode(data, type=_Content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UsageError(
            f"'{name}' is not a file of COCO instances: {_reason(error)}.",
            hint="It is a JSON object with the lists images, annotations and categories.",
            file=name,
        ) from error
    result = Annotations()
    for category in _decoded(content.categories, _Category, "category", name, result.bad):
        if not _plain(category.name):
            raise UsageError(
                f"The category {category.id} of '{name}' has no name.", hint="Give it one.", file=name
            )
        if result.categories.setdefault(category.id, _plain(category.name)) != _plain(category.name):
            raise UsageError(
                f"'{name}' has two categories with the id {category.id}.",
                hint="Give each its own.",
                file=name,
            )
    _add_pictures(result, _decoded(content.images, Picture, "image", name, result.bad))
    _add_instances(result, content.annotations, name)
    return result


def relative_box(instance: Instance, picture: Picture) -> list[float]:
    """Return ymin, xmin, ymax and xmax as shares of the picture; raises ValueError with what is wrong."""
    left, top, width, height = instance.bbox
    right, bottom = left + width, top + height
    if not (width >= 0 and height >= 0):
        raise ValueError(f"has a box with the size {width:g} × {height:g}")
    inside = left >= -_ROUNDING and top >= -_ROUNDING
    if not (inside and right <= picture.width + _ROUNDING and bottom <= picture.height + _ROUNDING):
        raise ValueError("has a box that leaves the picture")
    shares = (top / picture.height, left / picture.width, bottom / picture.height, right / picture.width)
    return [min(max(share, 0.0), 1.0) for share in shares]


def _add_pictures(result: Annotations, pictures: Sequence[Picture]) -> None:
    ids: dict[int, str] = {}
    names: set[str] = set()
    for picture in pictures:
        if picture.id in ids:
            result.problems[picture.id] = f"has the id {picture.id} of another image"
            result.bad.append(
                BadRecord(picture.file_name, f"has the id of '{ids[picture.id]}', {picture.id}")
            )
            continue
        ids[picture.id] = picture.file_name
        result.pictures.append(picture)
        if picture.file_name in names:
            result.problems[picture.id] = "is listed twice"
        names.add(picture.file_name)
        if picture.width <= 0 or picture.height <= 0:
            result.problems[picture.id] = f"is listed with a size of {picture.width} × {picture.height}"


def _add_instances(result: Annotations, raw: Sequence[msgspec.Raw], name: str) -> None:
    pictures = {picture.id for picture in result.pictures}
    for number, item in enumerate(raw, 1):
        try:
            instance = msgspec.json.decode(item, type=Instance)
        except msgspec.DecodeError as error:
            _note(result, number, item, name, _reason(error))
            continue
        if instance.image_id not in pictures:
            why = f"is of the image {instance.image_id}, which is not listed"
            result.bad.append(BadRecord(name, why, number, unit="annotation"))
        elif instance.category_id not in result.categories:
            category = f"has a box of the category {instance.category_id}, which is not listed"
            result.problems.setdefault(instance.image_id, category)
        else:
            result.instances.add(instance)
    for image, twice in result.instances.finish():
        result.problems.setdefault(image, f"has a box with the id {twice} of another")


class _OfImage(msgspec.Struct):
    image_id: int


def _note(result: Annotations, number: int, item: msgspec.Raw, name: str, why: str) -> None:
    """Note a bad annotation: its picture, if it is known, is bad, since a box would be missing."""
    try:
        image = msgspec.json.decode(item, type=_OfImage).image_id
        result.problems.setdefault(image, f"has a bad annotation, number {number} of '{name}': {why}")
    except msgspec.DecodeError:
        pass
    result.bad.append(BadRecord(name, f"is not one: {why}", number, unit="annotation"))


_Item = TypeVar("_Item")


def _decoded(
    raw: Sequence[msgspec.Raw], kind: type[_Item], unit: str, name: str, bad: list[BadRecord]
) -> list[_Item]:
    items = []
    for number, item in enumerate(raw, 1):
        try:
            items.append(msgspec.json.decode(item, type=kind))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            bad.append(BadRecord(name, f"is not one: {_reason(error)}", number, unit=unit))
    return items


def _plain(name: str) -> str:
    return " ".join(name.split())


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return str(error).removeprefix("JSON is malformed: ")
