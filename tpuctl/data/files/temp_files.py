"""Scratch files: what has to be read at any place but cannot be, laid down once on the local disk.

They have no name: the system takes them back when the process ends, however it ends.
"""

from __future__ import annotations

import errno
import gzip
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from tpuctl.data.source import Indices
from tpuctl.errors import StateError, UsageError

_BLOCK = 1 << 20
_KEPT = 1 << 20
"""Offsets kept in memory before they are written away."""


class TempFile:
    """Bytes that are appended first and read at any place afterwards, by any number of threads."""

    def __init__(self) -> None:
        with _room():
            self._file: IO[bytes] = tempfile.TemporaryFile(prefix="tpuctl-", buffering=_BLOCK)  # noqa: SIM115
        self.size = 0

    def append(self, data: bytes) -> None:
        """Add to the end; raises StateError when the disk is full."""
        with _room():
            self._file.write(data)
        self.size += len(data)

    def finish(self) -> int:
        """End the appending, and return the descriptor to read from with `os.pread`."""
        with _room():
            self._file.flush()
        return self._file.fileno()

    def close(self) -> None:
        """Give the space back."""
        self._file.close()


class Offsets:
    """Where each record begins: 8 bytes each, in a scratch file once there are many. Ends with the end."""

    def __init__(self) -> None:
        self._recent: list[NDArray[np.int64]] = []
        self._held = 0
        self._count = 0
        self._scratch: TempFile | None = None
        self._descriptor = -1
        self._whole: NDArray[np.int64] = np.empty(0, np.int64)

    def __len__(self) -> int:
        """Number of records: one less than the offsets."""
        return self._count - 1

    def extend(self, offsets: NDArray[np.integer]) -> None:
        """Add offsets in their order; the last of all is the end of the last record."""
        self._recent.append(offsets.astype(np.int64))
        self._count += len(offsets)
        self._held += len(offsets)
        if self._held > _KEPT:
            self._write_away()

    def finish(self) -> None:
        """End the adding; to be called before `spans`."""
        if self._scratch:
            self._write_away()
            self._descriptor = self._scratch.finish()
        else:
            self._whole = np.concatenate([*self._recent, self._whole])
            self._recent.clear()

    def spans(self, indices: Indices) -> NDArray[np.int64]:
        """Return an array of (begin, end) of these records."""
        if not self._scratch:
            return np.stack((self._whole[indices], self._whole[indices + 1]), axis=1)
        pairs = b"".join([os.pread(self._descriptor, 16, 8 * index) for index in indices.tolist()])
        return np.frombuffer(pairs, np.int64).reshape(-1, 2)

    def close(self) -> None:
        """Give the space back."""
        if self._scratch:
            self._scratch.close()

    def _write_away(self) -> None:
        self._scratch = self._scratch or TempFile()
        self._scratch.append(b"".join([some.tobytes() for some in self._recent]))
        self._recent.clear()
        self._held = 0


def decompressed(path: Path) -> Iterator[bytes]:
    """Yield a gzip file's content in blocks; raises UsageError that names it where it is damaged."""
    try:
        with gzip.open(path, "rb") as stream:
            while block := stream.read(_BLOCK):
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(
            f"'{path.name}' is a damaged gzip file: {str(error) or 'it ends in the middle'}.",
            hint="Copy it again.",
            file=path.name,
        ) from error


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise StateError(
            f"There is no space left in '{tempfile.gettempdir()}' for what has to be unpacked.",
            hint="Free some, or name a larger disk: TMPDIR=/large tpuctl data upload ...",
            folder=tempfile.gettempdir(),
        ) from error
