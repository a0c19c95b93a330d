"""Reads COCO: pictures, and a JSON with the boxes in them, as TFDS's own `coco` has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby, islice
from struct import Struct
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.listing import PathIndex, unreadable
from tpuctl.data.files.source_files import SourceFiles, every_file, split_of, words
from tpuctl.data.options import BadRecord, Options
from tpuctl.data.schema.features import Box, Label, Objects, Tensor, Text
from tpuctl.data.source import ScanProgress, closed_on_error
from tpuctl.data.sources.annotated.fields import Content, Pictures, ValueStore, no_options
from tpuctl.data.sources.annotated.records import AnnotatedSource, MediaOrigin, Table, chosen
from tpuctl.data.sources.names import COCO, PICTURES
from tpuctl.data.tfrecord.example_encoding import Value
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

# Reads the JSON of COCO's instances: pictures, categories, and boxes as TFDS has them.
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


_MOST_NAMESAKES = 1000
"""Files that end a path alike and are looked through for one in a folder with a word of the annotations."""
"""Names that show the format; with `--format coco` any JSON is read."""
_JSON = re.compile(r"\.json$")
_INSTANCES = re.compile(r"(^|/)instances[^/]*\.json$")
_YEAR = re.compile(r"(?<=[a-z])\d+")
_ALL = re.compile(rf"({'|'.join(map(re.escape, (*PICTURES, '.json')))})$")


class _Record(NamedTuple):
    """A picture of a split, and the number of its file."""

    split: str
    file: int
    picture: Picture
    annotations: Annotations


def read_coco(tree: Tree, options: Options, progress: ScanProgress) -> AnnotatedSource:
    """Return the pictures with their boxes; raises UsageError that names what is wrong with a JSON."""
    no_options(options, "A source of COCO")
    files = every_file(tree, _ALL)
    tables = _annotation_files(files)
    contents = {number: _annotations(files, number) for number in tables}
    categories = _categories(files, contents)
    bad = [*files.bad, *(record for content in contents.values() for record in content.bad)]
    records = _records(files, contents, bad)
    if not records:
        raise UsageError(
            f"'{tree}' has no picture with annotations that can be used.",
            hint=f"The first: {bad[0]}." if bad else "Check the lists of the JSON.",
            file=str(tree),
        )
    values = ValueStore()
    with closed_on_error(values):
        listing = chosen(files, [record.file for record in records])
        places = {number: place for place, number in enumerate(sorted(categories))}
        for number, record in enumerate(records):
            values.add((*_values(record, places), listing.key(number)))
        values.finish()
        origin = MediaOrigin(files, tables, (listing,), tuple(bad))
        names = tuple(categories[number] for number in sorted(categories))
        judge = partial(_judge, resized=options.resize is not None)
        table = Table(values, _features(names), _splits(records), judge=judge)
        pictures = Pictures("image", listing, options, progress, turns=False)
        return AnnotatedSource("coco", origin, (pictures,), table)


def _annotation_files(files: SourceFiles) -> list[int]:
    """Return the numbers of the JSON files; where some are called instances, of these alone."""
    numbers = [number for number in range(len(files)) if _JSON.search(files.name(number).lower())]
    for pattern in (_INSTANCES, COCO):
        if named := [number for number in numbers if pattern.search(files.name(number).lower())]:
            return named
    if not numbers:
        raise UsageError(
            f"There is no JSON with annotations in '{files.tree}'.",
            hint="COCO has pictures and a JSON, such as annotations/instances_train.json.",
            file=str(files.tree),
        )
    return numbers


def _annotations(files: SourceFiles, number: int) -> Annotations:
    try:
        return read_annotations(files.listing.read(number), files.name(number))
    except OSError as error:
        raise unreadable(files.name(number), error) from error


def _categories(files: SourceFiles, contents: Mapping[int, Annotations]) -> dict[int, str]:
    """Return the names of the classes of all files, by their id."""
    names: dict[int, str] = {}
    for number, content in contents.items():
        for category, name in content.categories.items():
            if names.setdefault(category, name) != name:
                raise UsageError(
                    f"The category {category} is '{name}' in '{files.name(number)}', and elsewhere "
                    f"'{names[category]}'.",
                    hint="All files of a source have the same categories.",
                    file=files.name(number),
                )
    named: set[str] = set()
    for name in names.values():
        if name in named:
            raise UsageError(f"Two categories are called '{name}'.", hint="Give each another name.")
        named.add(name)
    return names


def _records(files: SourceFiles, contents: Mapping[int, Annotations], bad: list[BadRecord]) -> list[_Record]:
    """Return the pictures that can be used, in the order of their splits; the others become bad."""
    found = PicturesByName(files, PICTURES)
    records = []
    for number, content in contents.items():
        table = files.name(number)
        split = split_of(_YEAR.sub("", table))
        for picture in content.pictures:
            file = found.find(picture.file_name, table)
            if isinstance(file, str):
                bad.append(BadRecord(picture.file_name, file))
            elif why := content.problems.get(picture.id, "") or _box_problem(picture, content):
                bad.append(BadRecord(picture.file_name, why))
            else:
                records.append(_Record(split, file, picture, content))
    _check_splits(records, files)
    return sorted(records, key=lambda record: record.split)


def _check_splits(records: Sequence[_Record], files: SourceFiles) -> None:
    splits = {record.split for record in records}
    if "" in splits and len(splits) > 1:
        raise UsageError(
            f"Some files of annotations in '{files.tree}' name a split, and others do not.",
            hint="Name all after their split, such as instances_train.json, or none.",
        )


def _box_problem(picture: Picture, content: Annotations) -> str:
    for instance in content.instances.of(picture.id):
        try:
            relative_box(instance, picture)
        except ValueError as error:
            return f"{error}, the annotation {instance.id}"
    return ""


def _features(names: tuple[str, ...]) -> dict[str, Text | Tensor | Objects]:
    return {
        "image/filename": Text(),
        "image/id": Tensor("int64"),
        "objects": Objects(
            {
                "area": Tensor("int64"),
                "bbox": Box(),
                "id": Tensor("int64"),
                "is_crowd": Tensor("bool"),
                "label": Label(names),
            }
        ),
    }


def _values(record: _Record, places: Mapping[int, int]) -> list[Value]:
    """Return the values of a record in the order of the features, and the size of its picture."""
    picture = record.picture
    instances = record.annotations.instances.of(picture.id)
    boxes = [side for instance in instances for side in relative_box(instance, picture)]
    return [
        picture.file_name,
        picture.id,
        [int(instance.area) for instance in instances],
        boxes,
        [instance.id for instance in instances],
        [int(bool(instance.iscrowd)) for instance in instances],
        [places[instance.category_id] for instance in instances],
        [picture.width, picture.height],
    ]


def _judge(contents: Sequence[Content], values: Sequence[Value], *, resized: bool) -> str:
    """Return what is wrong with a picture that has another size than the boxes were drawn in."""
    actual, listed = [contents[0].width, contents[0].height], values[-2]
    if resized or actual == listed:
        return ""
    return f"has {actual[0]} × {actual[1]} pixels, and the annotations say {' × '.join(map(str, listed))}"  # type: ignore[arg-type]


def _splits(records: Sequence[_Record]) -> list[tuple[str, int]]:
    return [(split, len(list(group))) for split, group in groupby(record.split for record in records)]


# Finds the file that annotations call by a name: below their folder, or in another of the source.


class PicturesByName:
    """The files of some endings, by the last parts of their paths."""

    def __init__(self, files: SourceFiles, suffixes: tuple[str, ...]) -> None:
        self._files = files
        self._suffixes = suffixes
        self._indexes: dict[int, PathIndex] = {}
        """By how many parts of the paths: names have one part, or two."""
        self._nearest: dict[tuple[str, str], int | str] = {}
        """What was found for a name and a table where there are several files."""

    def find(self, name: str, table: str) -> int | str:
        """Return the number of the file with this name for annotations at `table`, or what is wrong with it.

        A path from the folder of `table` is the first choice, then a folder whose name occurs in that of
        `table`: `train2017/1.jpg` for `instances_train2017.json`.
        """
        is_picture = name.lower().endswith(self._suffixes)
        numbers = list(islice(self._index(name).find(_relative(name)), 2)) if is_picture else []
        if len(numbers) <= 1:
            return numbers[0] if numbers else f"is listed in '{table}', and is not there"
        if (name, table) not in self._nearest:
            self._nearest[name, table] = self._find_nearest(name, table)
        return self._nearest[name, table]

    def _find_nearest(self, name: str, table: str) -> int | str:
        folder = table.rpartition("/")[0]
        beside = f"{folder}/{name}" if folder else name
        number = self._paths.first(beside)
        if number is not None:
            return number
        numbers = list(islice(self._index(name).find(_relative(name)), _MOST_NAMESAKES + 1))
        if len(numbers) <= _MOST_NAMESAKES:
            named = [number for number in numbers if self._shares_words(number, table)]
            if len(named) == 1:
                return named[0]
        folders = ", ".join(f"'{self._files.name(number)}'" for number in numbers[:3])
        return f"is listed in '{table}', and there are {folders}"

    @cached_property
    def _paths(self) -> PathIndex:
        return PathIndex(len(self._files), self._files.name)

    def _index(self, name: str) -> PathIndex:
        """Return the index of as many parts of the paths as a name has."""
        parts = _relative(name).count("/") + 1
        if parts not in self._indexes:
            self._indexes[parts] = PathIndex(len(self._files), partial(self._last_parts, parts))
        return self._indexes[parts]

    def _last_parts(self, count: int, number: int) -> str:
        return "/".join(self._files.name(number).rsplit("/", count)[-count:])

    def _shares_words(self, number: int, table: str) -> bool:
        folders = self._files.name(number).split("/")[:-1]
        return bool({folder.lower() for folder in folders} & set(words(table)))


def _relative(name: str) -> str:
    return name.removeprefix("./")
