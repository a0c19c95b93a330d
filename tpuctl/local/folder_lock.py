"""Lets one process at a time write to a folder: the lock is the folder's own, and ends with its holder."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

WITHOUT_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.EBADF})
"""Errors of a file system that has no locks: its users take care themselves, as before."""


def hold(folder: Path, on_wait: Callable[[], object]) -> int:
    """Return a descriptor of a folder that holds its lock until it is closed.

    While another process holds it, this waits; `on_wait` is called first.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            os.close(descriptor)
            raise
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
