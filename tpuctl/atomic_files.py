"""Writes files completely or not at all: first under another name, then renamed in one step.

A kill at any moment leaves the old content or the new one, and at most a file ending in `.part`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE = 0o600
"""Mode of a file that only its user can read."""
READABLE = 0o644
"""Mode of a file that others may read, and only its user may change."""
SHARED = 0o666
"""Mode of a file that the umask alone restricts."""


@contextmanager
def part_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to; it replaces `path` when the block ends, and is deleted when the block raises.

    For one writer at a time. Raises OSError.
    """
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)  # left by a process that was killed, perhaps with another mode
    try:
        yield part
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def replace_file(path: Path, chunks: Iterable[bytes], *, mode: int = SHARED, fsync: bool = False) -> None:
    """Write a file, or replace its content, for one writer at a time; raises OSError.

    The file has its `mode` (less the umask) before its first byte. `fsync` protects it from a power cut, too.
    """
    with part_file(path) as part:
        _write(part, chunks, mode=mode, fsync=fsync)


def swap_file(path: Path, content: bytes, *, mode: int) -> None:
    """Replace a file's content, for several processes or threads at a time: the last one counts.

    The file has exactly this `mode`. Raises OSError.
    """
    part = _own_part(path)
    try:
        _write(part, [content], mode=PRIVATE, fsync=False)
        part.chmod(mode)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def create_file(path: Path, content: bytes, *, mode: int = SHARED) -> bool:
    """Write a file unless it exists, also when several processes or threads try; False when it exists.

    It is on disk, safe from a power cut, when this returns. Raises OSError.
    """
    part = _own_part(path)
    try:
        _write(part, [content], mode=mode, fsync=True)
        return _link(part, path)
    finally:
        part.unlink(missing_ok=True)


def _own_part(path: Path) -> Path:
    """Return a path beside another one that no other process or thread writes to; it does not exist."""
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    part.unlink(missing_ok=True)
    return part


def _write(path: Path, chunks: Iterable[bytes], *, mode: int, fsync: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as stream:
        for chunk in chunks:
            stream.write(chunk)
        if fsync:
            stream.flush()
            os.fsync(descriptor)


def _link(part: Path, path: Path) -> bool:
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    return True
