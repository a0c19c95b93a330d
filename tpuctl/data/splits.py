"""Splits drawn from records that have none: stratified by class, the same for the same seed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from math import lcm

from tpuctl.data.source import Record, shuffled
from tpuctl.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_FRACTION = re.compile(r"\d{0,3}\.\d{1,9}|\d{1,3}|\d{1,9}/[1-9]\d{0,8}")
_RESERVED = ("all",)
_HINT = "Write it as --split train=0.8,test=0.2."


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
            raise _bad(text, f"'{name}' is there twice")
        shares[name] = _share(text, number)
    total = sum(shares.values())
    if total != 1:
        raise _bad(text, f"the fractions add up to {float(total):.10g}, not to 1")
    return shares


def split_records(
    records: Sequence[Record], shares: dict[str, Fraction] | None, seed: int
) -> dict[str, list[Record]]:
    """Return the records of each split.

    With `shares` the splits are drawn; without, they are those of the source, or all is `train`. Raises
    UsageError if both the source and the caller name splits, or if a split would be empty.
    """
    own = sorted({record.split for record in records} - {""})
    if own and shares:
        raise UsageError(
            f"The source has the split folders {', '.join(own)} already.",
            hint="Leave --split out, or give a source without split folders.",
        )
    if not shares:
        return _by_own_split(records)
    drawn = _draw(records, shares, seed)
    for name, chosen in drawn.items():
        if not chosen:
            raise UsageError(
                f"The split '{name}' would be empty: there are only {len(records)} records.",
                hint="Give it a larger fraction, or more data.",
                split=name,
            )
    return drawn


def _by_own_split(records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.split or "train", []).append(record)
    return {name: found[name] for name in sorted(found, key=lambda name: (name != "train", name))}


def _draw(records: Sequence[Record], shares: dict[str, Fraction], seed: int) -> dict[str, list[Record]]:
    """Deal the records, class after class, each to the split that is furthest behind its share.

    So each class keeps the shares to within a record or so, and so does the whole, however small a class is.
    """
    denominator = lcm(*(share.denominator for share in shares.values()))
    weights = {name: int(share * denominator) for name, share in shares.items()}
    drawn: dict[str, list[Record]] = {name: [] for name in shares}
    by_class = sorted(shuffled(records, seed, "split"), key=lambda record: record.label)
    for count, record in enumerate(by_class, start=1):
        due = {name: weight * count - len(drawn[name]) * denominator for name, weight in weights.items()}
        drawn[max(due, key=due.__getitem__)].append(record)
    return drawn


def _share(text: str, number: str) -> Fraction:
    if not _FRACTION.fullmatch(number):
        raise _bad(text, f"'{number}' is not a fraction")
    share = Fraction(number)
    if not 0 < share <= 1:
        raise _bad(text, f"'{number}' is not between 0 and 1")
    return share


def _bad(text: str, reason: str) -> UsageError:
    return UsageError(f"Cannot read the splits '{text}': {reason}.", hint=_HINT, splits=text)
