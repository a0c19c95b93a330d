"""Tells by the lock of an attempt whether its supervisor lives: a process that has ended holds none."""

from __future__ import annotations

import fcntl
from typing import BinaryIO


def is_held(lock: BinaryIO) -> bool:
    """Return whether a supervisor holds the lock, whose file is open for reading."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
