"""What every reader hands on: records by their index, and what is known of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.schema.features import Feature
from tpuctl.errors import UsageError

Records = Iterator[bytes | BadRecord]
"""Serialised examples, and a BadRecord in the place of each one that cannot be made."""
Indices = NDArray[np.int64]
ScanProgress = Callable[[int, int], None]
"""Called with what is done and what there is; the latter is 0 while it is not known."""


class Part(NamedTuple):
    """Records that follow one another and are in the same split; empty name: the source has no splits."""

    split: str
    records: int
    size: int
    """Bytes of their serialised examples, framing not counted; see `Source.exact`."""


class Source(Protocol):
    """A dataset as the user has it, listed but not yet converted; memory is flat whatever its size.

    Records have indices from 0 on: the same source gives the same order, wherever it lies.
    """

    @property
    def kind(self) -> str:
        """Key of its row in `sources.registry.READERS`."""

    @property
    def features(self) -> Mapping[str, Feature]:
        """What each field of a record is, as far as known before the conversion; see `refined`."""

    @property
    def supervised(self) -> tuple[str, str] | None:
        """Names of the input and the target feature."""

    @property
    def parts(self) -> Sequence[Part]:
        """The splits of the source in the order of the indices; their records add up to all there are."""

    @property
    def exact(self) -> bool:
        """Whether the sizes of `parts` are those the conversion will give (bad records aside)."""

    @property
    def labels(self) -> NDArray[np.integer] | None:
        """Class of each record, where it is known at once: drawn splits then keep each class's share."""

    @property
    def bad(self) -> Sequence[BadRecord]:
        """What was left out of the listing, and so has no index: links that lead away, empty classes."""

    @property
    def fingerprint(self) -> str:
        """Hexadecimal; of names, sizes and order: a copy elsewhere has the same. For the manifest."""

    def read(self, indices: Indices, seen: Observations) -> Records:
        """Yield the serialised example of each index in turn, or why there is none; called by many threads.

        What `refined` must know is noted in `seen`. Raises UsageError (`changed`) when the source is not
        what it was; nothing is raised for a bad record.
        """

    def stamp(self, indices: Indices) -> bytes:
        """Return bytes that differ when any of these records may have been written to: sizes and times."""

    def check(self) -> None:
        """Raise UsageError (`changed`) if anything came, went or was written to since the listing; cheap."""

    def final_features(self, seen: Observations) -> Mapping[str, Feature]:
        """Return the features as they are after all records were read."""

    def close(self) -> None:
        """Release files; called once, after the last read."""


class Observations:
    """Under each name, the different values that were seen; two are enough to know that it varies."""

    def __init__(self, values: Mapping[str, Sequence[int | str]] | None = None) -> None:
        self._values = {name: list(some) for name, some in (values or {}).items()}

    def note(self, name: str, value: int | str) -> None:
        """Take one more value."""
        known = self._values.get(name)
        if known is None:
            self._values[name] = [value]
        elif len(known) < 2 and known[0] != value:
            known.append(value)

    def only(self, name: str) -> int | str | None:
        """Return the value that was always the same, None if it varied or there was none."""
        known = self._values.get(name, ())
        return known[0] if len(known) == 1 else None

    def merge(self, other: Observations) -> None:
        """Take all values of another."""
        for name, values in other.values.items():
            for value in values:
                self.note(name, value)

    @property
    def values(self) -> dict[str, list[int | str]]:
        """What was seen, for JSON."""
        return self._values


def changed(name: str, what: str) -> UsageError:
    """Return the error for a source that did not stay as it was: `changed("a.png", "has gone")`."""
    return UsageError(
        f"The source changed during the conversion: '{name}' {what}.",
        hint="Nothing was published. Run it again when nothing writes to the source any more.",
        file=name,
    )
