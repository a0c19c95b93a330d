"""Lists the members of a zip archive by its directory, and unpacks the bytes of one."""

from __future__ import annotations

import bz2
import struct
import zipfile
import zlib
from itertools import pairwise
from typing import IO

from tpuctl.data.archives.members import BZIP2, DEFLATED, STORED, Member, Members, damaged

HEADER = 30
"""Bytes of a member's header before its name."""
_SIGNATURE = b"PK\x03\x04"
_DAMAGE = (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError, EOFError, OverflowError)
"""What zipfile raises for a directory that is damaged."""
_ENCRYPTED, _FILE_TYPES = 1, (0, 8)
"""Flag of a member; the kinds of a Unix mode that are files, or say nothing."""


def zip_members(stream: IO[bytes], size: int, name: str) -> Members:
    """Return the members of the archive in a stream of so many bytes; raises UsageError for damage."""
    members = Members(name)
    try:
        with zipfile.ZipFile(stream) as archive:
            infos = archive.infolist()
    except _DAMAGE as error:
        raise damaged(name, str(error).rstrip(".") or "it ends in the middle") from error
    _check_overlaps(infos, size, name)
    for info in infos:
        if not info.is_dir():
            members.add(_member(info))
    return members.finish()


def content_begins(header: bytes) -> int:
    """Return how far after a member's header its content begins; raises ValueError where it is none."""
    if len(header) < HEADER or not header.startswith(_SIGNATURE):
        raise ValueError("there is no member where the directory says")
    name, extra = struct.unpack_from("<HH", header, 26)
    return HEADER + int(name) + int(extra)


def unpacked(data: bytes, method: int, most: int) -> bytes:
    """Return the first `most` bytes that a member's data unpacks to; raises ValueError for damage."""
    if not most:
        return b""  # zlib takes 0 for no limit
    try:
        if method == DEFLATED:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, most)
        if method == BZIP2:
            return bz2.BZ2Decompressor().decompress(data, most)
    except (zlib.error, OSError, EOFError) as error:
        raise ValueError(str(error)) from error
    return data[:most]


def _member(info: zipfile.ZipInfo) -> Member:
    return Member(
        info.filename,
        info.file_size,
        info.header_offset,
        info.compress_size,
        info.compress_type,
        info.CRC,
        _problem(info),
    )


def _problem(info: zipfile.ZipInfo) -> str:
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if info.external_attr >> 28 not in _FILE_TYPES:
        return "is a link or a device, which is not followed in an archive"
    if info.compress_type not in (STORED, DEFLATED, BZIP2):
        return f"is compressed by a method that is not read, {info.compress_type}"
    if info.compress_type == STORED and info.compress_size != info.file_size:
        return "has two sizes"
    return ""


def _check_overlaps(infos: list[zipfile.ZipInfo], size: int, name: str) -> None:
    """Raise UsageError where members share bytes, as those of a zip bomb do, or lie behind the end."""
    spans = sorted((info.header_offset, info.header_offset + HEADER + info.compress_size) for info in infos)
    if any(end > start for (_, end), (start, _) in pairwise(spans)) or (spans and spans[-1][1] > size):
        raise damaged(name, "its members lie over each other, or behind its end")
