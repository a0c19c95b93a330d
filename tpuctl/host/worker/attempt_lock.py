"""Tells by an attempt's locks whether its supervisor and its script live: who has ended holds none."""

from __future__ import annotations

import fcntl
import glob
import os
from typing import BinaryIO, List, Optional, Union

from tpuctl.host import timing
from tpuctl.host.worker.records import LOCK_FILE, STARTED


def is_held(lock: BinaryIO) -> bool:
    """Return whether another process holds the lock, whose file is open; if not, this one shares it now."""
    return not _try(lock, fcntl.LOCK_SH)


def take(lock: Union[BinaryIO, int]) -> bool:
    """Return whether this process holds the lock alone by now; False where another one does.

    Who only looks at a lock shares it for that moment, which is waited for.
    """
    while not _try(lock, fcntl.LOCK_EX):
        if not _try(lock, fcntl.LOCK_SH):
            return False
        fcntl.flock(lock, fcntl.LOCK_UN)
        timing.sleep(timing.LOOK)
    return True


def _try(lock: Union[BinaryIO, int], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def first_lock(folder: str) -> Optional[BinaryIO]:
    """Return the lock of the attempt in a folder, held, for a supervisor to inherit.

    None where a supervisor has started before, or is being started. One whose start was cut off, as the host
    went down, has not started.
    """
    lock = open(os.path.join(folder, LOCK_FILE), "ab")  # noqa: SIM115  the caller closes it
    if not take(lock) or os.path.exists(os.path.join(folder, STARTED)):
        lock.close()
        return None
    os.utime(lock.fileno())  # it says when the supervisor was started
    return lock


def is_started(folder: str) -> bool:
    """Return whether a supervisor has started in a folder, or is being started."""
    return is_held_in(folder, LOCK_FILE) or os.path.exists(os.path.join(folder, STARTED))


def is_held_in(folder: str, name: str) -> bool:
    """Return whether a process holds the lock of this name in a folder; nobody holds one that is absent."""
    try:
        path = os.path.join(folder, name)  # of a pipe that a job left there, nobody waits for the other end
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as lock:
            return is_held(lock)
    except OSError:
        return False


def live_attempts(folder: str) -> List[str]:
    """Return the folders of attempts of other runs than that in `folder` whose supervisors live on this host.

    What the bucket lists does not count: their records may be gone, or in another bucket.
    """
    own = os.path.dirname(os.path.abspath(folder))
    locks = glob.glob(os.path.join(glob.escape(os.path.dirname(own)), "*", "*", LOCK_FILE))
    others = [os.path.dirname(lock) for lock in locks]
    return [other for other in others if os.path.dirname(other) != own and is_held_in(other, LOCK_FILE)]


def hold(path: str) -> int:
    """Return a descriptor that holds a lock, for a child to inherit: held until the last copy is closed.

    -1 where no file can be made, as on a full disk.
    """
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1
    try:
        take(descriptor)
    except OSError:  # a file system without locks
        pass
    return descriptor
