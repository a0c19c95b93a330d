"""Caches a source that can only be streamed in a temporary file, to read records by index."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from tpuctl.data.bad_records import BadRecord
from tpuctl.data.files.spans import read_spans
from tpuctl.data.files.temp_files import RecordOffsets, TempFile
from tpuctl.data.source import Blocks, Indices, Observations, Records, Source, changed, single_records
from tpuctl.data.tfrecord.frames import Frames
from tpuctl.data.tfrecord.framing import frame

_BATCH = 4096
"""Offsets held before they are stored."""
_PAGE = 4 << 20
"""Bytes of records that are read together, besides a last one that is longer."""


@dataclass(eq=False, kw_only=True)
class CachedSource(Source):
    """A source whose records come from `stream`, in the order of their indices; the first read calls it.

    That read writes all records, framed, to a temporary file, as large as the dataset; later reads use the
    file. So nothing is written where only a plan is needed.
    """

    stream: Callable[[], Blocks]
    """Yields as many records as `parts` say, or raises UsageError."""
    _lock: Lock = field(default_factory=Lock, init=False)
    _file: TempFile | None = field(default=None, init=False)
    _descriptor: int = field(default=-1, init=False)
    _offsets: RecordOffsets = field(default_factory=RecordOffsets, init=False)
    _bad_records: dict[int, BadRecord] = field(default_factory=dict, init=False)
    _failure: Exception | None = field(default=None, init=False)
    """Why the first read failed: those of other shards, which wait for it, fail as well."""

    def read(self, indices: Indices, observations: Observations) -> Records:
        return single_records(self.blocks(indices, observations))

    def blocks(self, indices: Indices, observations: Observations) -> Blocks:
        with self._lock:
            if self._failure:
                raise self._failure
            if self._file is None:
                self._fill()
        spans = self._offsets.spans(indices)
        size = np.cumsum(spans[:, 1] - spans[:, 0])
        cuts = np.flatnonzero(np.diff(size // _PAGE)) + 1
        for chosen in np.split(np.arange(len(indices)), cuts):
            frames = self._frames(spans[chosen])
            bad = (
                [self._bad_records.get(index) for index in indices[chosen].tolist()]
                if self._bad_records
                else []
            )
            if any(bad):
                for record, content in zip(bad, frames, strict=True):
                    yield record or Frames.joined([content])
            elif frames:
                yield Frames.joined(frames)

    def close(self) -> None:
        """Give the space of the temporary files back."""
        self._offsets.close()
        if self._file:
            self._file.close()

    def _frames(self, spans: Indices) -> list[bytes]:
        order = np.argsort(spans[:, 0], kind="stable")
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        parts = read_spans(lambda at, size: os.pread(self._descriptor, size, at), spans[order])
        return [parts[place] for place in places.tolist()]

    def _fill(self) -> None:
        file = TempFile()
        try:
            self._write(file)
            self._descriptor = file.finish()
        except BaseException as error:
            file.close()
            self._failure = error if isinstance(error, Exception) else None
            raise
        self._file = file

    def _write(self, file: TempFile) -> None:
        offsets = self._offsets
        offsets.extend(np.zeros(1, np.int64))
        for ends in self._append_all(file):
            offsets.extend(ends)
        listed = sum(part.records for part in self.parts)
        if len(offsets) != listed:
            raise changed(self.kind, f"had {listed} records, and now {len(offsets)}")
        offsets.finish()

    def _append_all(self, file: TempFile) -> Iterator[Indices]:
        """Write all records; yield where each ends, many at a time."""
        ends: list[int] = []
        count = 0
        for block in self.stream():
            if isinstance(block, Frames):
                yield np.array(ends, np.int64)
                yield file.size + block.ends
                file.append(block.data)
                ends, count = [], count + len(block)
                continue
            if isinstance(block, BadRecord):
                self._bad_records[count] = block
            else:
                file.append(frame(block))
            ends.append(file.size)
            count += 1
            if len(ends) >= _BATCH:
                yield np.array(ends, np.int64)
                ends = []
        yield np.array(ends, np.int64)
