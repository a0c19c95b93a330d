"""Makes a source of records that are listed first: the files of each, and the values beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.listing import Listing
from tpuctl.data.files.source_files import SourceFiles
from tpuctl.data.options import Options
from tpuctl.data.source import ScanProgress, closed_on_error, supervised_pair
from tpuctl.data.sources.annotated.fields import PICTURES, MediaField, Pictures
from tpuctl.data.sources.annotated.origin import MediaOrigin, chosen
from tpuctl.data.sources.annotated.rows import Rows
from tpuctl.data.sources.annotated.sounds import SOUNDS, Sounds
from tpuctl.data.sources.annotated.source import AnnotatedSource, Table
from tpuctl.data.sources.annotated.values import ValueStore
from tpuctl.data.tfrecord.example_encoding import Value
from tpuctl.errors import UsageError

MakeField = Callable[[str, Listing, Options, ScanProgress], MediaField]
MEDIA: dict[tuple[str, ...], tuple[str, MakeField]] = {
    PICTURES: ("image", Pictures),
    SOUNDS: ("audio", Sounds),
}
"""Endings of names -> the usual name of such a field, and what reads it."""


class ListedRecord(NamedTuple):
    """A record before its values have types."""

    split: str
    files: Mapping[str, int]
    """Field -> number of its file."""
    row: Mapping[str, object]
    bad: BadRecord
    """What is said of it if it is bad; `why` is filled in."""


@dataclass
class Listed:
    """All records of a source."""

    kind: str
    files: SourceFiles
    tables: list[int] = field(default_factory=list)
    records: list[ListedRecord] = field(default_factory=list)
    bad: list[BadRecord] = field(default_factory=list)

    def source(self, options: Options, progress: ScanProgress) -> AnnotatedSource:
        """Return the records as a source; raises UsageError where there are none, or fields do not fit."""
        media = self._media()
        rows = Rows(self.files.tree.name)
        for record in self.records:
            rows.add(record.row)
        if both := next((name for name in rows.names if name in media), ""):
            raise UsageError(
                f"The column '{both}' has the name of a field of files.",
                hint="Rename the column.",
                column=both,
            )
        typed = rows.typed(options, media)
        good: list[tuple[ListedRecord, list[Value]]] = []
        for record in self.records:
            if lacking := next((name for name in media if name not in record.files), ""):
                self._note(record, f"has no {lacking}")
            elif isinstance(values := typed.values(record.row), str):
                self._note(record, values)
            else:
                good.append((record, values))
        if not good:
            raise self._empty()
        good.sort(key=lambda pair: pair[0].split)
        listings = {name: chosen(self.files, [record.files[name] for record, _ in good]) for name in media}
        fields = [media[name](name, listing, options, progress) for name, listing in listings.items()]
        store = ValueStore()
        with closed_on_error(store):
            for _, values in good:
                store.add(values)
            store.finish()
            splits = [(split, len([*group])) for split, group in groupby(record.split for record, _ in good)]
            labels = None
            if typed.labels is not None:  # in the order of all records
                numbers = {id(record): number for number, record in enumerate(self.records)}
                labels = typed.labels[np.array([numbers[id(record)] for record, _ in good])]
            pair = supervised_pair([*media, *typed.features], typed.label)
            table = Table(store, typed.features, splits, labels, pair)
            origin = MediaOrigin(self.files, self.tables, tuple(listings.values()), tuple(self.bad))
            return AnnotatedSource(self.kind, origin, fields, table)

    def _media(self) -> dict[str, MakeField]:
        """Return what reads the files of each field; raises UsageError where a field has several kinds."""
        media: dict[str, MakeField] = {}
        for record in self.records:
            for name, number in record.files.items():
                make = media_kind(self.files.name(number))[1]
                if media.setdefault(name, make) != make:
                    raise UsageError(
                        f"'{self.files.name(number)}' is of another kind than the other files of '{name}'.",
                        hint="All files of a field are pictures, or all are sounds.",
                        file=self.files.name(number),
                    )
        return media

    def _note(self, record: ListedRecord, why: str) -> None:
        listed = record.bad
        self.bad.append(BadRecord(listed.file, why, listed.line, listed.hint, listed.unit))

    def _empty(self) -> UsageError:
        return UsageError(
            f"'{self.files.tree}' has no record that can be used.",
            hint=f"The first: {self.bad[0]}." if self.bad else "Check its files.",
            file=str(self.files.tree),
        )


def media_kind(name: str) -> tuple[str, MakeField]:
    """Return the usual name of the field of such a file, and what reads it; raises KeyError for another."""
    for suffixes, kind in MEDIA.items():
        if name.lower().endswith(suffixes):
            return kind
    raise KeyError(name)


def is_media(name: str) -> bool:
    """Tell whether a file of this name becomes a field of its own."""
    return name.lower().endswith(tuple(suffix for suffixes in MEDIA for suffix in suffixes))


def check_splits(records: Sequence[ListedRecord]) -> None:
    """Raise UsageError where only some records are in a split."""
    splits = {record.split for record in records}
    if "" in splits and len(splits) > 1:
        raise in_no_split(next(record.bad.file for record in records if not record.split))


def in_no_split(name: str) -> UsageError:
    """Return the error for a record in no split where others are in one."""
    return UsageError(
        f"'{name}' is in no split, and others are.",
        hint="Name all after their split, such as train and test, or none.",
        file=name,
    )
