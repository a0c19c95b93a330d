"""Draws other splits, or a sample, from the records of a source that has splits already."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.analysis.comparison import Fingerprints, fingerprint, first_of_each
from tpuctl.data.options import BadRecord, BadRecordsError
from tpuctl.data.order import Members, Permutation, split_records
from tpuctl.data.schema.classes import MOST_CLASSES, MOST_LABELS
from tpuctl.data.source import Observations, Part, ScanProgress, Source
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.errors import UsageError

_BATCH = 4096

Numbers = NDArray[np.int32]


@dataclass(frozen=True)
class Scan:
    """What a drawing needs to know of each record."""

    labels: Numbers
    """Class of each, 0 for all without a label."""
    groups: Numbers | None
    """The first record with the same content; None where nobody asks."""


def scan(source: Source, label: str, progress: ScanProgress, *, grouped: bool) -> Scan:
    """Read every record once, in order; raises UsageError for too many, BadRecordsError for a bad one."""
    total = sum(part.records for part in source.parts)
    if total > MOST_LABELS:
        raise UsageError(
            f"The dataset has {total} records, and at most {MOST_LABELS} can be drawn from.",
            hint="Upload it from its source again, with --split.",
        )
    labels = np.zeros(total, np.int32)
    if not label and not grouped:
        return Scan(labels, None)
    with closing(Fingerprints()) as prints:
        for start in range(0, total, _BATCH):
            indices = np.arange(start, min(start + _BATCH, total))
            for index, record in zip(indices.tolist(), source.read(indices, Observations()), strict=True):
                if isinstance(record, BadRecord):
                    raise BadRecordsError([record])
                values = decode(record)
                number = next(iter(values.get(label, [])), 0)
                labels[index] = number if isinstance(number, int) and 0 <= number < MOST_CLASSES else 0
                if grouped:
                    prints.add(fingerprint(values, source.features), 0, 0, index)
            progress(min(start + _BATCH, total), total)
        return Scan(labels, _groups(prints, total) if grouped else None)


def redraw(source: Source, shares: dict[str, Fraction], seed: int, known: Scan) -> list[Members]:
    """Return the splits, in which each class keeps its share; records of a group are in the same one."""
    total, size = (sum(numbers) for numbers in zip(*(part[1:] for part in source.parts), strict=True))
    if known.groups is None:
        return split_records(_unsplit(source, total, size, known.labels), shares, seed)
    firsts = np.flatnonzero(known.groups == np.arange(total))
    drawn = split_records(_unsplit(source, len(firsts), size, known.labels[firsts]), shares, seed)
    split_of = np.zeros(total, np.int32)
    for number, members in enumerate(drawn):
        split_of[firsts[members.indices(0, len(members))]] = number
    of_each = split_of[known.groups]
    return [
        _members(members.name, np.flatnonzero(of_each == number), size, total, seed)
        for number, members in enumerate(drawn)
    ]


def draw_sample(source: Source, count: int, seed: int, known: Scan) -> list[Members]:
    """Return a part of each split: about `count` records in all, with the shares of the classes."""
    total, size = (sum(numbers) for numbers in zip(*(part[1:] for part in source.parts), strict=True))
    split_of = np.repeat(np.arange(len(source.parts)), [part.records for part in source.parts])
    chosen = np.arange(total)
    if count < total:
        strata = (split_of * (int(known.labels.max(initial=0)) + 1) + known.labels).astype(np.int32)
        shares = {"sample": Fraction(count, total), "rest": 1 - Fraction(count, total)}
        sample = split_records(_unsplit(source, total, size, strata), shares, seed)[0]
        chosen = np.sort(sample.indices(0, len(sample)))
    return [
        _members(part.split or "train", chosen[split_of[chosen] == number], size, total, seed)
        for number, part in enumerate(source.parts)
        if (split_of[chosen] == number).any()
    ]


def _unsplit(source: Source, records: int, size: int, labels: Numbers) -> Source:
    return Source(
        kind=source.kind,
        origin=source.origin,
        features=source.features,
        labels=labels,
        parts=(Part("", records, size),),
    )


def _members(name: str, chosen: NDArray[np.integer], size: int, total: int, seed: int) -> Members:
    if not len(chosen):
        raise UsageError(f"The split '{name}' would be empty.", hint="Give it a larger fraction.", split=name)
    own = size * len(chosen) // max(total, 1)
    return Members(name, own, Permutation(len(chosen), seed, "shard"), chosen.astype(np.int32))


def _groups(prints: Fingerprints, total: int) -> Numbers:
    groups = np.arange(total, dtype=np.int32)
    for rows in prints.parts():
        begins = first_of_each(rows)
        firsts = rows["index"][begins][np.cumsum(begins) - 1]
        groups[rows["index"]] = firsts
    return groups


def label_fields(names: Sequence[str], chosen: str | None) -> str:
    """Return the field whose classes keep their shares: the chosen one, else the only label."""
    if chosen is None:
        return names[0] if len(names) == 1 else ""
    if chosen and chosen not in names:
        raise UsageError(
            f"The dataset has no label '{chosen}'.",
            hint=f"One of {', '.join(names)}." if names else "Run it without --stratify.",
            field=chosen,
        )
    return chosen
