"""Compares the records of two datasets by their content.

- Stores a hash of every record's content, and finds the records that have the same.

  The hashes lie in a temporary file, and are compared a part at a time: memory does not grow with the
  records.
- Counts records that have the same content: within a split, and in two splits.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import combinations, zip_longest
from operator import add

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.temp_files import TempFile
from tpuctl.data.schema.features import Feature, Image, Kind, Label
from tpuctl.data.tfrecord.column_decoding import Columns
from tpuctl.data.tfrecord.example_decoding import Values, decode
from tpuctl.data.tfrecord.example_encoding import entry_of

ROW = np.dtype(
    [("key", "<u8"), ("more", "<u8"), ("rest", "<u8"), ("looks", "<u8"), ("origin", "<u4"), ("index", "<u4")]
)
"""128 bits of the content, 64 of all values, the look of a picture; which split, and which record of it."""
_PART = 1 << 20
"""Rows compared at once, about."""
_HELD = 4096


class Fingerprints:
    """The hashes of records, in the order in which they are added."""

    def __init__(self) -> None:
        self._file = TempFile()
        self._recent: list[tuple[int, int, int, int, int, int]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, content: tuple[int, int, int], looks: int, origin: int, index: int) -> None:
        """Add a record: what `fingerprint` returns, and where it is."""
        self._recent.append((*content, looks, origin, index))
        self._count += 1
        if len(self._recent) >= _HELD:
            self._flush()

    def add_all(self, contents: NDArray[np.uint64], origin: int, indices: NDArray[np.int64]) -> None:
        """Add records without pictures: what `column_fingerprints` returns, and where they are."""
        self._flush()
        rows = np.zeros(len(contents), ROW)
        rows["key"], rows["more"], rows["rest"] = contents.T
        rows["origin"], rows["index"] = origin, indices
        self._file.append(rows.tobytes())
        self._count += len(rows)

    @property
    def part_count(self) -> int:
        """In how many parts the rows are compared."""
        return max(-(-self._count // _PART), 1)

    def parts(self, by: str = "key", count: int | None = None) -> Iterator[NDArray[np.void]]:
        """Yield all rows, those with an equal field `by` in the same part, sorted by it."""
        self._flush()
        descriptor = self._file.finish()
        count = count or self.part_count
        for part in range(count):
            chosen = [rows[rows[by] % count == part] for rows in self._blocks(descriptor)]
            rows = np.concatenate(chosen) if chosen else np.empty(0, ROW)
            yield rows[np.lexsort((rows["index"], rows["origin"], rows["more"], rows[by]))]

    def close(self) -> None:
        """Give the space back."""
        self._file.close()

    def _blocks(self, descriptor: int) -> Iterator[NDArray[np.void]]:
        size = _PART // 4 * ROW.itemsize
        for at in range(0, self._file.size, size):
            yield np.frombuffer(os.pread(descriptor, size, at), ROW)

    def _flush(self) -> None:
        self._file.append(np.array(self._recent, ROW).tobytes())
        self._recent.clear()


def fingerprint(values: Mapping[str, Values], features: Mapping[str, Feature]) -> tuple[int, int, int]:
    """Return 128 bits of a record's content, and 64 of all its values.

    The content is the pictures; without pictures, all but the labels.
    """
    pictures = [name for name, feature in features.items() if isinstance(feature, Image) and name in values]
    others = [name for name in values if not isinstance(features.get(name), Label)]
    names = pictures or others or list(values)
    content = _hash(values, names)
    rest = [name for name in values if name not in names]
    whole = _hash(values, rest, content) if rest else content
    return (
        int.from_bytes(content[:8], "little"),
        int.from_bytes(content[8:], "little"),
        int.from_bytes(whole[:8], "little"),
    )


def column_fingerprints(data: bytes, columns: Columns, features: Mapping[str, Feature]) -> NDArray[np.uint64]:
    """Return the same three numbers of many records whose columns are in some bytes, without pictures."""
    bounds = [places.tolist() for places in columns.bounds]
    spans = {name: (bounds[place], bounds[place + 1]) for place, name in enumerate(columns.values)}
    names = [name for name in spans if not isinstance(features[name], Label)] or list(spans)
    rest = [name for name in spans if name not in names]
    contents = _column_hashes(data, [spans[name] for name in names], None)
    both = np.frombuffer(b"".join(contents), "<u8").reshape(-1, 2)
    whole = _column_hashes(data, [spans[name] for name in rest], contents) if rest else contents
    return np.column_stack((both, np.frombuffer(b"".join(whole), "<u8")[::2]))


def _column_hashes(
    data: bytes, spans: Sequence[tuple[Sequence[int], Sequence[int]]], before: Sequence[bytes] | None
) -> list[bytes]:
    """Return the hash of each record's entries, which stand behind what was `before`."""
    joined = list[tuple[Sequence[int], Sequence[int]]]()
    for begins, ends in spans:
        if joined and joined[-1][1] is begins:
            joined[-1] = joined[-1][0], ends
        else:
            joined.append((begins, ends))
    parts: Iterable[bytes] = (data[begin:end] for begin, end in zip(*joined[0], strict=True))
    for begins, ends in joined[1:]:
        more = zip(parts, begins, ends, strict=True)
        parts = (part + data[begin:end] for part, begin, end in more)
    if before is not None:
        parts = map(add, before, parts)
    return [blake2b(part, digest_size=16).digest() for part in parts]


def hashes(record: bytes, features: Mapping[str, Feature]) -> tuple[int, int, int]:
    """Return the same of a serialised record; raises UsageError if it is no Example."""
    return fingerprint(decode(record), features)


def first_of_each(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which of the sorted rows begin a group of the same content."""
    first = np.ones(len(rows), np.bool_)
    first[1:] = (rows["key"][1:] != rows["key"][:-1]) | (rows["more"][1:] != rows["more"][:-1])
    return first


def _hash(values: Mapping[str, Values], names: list[str], before: bytes = b"") -> bytes:
    digest = blake2b(before, digest_size=16)
    for name in sorted(names):
        first = next(iter(values[name]), b"")
        kind: Kind = "bytes" if isinstance(first, bytes) else "int64" if isinstance(first, int) else "float"
        digest.update(_entry(name, kind)(values[name]))
    return digest.digest()


@lru_cache(1 << 16)
def _entry(name: str, kind: Kind) -> Callable[[Values], bytes]:
    """Return what encodes a field, as `ColumnEncoder` does: `column_fingerprints` are of the same bytes."""
    return entry_of(name, kind)


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
