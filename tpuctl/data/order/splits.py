"""Parses the shares of splits, and lists the records of each split in the order of writing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.order.permutation import Permutation
from tpuctl.data.schema.classes import MOST_LABELS
from tpuctl.data.source import Indices, Part, Source
from tpuctl.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_FRACTION = re.compile(r"\d{0,3}\.\d{1,9}|\d{1,3}|\d{1,9}/[1-9]\d{0,8}")
_RESERVED = ("all",)
_HINT = "Write them as train=0.8,test=0.2."


Chosen = NDArray[np.int32] | int
"""The records of a split before they are shuffled: their indices, or the first index of a run of them."""


@dataclass(frozen=True)
class Members:
    """The records of one split, in the order they are written."""

    name: str
    size: int
    """Bytes of their serialised examples; an estimate where the source's are, or where the split is drawn."""
    _order: Permutation
    _chosen: Chosen
    _start: int = 0
    _count: int = -1

    def __len__(self) -> int:
        return self._count if self._count >= 0 else self._order.size

    def indices(self, start: int, stop: int) -> Indices:
        """Return the source's indices of the records that are written from place `start` to before `stop`."""
        places = self._order(np.arange(self._start + start, self._start + stop, dtype=np.int64))
        return (
            places + self._chosen if isinstance(self._chosen, int) else self._chosen[places].astype(np.int64)
        )


def parse_splits(text: str) -> dict[str, Fraction]:
    """Return the share of each split in `train=0.8,test=0.2`, in order; raises UsageError."""
    shares: dict[str, Fraction] = {}
    for part in text.split(","):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise _bad(text, f"'{part.strip()}' is not NAME=FRACTION")
        if not _NAME.fullmatch(name) or name in _RESERVED:
            raise _bad(text, f"'{name}' cannot be the name of a split")
        if name in shares:
            raise _bad(text, f"'{name}' is named twice")
        shares[name] = _share(text, number)
    total = sum(shares.values())
    if total != 1:
        raise _bad(text, f"the fractions add up to {float(total):.10g}, not to 1")
    return shares


def split_records(source: Source, shares: dict[str, Fraction] | None, seed: int) -> list[Members]:
    """Return the splits, each shuffled by `seed`.

    With `shares` the splits are drawn; without, they are those of the source, or all records are `train`.
    Raises UsageError if both the source and the caller name splits, or if a split would be empty.
    """
    own = [part.split for part in source.parts if part.split]
    if own and shares:
        raise UsageError(
            f"The source has the split{'s' * (len(own) > 1)} {', '.join(own)} already.",
            hint="Run it without --split, or rename its folders or files: their names say the splits.",
        )
    if not shares:
        return _own(source.parts, seed)
    records, size = sum(part.records for part in source.parts), sum(part.size for part in source.parts)
    if source.labels is not None and records <= MOST_LABELS:
        drawn = _stratified(source.labels, shares, size, seed)
    else:
        drawn = _drawn(records, shares, size, seed)
    for members in drawn:
        if not len(members):
            raise UsageError(
                f"The split '{members.name}' would be empty: there are only {records} records.",
                hint="Give it a larger fraction, or more data.",
                split=members.name,
            )
    return drawn


def _own(parts: Sequence[Part], seed: int) -> list[Members]:
    splits, first = [], 0
    for part in parts:
        if part.records:
            name = part.split or "train"
            splits.append(Members(name, part.size, Permutation(part.records, seed, "shard"), first))
        first += part.records
    return sorted(splits, key=lambda members: (members.name != "train", members.name))


def _drawn(records: int, shares: dict[str, Fraction], size: int, seed: int) -> list[Members]:
    """One order of all records, and each split a run of it."""
    order, splits, before = Permutation(records, seed, "split"), [], Fraction()
    for name, share in shares.items():
        first, end = _bound(records, before), _bound(records, before + share)
        splits.append(
            Members(name, size * end // records - size * first // records, order, 0, first, end - first)
        )
        before += share
    return splits


def _stratified(
    labels: NDArray[np.integer], shares: dict[str, Fraction], size: int, seed: int
) -> list[Members]:
    """Deal the records, class after class: each class and all records keep the shares to within a record.

    The records of the first split are spread evenly over that order, those of the next over the rest.
    """
    order = Permutation(len(labels), seed, "split")(np.arange(len(labels)))
    pool = order[np.argsort(labels[order], kind="stable")].astype(np.int32)
    splits, remaining, before = [], Fraction(1), 0
    for name, share in shares.items():
        drawn = _spread(len(pool), share / remaining)
        chosen, pool = np.sort(pool[drawn]), pool[~drawn]
        remaining -= share
        part = size * (before + len(chosen)) // len(labels) - size * before // len(labels)
        before += len(chosen)
        splits.append(Members(name, part, Permutation(len(chosen), seed, "shard"), chosen))
    return splits


def _spread(count: int, share: Fraction) -> NDArray[np.bool_]:
    """Return which of `count` places are drawn: `share` of them, as evenly spaced as possible."""
    if share == 1:
        return np.ones(count, np.bool_)
    places = np.arange(count + 1, dtype=np.int64)  # at most 23 bits: with 38 more, no product leaves 64
    return np.diff((places * round(share * (1 << 38)) + (1 << 37)) >> 38) > 0


def _bound(records: int, share: Fraction) -> int:
    return int(records * share + Fraction(1, 2))


def _share(text: str, number: str) -> Fraction:
    if not _FRACTION.fullmatch(number):
        raise _bad(text, f"'{number}' is not a fraction")
    share = Fraction(number)
    if not 0 < share <= 1:
        raise _bad(text, f"'{number}' is not between 0 and 1")
    return share


def _bad(text: str, reason: str) -> UsageError:
    return UsageError(f"Cannot read the splits '{text}': {reason}.", hint=_HINT, splits=text)
