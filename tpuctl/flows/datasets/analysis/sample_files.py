"""Writes the records of a plan as files to look at: pictures in class folders, others as JSON Lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from tpuctl.atomic_files import replace_file
from tpuctl.data.bad_records import BadRecord, BadRecordsError
from tpuctl.data.plan import DatasetPlan, SplitPlan
from tpuctl.data.schema.features import Feature, Image, Label
from tpuctl.data.source import Observations
from tpuctl.data.tfrecord.example_decoding import Values, decode
from tpuctl.errors import StateError

_ENDINGS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpg"}
_UNSAFE = re.compile(r"[^\w. -]|^\.+")


def planned_files(plan: DatasetPlan, folder: Path) -> list[Path]:
    """Return the folders or files that `write_files` fills."""
    if _picture(plan.features):
        return [folder / split.name for split in plan.splits]
    return [folder / f"{split.name}.jsonl" for split in plan.splits]


def write_files(plan: DatasetPlan, folder: Path) -> int:
    """Write every record below a folder, and return the number of files; run again, it writes the same."""
    picture = _picture(plan.features)
    count = 0
    try:
        for split in plan.splits:
            records = _records(plan, split)
            if not picture:
                folder.mkdir(parents=True, exist_ok=True)
                lines = (_line(values) for values in records)
                replace_file(folder / f"{split.name}.jsonl", lines)
                count += 1
                continue
            for number, values in enumerate(records):
                _write_picture(folder / split.name, number, values, plan.features, picture)
                count += 1
    except OSError as error:
        raise StateError(
            f"Cannot write '{folder}': {error.strerror}.", hint="Free some space, or give another folder."
        ) from error
    return count


def _records(plan: DatasetPlan, split: SplitPlan) -> Iterator[Mapping[str, Values]]:
    for record in plan.source.read(split.members.indices(0, split.records), Observations()):
        if isinstance(record, BadRecord):
            raise BadRecordsError([record])
        yield decode(record)


def _picture(features: Mapping[str, Feature]) -> str:
    return next((name for name, feature in features.items() if isinstance(feature, Image)), "")


def _write_picture(
    folder: Path, number: int, values: Mapping[str, Values], features: Mapping[str, Feature], picture: str
) -> None:
    data = next(iter(values.get(picture, [])), b"")
    content = data if isinstance(data, bytes) else b""
    ending = next((name for start, name in _ENDINGS.items() if content.startswith(start)), "bin")
    folder = folder / _class(values, features)
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / f"{number:06}.{ending}", [content])


def _class(values: Mapping[str, Values], features: Mapping[str, Feature]) -> str:
    """Return the name of a record's class as that of a folder; nothing without one."""
    for name, feature in features.items():
        number = next(iter(values.get(name, [])), None)
        if isinstance(feature, Label) and isinstance(number, int):
            known = 0 <= number < len(feature.classes)
            return _UNSAFE.sub("_", feature.classes[number]) or f"{number}" if known else f"{number}"
    return ""


def _line(values: Mapping[str, Values]) -> bytes:
    def plain(value: object) -> object:
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    fields = {name: [plain(value) for value in items] for name, items in values.items()}
    row = {name: items[0] if len(items) == 1 else items for name, items in fields.items()}
    return msgspec.json.encode(row) + b"\n"
