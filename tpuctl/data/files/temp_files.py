"""Creates temporary files on the local disk for unpacked data and offsets.

They have no name: the system removes them when the process ends, however it ends.

- Caches a source that can only be streamed in a temporary file, to read records by index.
"""

from __future__ import annotations

import errno
import gzip
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import IO

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.files.listing import read_spans
from tpuctl.data.options import BadRecord
from tpuctl.data.source import Blocks, Indices, Observations, Records, Source, changed, single_records
from tpuctl.data.tfrecord.frames import Frames
from tpuctl.data.tfrecord.framing import frame
from tpuctl.errors import StateError, UsageError

_BLOCK = 1 << 20
RESERVE = 1 << 30
"""Bytes that unpacked files leave free on the disk: a few kilobytes may unpack to more than it holds."""
_CHECKED = 1 << 26
"""Bytes written before the free space is looked at again."""
_MOST_HELD = 1 << 20
"""Offsets held in memory before they are written to the file."""


class TempFile:
    """Bytes that are appended first and read at any place afterwards, by any number of threads."""

    def __init__(self) -> None:
        with _disk_full_as_error():
            self._file: IO[bytes] = tempfile.TemporaryFile(prefix="tpuctl-", buffering=_BLOCK)  # noqa: SIM115
        self.size = 0
        self._reserve = min(RESERVE, self._free() // 2)
        self._checked = 0

    def append(self, data: bytes) -> None:
        """Add to the end; raises StateError when the disk is full, or nearly."""
        with _disk_full_as_error():
            self._file.write(data)
        self.size += len(data)
        if self.size - self._checked > _CHECKED:
            self._checked = self.size
            if self._free() < self._reserve:
                raise _no_space(f"what is unpacked would leave less than {self._reserve / 1e9:.1f} GB free")

    def finish(self) -> int:
        """Flush, and return the descriptor to read from with `os.pread`."""
        with _disk_full_as_error():
            self._file.flush()
        return self._file.fileno()

    def close(self) -> None:
        """Give the space back."""
        self._file.close()

    def _free(self) -> int:
        """Return the bytes that may still be written to the disk."""
        status = os.fstatvfs(self._file.fileno())
        return status.f_bavail * status.f_frsize


class RecordOffsets:
    """Where each record begins, and where the last one ends: 8 bytes each, in a temporary file once many."""

    def __init__(self) -> None:
        self._recent: list[NDArray[np.int64]] = []
        self._held = 0
        self._count = 0
        self._file: TempFile | None = None
        self._descriptor = -1
        self._in_memory: NDArray[np.int64] = np.empty(0, np.int64)

    def __len__(self) -> int:
        """Number of records: one less than the offsets."""
        return self._count - 1

    def extend(self, offsets: NDArray[np.integer]) -> None:
        """Add offsets in their order; the last of all is the end of the last record."""
        self._recent.append(offsets.astype(np.int64))
        self._count += len(offsets)
        self._held += len(offsets)
        if self._held > _MOST_HELD:
            self._flush()

    def finish(self) -> None:
        """To be called once, after the last `extend` and before `spans`."""
        if self._file:
            self._flush()
            self._descriptor = self._file.finish()
        else:
            self._in_memory = np.concatenate([*self._recent, self._in_memory])
            self._recent.clear()

    def spans(self, indices: Indices) -> NDArray[np.int64]:
        """Return an array of (begin, end) of these records."""
        if not self._file:
            return np.stack((self._in_memory[indices], self._in_memory[indices + 1]), axis=1)
        order = np.argsort(indices, kind="stable")
        places = np.stack((8 * indices[order], 8 * indices[order] + 16), axis=1)
        pairs = b"".join(read_spans(lambda at, size: os.pread(self._descriptor, size, at), places))
        spans = np.empty((len(order), 2), np.int64)
        spans[order] = np.frombuffer(pairs, np.int64).reshape(-1, 2)
        return spans

    def close(self) -> None:
        """Give the space back."""
        if self._file:
            self._file.close()

    def _flush(self) -> None:
        self._file = self._file or TempFile()
        self._file.append(b"".join([offsets.tobytes() for offsets in self._recent]))
        self._recent.clear()
        self._held = 0


def decompressed(packed: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield a gzip file's content in blocks and close it; raises UsageError that names a damaged one."""
    try:
        with packed, gzip.open(packed, "rb") as stream:
            while block := stream.read(_BLOCK):
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(
            f"'{name}' is a damaged gzip file: {str(error) or 'it ends in the middle'}.",
            hint="Copy it again.",
            file=name,
        ) from error


@contextmanager
def _disk_full_as_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise _no_space() from error


def _no_space(detail: str = "") -> StateError:
    folder = tempfile.gettempdir()
    return StateError(
        f"There is no space left in '{folder}' for unpacked files{f': {detail}' if detail else ''}.",
        hint="Free some, or name a larger disk: TMPDIR=/large tpuctl data upload ...",
        folder=folder,
    )


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
