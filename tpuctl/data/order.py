"""Decides which split each record is in, and its position there.

- Computes a seeded permutation without storing it, for any number of records.
- Parses the shares of splits, and lists the records of each split in the order of writing.
- Draws a random sample of records that are read in their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.schema.classes import MOST_LABELS
from tpuctl.data.source import Indices, Part, Source
from tpuctl.errors import UsageError

_ROUNDS = 6
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
"""Those of splitmix64's finalizer (Steele, Lea and Flood, 2014)."""


class Permutation:
    """An order of `range(size)` that depends on its arguments alone, on no library's generator.

    A Feistel network over the next power of two; a result outside is permuted again until it falls inside
    (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002): less than twice on average.
    """

    def __init__(self, size: int, seed: int, purpose: str) -> None:
        self.size = size
        bits = max(2, (size - 1).bit_length())
        self._widths = (bits // 2, bits - bits // 2)
        digest = blake2b(f"{purpose}:{seed}:{size}".encode(), digest_size=8 * _ROUNDS).digest()
        self._keys = np.frombuffer(digest, "<u8").astype(np.uint64)

    def __call__(self, positions: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the number at each of these positions."""
        places = self._once(positions.astype(np.uint64))
        outside = np.flatnonzero(places >= np.uint64(self.size))
        while len(outside):
            again = self._once(places[outside])
            places[outside] = again
            outside = outside[again >= np.uint64(self.size)]
        return places.astype(np.int64)

    def _once(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        low, high = self._widths
        right_half, left_half = values & _mask(low), values >> np.uint64(low)
        for key in self._keys:
            left_half, right_half = right_half, left_half ^ (_mixed(right_half, key) & _mask(high))
            low, high = high, low
        joined: NDArray[np.uint64] = (left_half << np.uint64(low)) | right_half
        return joined


def _mixed(values: NDArray[np.uint64], key: np.uint64) -> NDArray[np.uint64]:
    mixed: NDArray[np.uint64] = (values + key) * _MULTIPLIERS[0]
    mixed ^= mixed >> np.uint64(31)
    mixed *= _MULTIPLIERS[1]
    mixed ^= mixed >> np.uint64(32)
    return mixed


def _mask(bits: int) -> np.uint64:
    mask: np.uint64 = np.uint64((1 << bits) - 1)
    return mask


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


@dataclass(frozen=True)
class Sample:
    """Which records are read."""

    places: NDArray[np.int64] | None
    """In their order; None for all."""

    def place(self, number: int) -> int:
        """Return the place of the record that is the `number`th of the sample."""
        return number if self.places is None else int(self.places[number])

    def within(self, first: int, count: int) -> NDArray[np.int64]:
        """Return which of so many records from `first` on are in the sample, counted from 0."""
        if self.places is None:
            return np.arange(count)
        bounds = np.searchsorted(self.places, (first, first + count))
        return self.places[bounds[0] : bounds[1]] - first

    def filter(self, records: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the records of the sample; after the last of them no more are read."""
        if self.places is None:
            yield from records
            return
        upcoming = iter(self.places.tolist())
        next_place = next(upcoming, None)
        for place, record in enumerate(records):
            if place == next_place:
                yield record
                next_place = next(upcoming, None)
            if next_place is None:
                return


def sample_of(records: int, most: int | None, seed: int) -> Sample:
    """Return a sample of at most so many of the records; None: all."""
    if most is None or most >= records:
        return Sample(None)
    return Sample(np.sort(Permutation(records, seed, "sample")(np.arange(most))))
