"""Reads COCO: pictures, and a JSON with the boxes in them, as TFDS's own `coco` has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.listing import unreadable
from tpuctl.data.files.source_files import SourceFiles, every_file, split_of
from tpuctl.data.options import Options
from tpuctl.data.schema.features import Box, Label, Objects, Tensor, Text
from tpuctl.data.source import ScanProgress, closed_on_error
from tpuctl.data.sources.annotated.coco_json import Annotations, Picture, read_annotations, relative_box
from tpuctl.data.sources.annotated.fields import Content, Pictures, no_options
from tpuctl.data.sources.annotated.origin import MediaOrigin, chosen
from tpuctl.data.sources.annotated.pictures_by_name import PicturesByName
from tpuctl.data.sources.annotated.source import AnnotatedSource, Table
from tpuctl.data.sources.annotated.values import ValueStore
from tpuctl.data.sources.names.files import COCO, PICTURES
from tpuctl.data.tfrecord.example_encoding import Value
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

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
