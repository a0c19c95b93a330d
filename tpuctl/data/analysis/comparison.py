"""Compares the records of two datasets by their content."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.analysis.fingerprints import ROW, Fingerprints, first_of_each

_MOST_EXAMPLES = 5

Place = tuple[str, int]
"""A split, and the number of a record in it, counted from 0."""


@dataclass(frozen=True)
class Comparison:
    """The records of two datasets, A and B; of several with the same content, as many as both have match."""

    same: int
    """Records with the same values in the same split."""
    only_a: int
    only_b: int
    moved: int
    """Records of both that are in different splits."""
    changed: int
    """Records of both whose content is the same, and labels or other values are not."""
    examples_a: tuple[Place, ...]
    examples_b: tuple[Place, ...]
    examples_moved: tuple[tuple[Place, Place], ...]
    examples_changed: tuple[tuple[Place, Place], ...]


@dataclass
class _Counts:
    """What is counted of a comparison."""

    same: int = 0
    only_a: int = 0
    only_b: int = 0
    moved: int = 0
    changed: int = 0
    examples_a: list[Place] = field(default_factory=list)
    examples_b: list[Place] = field(default_factory=list)
    examples_moved: list[tuple[Place, Place]] = field(default_factory=list)
    examples_changed: list[tuple[Place, Place]] = field(default_factory=list)

    def comparison(self) -> Comparison:
        return Comparison(
            same=self.same,
            only_a=self.only_a,
            only_b=self.only_b,
            moved=self.moved,
            changed=self.changed,
            examples_a=tuple(self.examples_a),
            examples_b=tuple(self.examples_b),
            examples_moved=tuple(self.examples_moved),
            examples_changed=tuple(self.examples_changed),
        )


def compare(a: Fingerprints, b: Fingerprints, splits: list[str]) -> Comparison:
    """Return in what the records differ; the `origin` of each is the number of its split in `splits`."""
    result = _Counts()
    for of_a, of_b in _shared_parts(a, b):
        rows = np.concatenate((of_a, of_b))
        side = np.repeat([0, 1], [len(of_a), len(of_b)])
        order = np.lexsort((rows["index"], rows["origin"], rows["rest"], side, rows["more"], rows["key"]))
        rows, side = rows[order], side[order]
        begins = np.flatnonzero(first_of_each(rows))
        simple = _is_pair(rows, side, begins)
        result.same += int(simple.sum())
        for number in np.flatnonzero(~simple).tolist():
            end = begins[number + 1] if number + 1 < len(begins) else len(rows)
            chosen = slice(begins[number], end)
            _add(result, rows[chosen][side[chosen] == 0], rows[chosen][side[chosen] == 1], splits)
    return result.comparison()


def _shared_parts(a: Fingerprints, b: Fingerprints) -> Iterator[tuple[NDArray[np.void], NDArray[np.void]]]:
    count = max(a.part_count, b.part_count)
    empty = np.empty(0, ROW)
    yield from zip_longest(a.parts(count=count), b.parts(count=count), fillvalue=empty)


def _is_pair(rows: NDArray[np.void], side: NDArray[np.int64], begins: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which contents are one record of each dataset, with the same values in the same split."""
    sizes = np.diff(np.append(begins, len(rows)))
    second = np.minimum(begins + 1, len(rows) - 1)
    both = (sizes == 2) & (side[begins] != side[second])
    pair: NDArray[np.bool_] = (
        both
        & (rows["rest"][begins] == rows["rest"][second])
        & (rows["origin"][begins] == rows["origin"][second])
    )
    return pair


def _add(result: _Counts, a: NDArray[np.void], b: NDArray[np.void], splits: list[str]) -> None:
    """Add the records of one content: match those that are the same, then those nearly so."""
    for fields in (("rest", "origin"), ("rest",), ("origin",), ()):
        a, b, pairs = _matched(a, b, fields)
        for first, second in pairs:
            places = (_place(first, splits), _place(second, splits))
            moved, changed = first["origin"] != second["origin"], first["rest"] != second["rest"]
            result.same += not moved and not changed
            if moved:
                result.moved += 1
                result.examples_moved = [*result.examples_moved, places][:_MOST_EXAMPLES]
            if changed:
                result.changed += 1
                result.examples_changed = [*result.examples_changed, places][:_MOST_EXAMPLES]
    result.only_a += len(a)
    result.only_b += len(b)
    result.examples_a = [*result.examples_a, *(_place(row, splits) for row in a)][:_MOST_EXAMPLES]
    result.examples_b = [*result.examples_b, *(_place(row, splits) for row in b)][:_MOST_EXAMPLES]


def _matched(
    a: NDArray[np.void], b: NDArray[np.void], fields: tuple[str, ...]
) -> tuple[NDArray[np.void], NDArray[np.void], list[tuple[np.void, np.void]]]:
    """Pair records whose fields are equal; return the others, and the pairs."""
    waiting: dict[tuple[int, ...], list[int]] = {}
    for place in reversed(range(len(b))):
        waiting.setdefault(tuple(int(b[place][name]) for name in fields), []).append(place)
    pairs, others = [], []
    used = np.zeros(len(b), np.bool_)
    for place, row in enumerate(a):
        candidates = waiting.get(tuple(int(row[name]) for name in fields), [])
        if candidates:
            match = candidates.pop()
            used[match] = True
            pairs.append((row, b[match]))
        else:
            others.append(place)
    return a[others], b[~used], pairs


def _place(row: np.void, splits: list[str]) -> Place:
    return splits[int(row["origin"])], int(row["index"])
