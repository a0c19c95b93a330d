"""A source that can only be streamed, made to be read by index: its records go to a scratch file once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.temp_files import Offsets, TempFile
from tpuctl.data.schema.features import Feature
from tpuctl.data.source import Indices, Observations, Part, Records, changed

_BATCH = 4096
"""Records between two notes of where they begin."""


@dataclass
class CachedSource:
    """A source whose records come from `stream` in the order of their indices; that is called once, late.

    The first read writes all serialised examples to a scratch file, as large as the dataset; later ones find
    them there. So nothing is written where only a plan is asked for.
    """

    kind: str
    features: Mapping[str, Feature]
    supervised: tuple[str, str] | None
    parts: Sequence[Part]
    fingerprint: str
    stream: Callable[[], Iterator[bytes | BadRecord]]
    """Yields as many records as `parts` say, or raises UsageError."""
    stamped: bytes
    """What changes when a file of the source is written to."""
    recheck: Callable[[], None]
    """`Source.check`."""
    exact: bool = False
    labels: NDArray[np.integer] | None = None
    bad: Sequence[BadRecord] = ()
    _lock: Lock = field(default_factory=Lock, init=False)
    _scratch: TempFile | None = field(default=None, init=False)
    _descriptor: int = field(default=-1, init=False)
    _offsets: Offsets = field(default_factory=Offsets, init=False)
    _left_out: dict[int, BadRecord] = field(default_factory=dict, init=False)

    def read(self, indices: Indices, seen: Observations) -> Records:
        with self._lock:
            if self._scratch is None:
                self._spool()
        for index, (begin, end) in zip(indices.tolist(), self._offsets.spans(indices).tolist(), strict=True):
            yield self._left_out.get(index) or os.pread(self._descriptor, end - begin, begin)

    def stamp(self, indices: Indices) -> bytes:
        return self.stamped

    def check(self) -> None:
        self.recheck()

    def final_features(self, seen: Observations) -> Mapping[str, Feature]:
        return self.features

    def close(self) -> None:
        """Give the scratch files' space back."""
        self._offsets.close()
        if self._scratch:
            self._scratch.close()

    def _spool(self) -> None:
        scratch = TempFile()
        try:
            self._fill(scratch)
            self._descriptor = scratch.finish()
        except BaseException:
            scratch.close()
            raise
        self._scratch = scratch

    def _fill(self, scratch: TempFile) -> None:
        records, begins, count = self.stream(), [0], 0
        while batch := list(islice(records, _BATCH)):
            for one in batch:
                if isinstance(one, BadRecord):
                    self._left_out[count] = one
                else:
                    scratch.append(one)
                begins.append(scratch.size)
                count += 1
            self._offsets.extend(np.array(begins, np.int64))
            begins = []
        said = sum(part.records for part in self.parts)
        if count != said:
            raise changed(self.kind, f"had {said} records, and now {count}")
        self._offsets.finish()
