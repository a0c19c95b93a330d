"""Caches a source that can only be streamed in a temporary file, to read records by index."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.temp_files import RecordOffsets, TempFile
from tpuctl.data.source import Indices, Observations, Records, Source, changed

_BATCH = 4096
"""Offsets held before they are stored."""


@dataclass(eq=False, kw_only=True)
class CachedSource(Source):
    """A source whose records come from `stream`, in the order of their indices; the first read calls it.

    That read writes all serialised examples to a temporary file, as large as the dataset; later reads use
    the file. So nothing is written where only a plan is needed.
    """

    stream: Callable[[], Records]
    """Yields as many records as `parts` say, or raises UsageError."""
    _lock: Lock = field(default_factory=Lock, init=False)
    _file: TempFile | None = field(default=None, init=False)
    _descriptor: int = field(default=-1, init=False)
    _offsets: RecordOffsets = field(default_factory=RecordOffsets, init=False)
    _bad_records: dict[int, BadRecord] = field(default_factory=dict, init=False)

    def read(self, indices: Indices, observations: Observations) -> Records:
        with self._lock:
            if self._file is None:
                self._fill()
        for index, (begin, end) in zip(indices.tolist(), self._offsets.spans(indices).tolist(), strict=True):
            yield self._bad_records.get(index) or os.pread(self._descriptor, end - begin, begin)

    def close(self) -> None:
        """Give the space of the temporary files back."""
        self._offsets.close()
        if self._file:
            self._file.close()

    def _fill(self) -> None:
        file = TempFile()
        try:
            self._write(file)
            self._descriptor = file.finish()
        except BaseException:
            file.close()
            raise
        self._file = file

    def _write(self, file: TempFile) -> None:
        begins, count = [0], 0
        for record in self.stream():
            if isinstance(record, BadRecord):
                self._bad_records[count] = record
            else:
                file.append(record)
            begins.append(file.size)
            count += 1
            if len(begins) >= _BATCH:
                self._offsets.extend(np.array(begins, np.int64))
                begins = []
        self._offsets.extend(np.array(begins, np.int64))
        listed = sum(part.records for part in self.parts)
        if count != listed:
            raise changed(self.kind, f"had {listed} records, and now {count}")
        self._offsets.finish()
