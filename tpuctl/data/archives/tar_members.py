"""Lists the members of a tar archive: only headers are read."""

from __future__ import annotations

import tarfile
from typing import IO

from tpuctl.data.archives.members import Member, Members, damaged

_BLOCK = 512
_LONGEST_HEADER = 1 << 20
_MOST_PADDING = 1 << 20
"""Zeros after the end of an archive."""
_EXTENDED = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip
"""Types of headers that tarfile reads into memory."""


class _BoundedInfo(tarfile.TarInfo):
    """A member; one whose extended header would fill the memory is damage."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _BoundedInfo:
        info = super().frombuf(buf, encoding, errors)
        if info.size < 0 or (info.type in _EXTENDED and info.size > _LONGEST_HEADER):
            raise tarfile.ReadError(f"it has an extended header of {info.size} bytes")
        return info


def tar_members(stream: IO[bytes], size: int, name: str) -> Members:
    """Return the members of the archive in a stream of so many bytes; raises UsageError for damage."""
    members = Members(name)
    try:
        with tarfile.open(fileobj=stream, mode="r:", tarinfo=_BoundedInfo) as archive:
            while info := archive.next():
                if not info.isdir():
                    members.add(_member(info))
                archive.members.clear()  # type: ignore[attr-defined]  # tarfile holds them all: a kilobyte for each
            _check_end(stream, archive.offset, size, name)
    except (tarfile.TarError, ValueError, EOFError, OverflowError, IndexError) as error:
        raise damaged(name, str(error).rstrip(".") or "it ends in the middle") from error
    return members.finish()


def _member(info: tarfile.TarInfo) -> Member:
    return Member(info.name, info.size, info.offset_data, info.size, problem=_problem(info))


def _problem(info: tarfile.TarInfo) -> str:
    if info.issym() or info.islnk():
        return "is a link, which is not followed in an archive"
    if info.issparse():
        return "is a sparse file"
    return "" if info.isfile() else "is a device"


def _check_end(stream: IO[bytes], offset: int, size: int, name: str) -> None:
    """Raise UsageError where tarfile stopped at a damaged header, which it takes for the end."""
    stream.seek(min(offset, size))
    block = stream.read(_BLOCK)
    if block.strip(b"\0"):
        raise damaged(name, f"there is no header at byte {offset}")
    if size - offset > _MOST_PADDING:
        raise damaged(name, f"it ends at byte {offset}, and {size - offset} bytes follow")
