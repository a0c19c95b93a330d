"""Counts records that have the same content: within a split, and in two splits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.analysis.fingerprints import Fingerprints, first_of_each

_MOST_EXAMPLES = 5

Place = tuple[str, int]
"""A split, and the number of a record in it, counted from 0."""


@dataclass(frozen=True)
class Duplicates:
    """Records whose content another record has, too."""

    within: dict[str, int]
    """Split -> records more than there are contents in it."""
    leaks: dict[tuple[str, str], int]
    """Two splits -> contents that are in both."""
    examples: tuple[tuple[Place, ...], ...]
    """Places of the same content; those of several splits first."""
    alike: int
    """Pictures that look like another one, and are not the same."""


def find_duplicates(prints: Fingerprints, splits: list[str]) -> Duplicates:
    """Compare all records; their `origin` is the number of the split."""
    within: Counter[str] = Counter()
    leaks: Counter[tuple[str, str]] = Counter()
    examples: list[tuple[Place, ...]] = []
    for rows in prints.parts():
        for group in _groups(rows):
            places = [(splits[row["origin"]], int(row["index"])) for row in group]
            counts = Counter(split for split, _ in places)
            within.update({split: count - 1 for split, count in counts.items() if count > 1})
            leaks.update(combinations([split for split in splits if split in counts], 2))
            examples = _with_example(examples, places)
    return Duplicates(dict(within), dict(leaks), tuple(examples), _alike(prints))


def _groups(rows: NDArray[np.void]) -> list[NDArray[np.void]]:
    """Return the rows of each content that several records have."""
    begins = np.flatnonzero(first_of_each(rows))
    ends = np.append(begins[1:], len(rows))
    several = np.flatnonzero(ends - begins > 1)
    return [rows[begins[place] : ends[place]] for place in several.tolist()]


def _with_example(examples: list[tuple[Place, ...]], places: list[Place]) -> list[tuple[Place, ...]]:
    more = [*examples, tuple(places[:_MOST_EXAMPLES])]
    return sorted(more, key=lambda group: -len({split for split, _ in group}))[:_MOST_EXAMPLES]


def _alike(prints: Fingerprints) -> int:
    """Return how many pictures look like one of other content; what has one colour looks like nothing."""
    alike = 0
    for rows in prints.parts("looks"):
        rows = rows[rows["looks"] != 0]
        _, group = np.unique(rows["looks"], return_inverse=True)
        contents = np.unique(np.stack((group.astype(np.uint64), rows["key"])), axis=1)[0].astype(np.int64)
        counts = np.bincount(contents) if len(contents) else np.zeros(0, np.int64)
        alike += int(counts[counts > 1].sum())
    return alike
