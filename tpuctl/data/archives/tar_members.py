"""Lists the members of a tar archive: only headers are read."""

from __future__ import annotations

from typing import IO

from tpuctl.data.archives.members import Member, Members, damaged
from tpuctl.worker.preparation.tar_files import BLOCK, FILE, FOLDER, LINK, SPARSE, TarError, TarReader

_MOST_PADDING = 1 << 20
"""Zeros after the end of an archive."""
_PROBLEMS = {
    FILE: "", LINK: "is a link, which is not followed in an archive", SPARSE: "is a sparse file",
}  # fmt: skip


def tar_members(stream: IO[bytes], size: int, name: str) -> Members:
    """Return the members of the archive in a stream of so many bytes; raises UsageError for damage."""
    members, reader = Members(name), TarReader(stream, seeks=True)
    try:
        for member in reader:
            if member.kind != FOLDER:
                why = _PROBLEMS.get(member.kind, "is a device")
                members.add(Member(member.name, member.size, member.begin, member.size, problem=why))
    except TarError as error:
        raise damaged(name, str(error)) from error
    if size - reader.at > BLOCK + _MOST_PADDING:
        raise damaged(name, f"it ends at byte {reader.at}, and {size - reader.at} bytes follow")
    return members.finish()
