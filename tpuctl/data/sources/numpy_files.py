"""Reads NumPy's .npy and .npz files; never unpickles anything."""

from __future__ import annotations

import errno
import io
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from typing import IO

import numpy as np

from tpuctl.data.arrays import Array, ArraySource, NamedArray, pair, read_arrays
from tpuctl.data.files.rows import BLOCK, Contents
from tpuctl.data.files.source_files import list_files
from tpuctl.data.files.temp_files import TempFile
from tpuctl.data.options import Options
from tpuctl.data.source import ScanProgress, closed_on_error
from tpuctl.data.sources.names import NUMPY
from tpuctl.data.tfrecord.framing import LONGEST
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

_LONGEST_HEADER = 1 << 16
_WRONG_HEADERS = (
    ValueError, TypeError, EOFError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError
)  # fmt: skip
"""What NumPy raises for a header that is none: it is a Python literal."""


def read_numpy(tree: Tree, options: Options, progress: ScanProgress) -> ArraySource:
    """Return the arrays of the only file of a tree, or of all NumPy files below it; raises UsageError."""
    with closed_on_error(Contents(list_files(tree, NUMPY), progress)) as contents:
        blocks = pair(_arrays(contents, progress))
        if not blocks:
            raise UsageError(f"'{tree.name}' has no arrays.", hint="numpy.savez writes some.")
        return read_arrays("numpy", contents, blocks, options, progress)


def _arrays(contents: Contents, progress: ScanProgress) -> Iterator[NamedArray]:
    files = contents.files
    for number in range(len(files)):
        name = files.name(number)
        folder, _, last = name.rpartition("/")
        if name.lower().endswith(".npz"):
            for member, array in _members(contents, number, progress):
                yield NamedArray(name, files.split(number), member, array)
        else:
            yield NamedArray(folder, files.split(number), last, _plain(contents, number))


def _plain(contents: Contents, file: int) -> Array:
    name = contents.files.name(file)
    start = contents.read(file, 0, _LONGEST_HEADER)
    offset, dtype, shape = _header(io.BytesIO(start), name)
    return _array(
        name, file, dtype, shape, contents.sizes[file] - offset, partial(_shifted, contents, file, offset)
    )


def _members(contents: Contents, file: int, progress: ScanProgress) -> Iterator[tuple[str, Array]]:
    """Yield the arrays in an archive, by name; each is read to its end once, which verifies its checksum."""
    name = contents.files.name(file)
    try:
        with contents.files.stream(file) as packed, zipfile.ZipFile(packed) as archive:
            for member in archive.infolist():
                title = member.filename.removesuffix(".npy")
                with archive.open(member) as stream:
                    yield title, _member(contents, file, member, stream, f"{name}: {title}", progress)
    except (zipfile.BadZipFile, EOFError, zlib.error, struct.error, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # of a place before the beginning
            raise
        raise _damaged(name, str(error) or "it ends in the middle") from error
    except (RuntimeError, NotImplementedError) as error:
        raise _damaged(name, f"it is encrypted, or packed in another way: {error}") from error


def _member(
    contents: Contents,
    file: int,
    member: zipfile.ZipInfo,
    stream: IO[bytes],
    where: str,
    progress: ScanProgress,
) -> Array:
    start = stream.read(_LONGEST_HEADER)
    offset, dtype, shape = _header(io.BytesIO(start), where)
    if member.compress_type == zipfile.ZIP_STORED:
        _read_through(stream, None, member.file_size, progress)
        begin = _content_begins(contents, file, member) + offset
        return _array(
            where, file, dtype, shape, member.file_size - offset, partial(_shifted, contents, file, begin)
        )
    temp_file = contents.temp_file()
    begin = temp_file.size
    temp_file.append(start[offset:])
    _read_through(stream, temp_file, member.file_size, progress)
    read = partial(_unpacked, temp_file.finish(), begin)
    return _array(where, file, dtype, shape, member.file_size - offset, read)


def _read_through(stream: IO[bytes], copy: TempFile | None, size: int, progress: ScanProgress) -> None:
    read = 0
    while block := stream.read(BLOCK):
        read += len(block)
        progress(min(read, size), size)
        if copy:
            copy.append(block)


def _content_begins(contents: Contents, file: int, member: zipfile.ZipInfo) -> int:
    """Return where a member's content begins: after its local header with two texts (APPNOTE 4.3.7)."""
    name, extra = struct.unpack("<HH", contents.read(file, member.header_offset + 26, 4))
    return member.header_offset + 30 + int(name) + int(extra)


def _header(stream: IO[bytes], where: str) -> tuple[int, np.dtype[np.generic], tuple[int, ...]]:
    """Return where the numbers begin, their type and the shape; raises UsageError."""
    try:
        version = np.lib.format.read_magic(stream)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, by_columns, dtype = read(stream)
    except _WRONG_HEADERS as error:
        raise UsageError(
            f"'{where}' is not a NumPy array, or a damaged one: {_reason(error)}.",
            hint="numpy.save and numpy.savez write such files.",
            file=where,
        ) from error
    if dtype.hasobject:
        raise UsageError(
            f"'{where}' holds pickled Python objects, which may run any code when they are read.",
            hint="Save it as an array of numbers or texts: array.astype('float32'), array.astype('U').",
            file=where,
        )
    if by_columns and len(shape) > 1:
        raise UsageError(
            f"'{where}' is in Fortran order, so that its records are spread over the whole file.",
            hint="Save numpy.ascontiguousarray(array).",
            file=where,
        )
    return stream.tell(), dtype, shape


def _array(
    where: str,
    file: int,
    dtype: np.dtype[np.generic],
    shape: tuple[int, ...],
    actual: int,
    read: partial[bytes],
) -> Array:
    array = Array(where, file, dtype, shape, read)
    expected = array.row * shape[0] if shape else dtype.itemsize
    if actual != expected:
        raise UsageError(
            f"'{where}' has {actual} bytes of numbers, and its header says {expected}.",
            hint="Copy it again." if actual < expected else "Save it again.",
            file=where,
        )
    if array.row > LONGEST:
        raise UsageError(
            f"A record of '{where}' has {array.row} bytes, and at most {LONGEST} are read.",
            hint="Its first dimension counts the records: reshape it, or cut it into more of them.",
            file=where,
        )
    return array


def _shifted(contents: Contents, file: int, begin: int, at: int, size: int) -> bytes:
    return contents.read(file, begin + at, size)


def _unpacked(descriptor: int, begin: int, at: int, size: int) -> bytes:
    return os.pread(descriptor, size, begin + at)


def _reason(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines else "its header cannot be read"


def _damaged(name: str, why: str) -> UsageError:
    return UsageError(f"'{name}' is a damaged .npz archive: {why}.", hint="Copy it again.", file=name)
