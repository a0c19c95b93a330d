"""Locks a simulator's folder: one simulator serves it at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tpuctl.errors import DeadlineError, StateError
from tpuctl.polling import Backoff, poll

TIMEOUT = 0.5
"""Seconds to wait for it: a client that checks whether a simulator runs holds it for a moment."""


def lock_folder(path: Path) -> int:
    """Lock the file `path` for the life of this process; returns its descriptor, raises StateError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        poll(
            lambda: try_lock(descriptor) or None,
            awaiting="the simulator's lock",
            timeout=TIMEOUT,
            backoff=Backoff(0.01, 0.1),
        )
    except DeadlineError as error:
        os.close(descriptor)
        raise StateError(
            f"A simulator already serves {path.parent}.", hint="'tpuctl sim status' shows it."
        ) from error
    return descriptor


def try_lock(descriptor: int) -> bool:
    """Lock an open file if no other process has locked it; returns whether it did."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
