"""Locks a simulator's folder: one simulator serves it at a time."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from tpuctl.errors import DeadlineError, StateError
from tpuctl.polling import Backoff, poll

TIMEOUT = 0.5
"""Seconds to wait for it: what ends the programs of a killed simulator has it for a moment."""
LOOK = 0.001
"""Seconds between two tries while a client looks whether a simulator runs."""


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
    """Lock an open file unless another process has it for itself; returns whether it did.

    Clients that look whether a simulator runs share it for that moment, which is waited for.
    """
    while not _try(descriptor, fcntl.LOCK_EX):
        if not _try(descriptor, fcntl.LOCK_SH):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(LOOK)
    return True


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
