"""Opens an archive and lists its members, once; a compressed tar archive is unpacked to a temporary file."""

from __future__ import annotations

import gzip
import io
import weakref
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

from tpuctl.data.archives.members import Members, damaged
from tpuctl.data.archives.ranges import TempRanges
from tpuctl.data.archives.suffixes import PACKED_TAR, ZIP, ZSTANDARD
from tpuctl.data.archives.tar_members import tar_members
from tpuctl.data.archives.zip_members import zip_members
from tpuctl.data.files.temp_files import TempFile
from tpuctl.data.source import ScanProgress, closed_on_error
from tpuctl.data.trees.tree import ListedFile, Ranges, RangeStream, Tree
from tpuctl.errors import ConfigError, UsageError

_BLOCK = 1 << 20
_HEADERS = 1 << 16
"""Bytes that are read at once while headers are read."""
_REQUESTS = 16
"""Members of an archive in a bucket that are fetched at once."""
_RATIO, _LEAST = 250, 1 << 30
"""How many times its own size an archive may unpack to, and the bytes that it always may."""


class OpenArchive:
    """The members of an archive, and its bytes, which are closed when nothing refers to it any more."""

    def __init__(self, members: Members, ranges: Ranges, *, zipped: bool, remote: bool) -> None:
        self.members = members
        self.ranges = ranges
        self.zipped = zipped
        self.pool = ThreadPoolExecutor(_REQUESTS, thread_name_prefix="member") if remote else None
        """Threads that fetch members ahead where each is a request."""
        weakref.finalize(self, ranges.close)


def opened_archive(outer: Tree, file: ListedFile, progress: ScanProgress) -> OpenArchive:
    """Return the archive; raises UsageError for a damaged one, and OSError."""
    name = file.path.rpartition("/")[2]
    if name.lower().endswith(PACKED_TAR):
        temp = _unpacked(outer, file, name, progress)
        with closed_on_error(temp):
            ranges: Ranges = TempRanges(temp)
            members = _listed(ranges, temp.size, name, zipped=False)
            return OpenArchive(members, ranges, zipped=False, remote=False)
    zipped = name.lower().endswith(ZIP)
    ranges = outer.open(file)
    with closed_on_error(ranges):
        members = _listed(ranges, file.size, name, zipped=zipped)
        return OpenArchive(members, ranges, zipped=zipped, remote=outer.is_remote)


def _listed(ranges: Ranges, size: int, name: str, *, zipped: bool) -> Members:
    stream = io.BufferedReader(RangeStream(_Borrowed(ranges), size), _HEADERS)
    return (zip_members if zipped else tar_members)(stream, size, name)


class _Borrowed:
    """Ranges that stay open when a stream of them is closed."""

    def __init__(self, ranges: Ranges) -> None:
        self.read = ranges.read

    def close(self) -> None:
        """Leave them open."""


def _unpacked(outer: Tree, file: ListedFile, name: str, progress: ScanProgress) -> TempFile:
    """Return the content of a gzip file; raises UsageError for damage, or for far too much of it."""
    temp, most = TempFile(), max(_RATIO * file.size, _LEAST)
    with closed_on_error(temp), outer.stream(file) as stream:
        for block in _blocks(stream, name):
            temp.append(block)
            progress(temp.size, 0)
            if temp.size > most:
                raise UsageError(
                    f"'{name}' unpacks to more than {_RATIO} times its size.",
                    hint="Unpack it yourself if it is right.",
                    file=name,
                )
    return temp


def _blocks(stream: IO[bytes], name: str) -> Iterator[bytes]:
    try:
        with _zstandard(stream) if name.lower().endswith(ZSTANDARD) else gzip.open(stream) as content:
            while block := content.read(_BLOCK):
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(name, str(error).rstrip(".") or "it ends in the middle") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise damaged(name, "it cannot be unpacked") from error  # Arrow's own errors have no number


def _zstandard(stream: IO[bytes]) -> Any:
    try:
        import pyarrow  # noqa: PLC0415  only for Zstandard, which the standard library has from Python 3.14 on
    except ImportError as error:
        raise ConfigError(
            "Reading .tar.zst needs pyarrow, which is not installed.",
            hint="Install it: pip install pyarrow.",
        ) from error
    return pyarrow.CompressedInputStream(pyarrow.PythonFile(stream, "r"), "zstd")
