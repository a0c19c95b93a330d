"""Reads IDX files, the format of MNIST and its family; gzipped or not.

Two zero bytes, the type, the number of dimensions, each dimension in 4 bytes, then the numbers, all of them
big-endian. Source: the description on MNIST's own page.
"""

from __future__ import annotations

import struct
from functools import partial

import numpy as np

from tpuctl.data.arrays import Array, ArraySource, NamedArray, pair, read_arrays
from tpuctl.data.files.rows import Contents
from tpuctl.data.files.source_files import list_files
from tpuctl.data.options import Options
from tpuctl.data.source import ScanProgress, closed_on_error
from tpuctl.data.sources.names import IDX
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(tree: Tree, options: Options, progress: ScanProgress) -> ArraySource:
    """Return the arrays of the only file of a tree, or of all IDX files below it; raises UsageError."""
    with closed_on_error(Contents(list_files(tree, IDX), progress)) as contents:
        blocks = pair(_named(contents, number) for number in range(len(contents.files)))
        return read_arrays("idx", contents, blocks, options, progress)


def _named(contents: Contents, file: int) -> NamedArray:
    name = contents.files.name(file)
    return NamedArray("", contents.files.split(file), name.rpartition("/")[2], _array(contents, file, name))


def _array(contents: Contents, file: int, name: str) -> Array:
    start = contents.read(file, 0, 4 + 4 * 255)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _TYPES or len(start) < 4 + 4 * start[3]:
        raise UsageError(
            f"'{name}' is not an IDX file: it begins with {start[:4].hex(' ') or 'nothing'}.",
            hint="MNIST's files begin with 00 00 08; download it again.",
            file=name,
        )
    shape = struct.unpack_from(f">{start[3]}I", start, 4)
    offset = 4 + 4 * len(shape)
    array = Array(name, file, np.dtype(_TYPES[start[2]]), shape, partial(_read, contents, file, offset))
    actual, expected = contents.sizes[file] - offset, array.row * shape[0] if shape else array.dtype.itemsize
    if actual != expected:
        ends = "ends in the middle: it" if actual < expected else "is longer than it should be: it"
        raise UsageError(
            f"'{name}' {ends} has {actual} bytes of numbers, and its header says {expected}.",
            hint="Download it again.",
            file=name,
        )
    return array


def _read(contents: Contents, file: int, offset: int, at: int, size: int) -> bytes:
    return contents.read(file, offset + at, size)
