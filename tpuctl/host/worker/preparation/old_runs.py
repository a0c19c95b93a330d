"""Deletes the files of old runs from a host's disk: the newest few stay, and each that is not over."""

from __future__ import annotations

import os
import shutil
import time
from typing import BinaryIO, Iterator, List, Optional, Sequence

from tpuctl.host.worker.attempt_lock import is_held_in, take
from tpuctl.host.worker.records import LOCK_FILE, PROGRAM_FILE, SCRIPT_LOCK_FILE, STARTED, identity

KEPT = 5
"""Attempts that stay whole, the last used first."""
SHORTEST, LONGEST = 3600.0, 30 * 86400.0
"""Seconds after an attempt's end within which it stays whole, and after which nothing of it stays."""
RECORDS = (LOCK_FILE, STARTED, "supervisor.log", "last_status.json")
"""Small files that stay meanwhile: they tell who asks that the attempt was here, and how it ended."""


def remove(attempt_folder: str) -> None:
    """Delete what earlier attempts in folders beside this one's left, in `.../RUN/ATTEMPT`.

    One whose supervisor or script lives stays as it is, however old. What cannot be deleted stays.
    """
    own = os.path.realpath(attempt_folder)
    others = [folder for folder in _attempts(os.path.dirname(os.path.dirname(own))) if folder != own]
    for number, folder in enumerate(sorted(others, key=_last_use, reverse=True), start=1):
        if number >= KEPT and _age(folder) > SHORTEST:  # this attempt is one of those that stay
            _remove(folder)


def make_room(folder: str, key: str) -> Optional[BinaryIO]:
    """Delete what an attempt with another key left in this attempt's folder; return the attempt's lock, held.

    That was of a run of the same name, which was removed. None for one whose supervisor or script lives,
    which stays as it is, and for one of an earlier version, which noted no key.
    """
    lock = open(os.path.join(folder, LOCK_FILE), "ab")  # noqa: SIM115  the caller closes it
    if not take(lock) or is_held_in(folder, SCRIPT_LOCK_FILE) or not _is_of_another(folder, key):
        lock.close()
        return None
    with os.scandir(folder) as entries:
        # STARTED last: without it the next launch would not see what is left
        for entry in sorted(entries, key=lambda entry: entry.name == STARTED):
            _remove_entry(entry, kept=(LOCK_FILE, PROGRAM_FILE))
    os.utime(lock.fileno())
    return lock


def _is_of_another(folder: str, key: str) -> bool:
    """Return whether what was started in a folder has another key, or is deleted by now."""
    try:
        with open(os.path.join(folder, STARTED), encoding="ascii") as stream:
            _, _, former = stream.read().partition(" ")
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return former not in ("", identity(key))


def _attempts(runs: str) -> Iterator[str]:
    """Yield the folders of attempts; no link is followed."""
    for run in _folders(runs):
        yield from (folder for folder in _folders(run) if os.path.basename(folder).isdigit())


def _folders(folder: str) -> List[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _last_use(folder: str) -> float:
    """When the attempt's folder or one of its records was written last, since 1970."""
    times = [0.0]
    for path in (folder, *(os.path.join(folder, name) for name in RECORDS)):
        try:
            times.append(os.lstat(path).st_mtime)
        except OSError:
            pass
    return max(times)


def _age(folder: str) -> float:
    return time.time() - _last_use(folder)


def _remove(folder: str) -> None:
    """Delete an attempt's files, or all but its records, unless it was used again meanwhile."""
    try:
        lock = open(os.path.join(folder, LOCK_FILE), "rb")  # noqa: SIM115  closed below
    except OSError:  # it never started
        if _age(folder) > SHORTEST:
            shutil.rmtree(folder, ignore_errors=True)
        return
    with lock:
        if not take(lock) or is_held_in(folder, SCRIPT_LOCK_FILE) or _age(folder) <= SHORTEST:
            return
        if _age(folder) > LONGEST:
            shutil.rmtree(folder, ignore_errors=True)
            _remove_empty(os.path.dirname(folder))
            return
        with os.scandir(folder) as entries:
            for entry in entries:
                _remove_entry(entry)


def _remove_entry(entry: "os.DirEntry[str]", kept: Sequence[str] = RECORDS) -> None:
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path, ignore_errors=True)
    elif entry.name not in kept:
        try:
            os.unlink(entry.path)
        except OSError:
            pass


def _remove_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:  # another attempt of the run is in it
        pass
