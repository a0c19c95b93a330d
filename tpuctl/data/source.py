"""Defines the interface of all sources: records by index, known facts, and shared steps of readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.images.report import ImageReport
from tpuctl.data.options import BadRecord
from tpuctl.data.schema.features import Feature
from tpuctl.data.tfrecord.frames import Frames
from tpuctl.errors import UsageError

Records = Iterator[bytes | BadRecord]
"""Serialised examples, and a BadRecord in the place of each one that cannot be made."""
Blocks = Iterator[Frames | bytes | BadRecord]
"""The same, some of them many at once, in the frames of a TFRecord file."""
Indices = NDArray[np.int64]
ScanProgress = Callable[[int, int], None]
"""Called with the records or bytes scanned so far, and their total; the total is 0 while it is not known."""


class Part(NamedTuple):
    """Records that follow one another and are in the same split; empty name: the source has no splits."""

    split: str
    records: int
    size: int
    """Bytes of their serialised examples, framing not counted; see `Source.exact`."""


class Origin(Protocol):
    """Where the records of a source come from: listed files, class folders, or another source."""

    @property
    def bad(self) -> Sequence[BadRecord]:
        """Files skipped by the listing, which have no index: links that lead away, empty classes."""

    @property
    def fingerprint(self) -> str:
        """Hexadecimal; of names, sizes and order: a copy elsewhere has the same. For the manifest."""

    def stamp(self, indices: Indices) -> bytes:
        """Return bytes that differ when any of these records may have been written to: sizes and times."""

    def check(self) -> None:
        """Raise UsageError (`changed`) if a file is new, removed or modified since the listing; cheap."""


@dataclass(eq=False, kw_only=True)
class Source:
    """A dataset as the user has it, listed but not yet converted; memory does not grow with its size.

    Records have indices from 0 on: the same source gives the same order, wherever it lies. A reader
    implements `read`, and overrides `final_features` and `close` where it needs to.
    """

    kind: str
    """Key of its row in `sources.registry.READERS`."""
    origin: Origin
    features: Mapping[str, Feature]
    """The feature of each field, as far as known before the conversion; see `final_features`."""
    supervised: tuple[str, str] | None = None
    """Names of the input and the target feature."""
    labels: NDArray[np.integer] | None = None
    """Class of each record, if known before the conversion: drawn splits then keep each class's share."""
    exact: bool = False
    """Whether the sizes of `parts` are those the conversion will give (bad records aside)."""
    parts: Sequence[Part] = ()
    """The splits of the source in the order of the indices, which together hold all records."""
    images: ImageReport | None = None
    """What its images are, and what becomes of them; None for a source without any."""
    bad_images: Sequence[BadRecord] = ()
    """Images that are bad by their headers, the first of them: they have an index, and are read as bad."""
    also: tuple[str, ...] = ()
    """Kinds of files that lie there, too, and are not read: see `--format`."""
    bad: Sequence[BadRecord] = field(init=False)
    """`Origin.bad`, and records that a reader lost while listing."""
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        self.bad = self.origin.bad
        self.fingerprint = self.origin.fingerprint

    def read(self, indices: Indices, observations: Observations) -> Records:
        """Yield the serialised example of each index, or why the record is bad; called by many threads.

        `observations` collects what `final_features` needs. Raises UsageError (`changed`) when the source has
        changed since the listing; nothing is raised for a bad record.
        """
        raise NotImplementedError

    def blocks(self, indices: Indices, observations: Observations) -> Blocks:
        """As `read`; a reader that makes many records at once yields them together, which is faster."""
        return self.read(indices, observations)

    def sizes(self, indices: Indices) -> list[int]:
        """Return the bytes of the examples of these records, without bad ones."""
        records = self.read(indices, Observations())
        return [len(record) for record in records if isinstance(record, bytes)]

    def final_features(self, observations: Observations) -> Mapping[str, Feature]:
        """Return the features as they are after all records were read."""
        return self.features

    def stamp(self, indices: Indices) -> bytes:
        """As `Origin.stamp`."""
        return self.origin.stamp(indices)

    def check(self) -> None:
        """As `Origin.check`."""
        self.origin.check()

    @property
    def headers(self) -> bytes:
        """What was learnt of the headers of pictures, for readers of the same source elsewhere."""
        return b""

    def close(self) -> None:
        """Release files; called once, after the last read. By default no file is open between reads."""


def single_records(blocks: Blocks) -> Records:
    """Yield the records of each block one by one."""
    for block in blocks:
        if isinstance(block, Frames):
            yield from block.records()
        else:
            yield block


class Observations:
    """Under each name, the different values that were observed; two are enough to know that it varies."""

    def __init__(self, values: Mapping[str, Sequence[int | str]] | None = None) -> None:
        self._values = {name: list(observed) for name, observed in (values or {}).items()}

    def note(self, name: str, value: int | str) -> None:
        """Add one value."""
        observed = self._values.get(name)
        if observed is None:
            self._values[name] = [value]
        elif len(observed) < 2 and observed[0] != value:
            observed.append(value)

    def only(self, name: str) -> int | str | None:
        """Return the value that was always the same, None if it varied or there was none."""
        observed = self._values.get(name, ())
        return observed[0] if len(observed) == 1 else None

    def only_number(self, name: str) -> int | None:
        """Return the same where it is a whole number, else None."""
        value = self.only(name)
        return value if isinstance(value, int) else None

    def merge(self, other: Observations) -> None:
        """Add all values of another."""
        for name, values in other.values.items():
            for value in values:
                self.note(name, value)

    @property
    def values(self) -> dict[str, list[int | str]]:
        """All values by name, for JSON."""
        return self._values


class _Closable(Protocol):
    def close(self) -> None: ...


_C = TypeVar("_C", bound=_Closable)


@contextmanager
def closed_on_error(resource: _C) -> Iterator[_C]:
    """Close a resource if the block raises; otherwise the source created there closes it."""
    try:
        yield resource
    except BaseException:
        resource.close()
        raise


def evenly_spaced(count: int, most: int) -> Indices:
    """Return at most so many indices below `count`, from the first to the last: a sample of the records."""
    return np.unique(np.linspace(0, max(count - 1, 0), min(most, count)).astype(np.int64))


def supervised_pair(names: Sequence[str], target: str) -> tuple[str, str] | None:
    """Return the names of input and target where a record has these two fields alone."""
    others = [name for name in names if name != target]
    return (others[0], target) if target and len(others) == 1 else None


def changed(name: str, change: str) -> UsageError:
    """Return the error for a source that changed since its listing: `changed("a.png", "was removed")`."""
    return UsageError(
        f"The source changed during the conversion: '{name}' {change}.",
        hint="Nothing was published. Run it again when nothing writes to the source any more.",
        file=name,
    )
