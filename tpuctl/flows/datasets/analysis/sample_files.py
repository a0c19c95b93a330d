"""Writes the records of a plan as files to look at: pictures in class folders, others as JSON Lines.

The folder has a list of what a sample wrote there, and the next sample replaces those files.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import msgspec

from tpuctl.data.bad_records import BadRecord, BadRecordsError
from tpuctl.data.plan import DatasetPlan, SplitPlan
from tpuctl.data.schema.features import Feature, Image, Label
from tpuctl.data.source import Observations
from tpuctl.data.tfrecord.example_decoding import Values, decode
from tpuctl.errors import StateError, UsageError
from tpuctl.flows.download_folder import check_folder, filling
from tpuctl.flows.progress import Report
from tpuctl.local.confined_folder import NotAFileError, read_file
from tpuctl.local.object_names import UnsafeNameError, local_parts
from tpuctl.local.staged_folder import StagedFolder

_UNSAFE = re.compile(r"[^\w. -]|^\.+|(?<![. ])[. ]+$")
_LONGEST = 50
"""Characters: of four bytes each they fit a file's name, with a number."""
_ENDINGS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpg"}
_LIST = (".tpuctl-sample",)
"""Names the files of the sample in a folder; JSON."""
_LARGEST_LIST = 64 << 20

Parts = tuple[str, ...]
File = tuple[Parts, Iterable[bytes]]
"""A path below the folder, and its content."""


def planned_files(plan: DatasetPlan, folder: Path) -> list[Path]:
    """Return the folders or files that `write_files` fills; raises UsageError for another's folder."""
    _check(folder)
    if _picture(plan.features):
        return [folder / split.name for split in plan.splits]
    return [folder / f"{split.name}.jsonl" for split in plan.splits]


def write_files(plan: DatasetPlan, folder: Path, report: Report) -> int:
    """Write every record below a folder, and return the number of files; those of a former sample go.

    Raises UsageError for a folder with something else, or that cannot be written.
    """
    with filling(folder, report, lambda: _check(folder)) as local:
        former = _listed(folder) or set()
        local.write(msgspec.json.encode(sorted(former)), _LIST)
        former |= local.placed_before()
        files = {_place(local, parts, content) for parts, content in _files(plan)}
        for parts in former - files:
            local.remove(parts)
        local.write(msgspec.json.encode(sorted(files)), _LIST)
    return len(files)


def _place(local: StagedFolder, parts: Parts, content: Iterable[bytes]) -> Parts:
    """Write a file, whose path one that is killed leaves to the next."""
    name = "/".join(parts)
    try:
        local_parts(name)
        key = sha256(name.encode()).hexdigest()
        with local.completing(key) as path, path.open("wb") as stream:
            stream.writelines(content)
        local.place(local.waiting(key), parts)
    except UnsafeNameError as error:
        raise StateError(f"{name} {error}.", hint="Make a dataset of it: --as NAME/VERSION.") from error
    except NotAFileError as error:
        raise UsageError(f"{name} {error}.", hint="Name another folder with --to.") from error
    return parts


def _check(folder: Path) -> None:
    check_folder(folder, "a sample", lambda: _listed(folder) is not None)


def _listed(folder: Path) -> set[Parts] | None:
    """Return the files of the sample that a folder has; None if it has none."""
    try:
        data = read_file(folder, *_LIST, _LARGEST_LIST)
        listed = msgspec.json.decode(data, type=list[tuple[str, ...]])
    except (FileNotFoundError, NotAFileError, ValueError):
        return None
    return {parts for parts in listed if _is_safe(parts)}


def _is_safe(parts: Parts) -> bool:
    try:
        return local_parts("/".join(parts)) == parts
    except UnsafeNameError:
        return False


def _files(plan: DatasetPlan) -> Iterator[File]:
    picture = _picture(plan.features)
    folders = ClassFolders(plan.features)
    for split in plan.splits:
        records = _records(plan, split)
        if not picture:
            yield (f"{split.name}.jsonl",), map(_line, records)
            continue
        for number, values in enumerate(records):
            data = next(iter(values.get(picture, [])), b"")
            content = data if isinstance(data, bytes) else b""
            ending = next((name for start, name in _ENDINGS.items() if content.startswith(start)), "bin")
            yield (split.name, *folders.parts(values), f"{number:06}.{ending}"), [content]


def _records(plan: DatasetPlan, split: SplitPlan) -> Iterator[Mapping[str, Values]]:
    for record in plan.source.read(split.members.indices(0, split.records), Observations()):
        if isinstance(record, BadRecord):
            raise BadRecordsError([record])
        yield decode(record)


def _picture(features: Mapping[str, Feature]) -> str:
    return next((name for name, feature in features.items() if isinstance(feature, Image)), "")


def _line(values: Mapping[str, Values]) -> bytes:
    def plain(value: object) -> object:
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    fields = {name: [plain(value) for value in items] for name, items in values.items()}
    row = {name: items[0] if len(items) == 1 else items for name, items in fields.items()}
    return msgspec.json.encode(row) + b"\n"


# Names a folder after each class: safe on a disk, and no two alike.


class ClassFolders:
    """The folder of each class.

    Of names that are alike, but for case or characters that a folder cannot have, the later has its number.
    """

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self._labels = [name for name, feature in features.items() if isinstance(feature, Label)]
        self._names: dict[tuple[str, int], str] = {}
        self._taken: set[str] = set()
        for field, feature in features.items():
            for number, name in enumerate(feature.classes if isinstance(feature, Label) else ()):
                self._names[field, number] = self._free(_safe(name), number)

    def parts(self, values: Mapping[str, Values]) -> tuple[str, ...]:
        """Return the folder of a record's class; nothing without one."""
        for field in self._labels:
            number = next(iter(values.get(field, [])), None)
            if isinstance(number, int):
                if (field, number) not in self._names:
                    self._names[field, number] = self._free("", number)
                return (self._names[field, number],)
        return ()

    def _free(self, name: str, number: int) -> str:
        name = name or f"{number}"
        while _folded(name) in self._taken:
            name = f"{name}-{number}"
        self._taken.add(_folded(name))
        return name


def _safe(name: str) -> str:
    """Return a class's name as that of a folder, empty if it cannot be."""
    name = _UNSAFE.sub("_", name[:_LONGEST])
    try:
        return "/".join(local_parts(name))
    except UnsafeNameError:
        return ""


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
