"""Keeps folders of installed packages between runs: one for each set of requirements, the last few."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from typing import IO, Callable, List

from tpuctl.worker import timing

KEPT = 4
"""Folders that stay, the last used first; those that a run uses always do."""
_held: List[IO[bytes]] = []
"""Locks of the folders that this process uses; they end with it."""


def obtain(root: str, key: str, build: Callable[[str], None], say: Callable[[str], None]) -> str:
    """Return the folder `key` below `root`, which `build` fills in another place if it does not exist.

    Of two processes at once one builds and the other waits; a folder has its name once it is complete.
    Whatever `build` raises is raised, and leaves no folder.
    """
    os.makedirs(root, mode=0o700, exist_ok=True)
    folder = os.path.join(os.path.abspath(root), key)
    lock = _open_lock(folder)
    try:
        if not _is_built(lock, root, folder, build):
            os.utime(folder)
            say("the packages of an earlier run with the same requirements are used")
    except BaseException:
        lock.close()
        raise
    _held.append(lock)
    remove_unused(root)
    return folder


def _is_built(lock: IO[bytes], root: str, folder: str, build: Callable[[str], None]) -> bool:
    """Return with a shared lock on a complete folder, and whether this process has built it."""
    is_built = False
    while True:
        fcntl.flock(lock, fcntl.LOCK_SH)  # waits for who builds
        if os.path.isdir(folder):
            return is_built
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another looks at the same time, and one of both builds
            timing.pause()
            continue
        if not os.path.isdir(folder):
            _remove_unfinished(root, os.path.basename(folder))
            _build(root, folder, build)
            is_built = True


def remove_unused(root: str) -> None:
    """Delete all but the last KEPT folders, and what builds that were killed left; none that is in use."""
    names = [name for name in os.listdir(root) if not name.endswith(_LOCK)]
    complete = sorted((name for name in names if _NEW not in name), key=lambda name: _age(root, name))
    for name in [*complete[KEPT:], *(name for name in names if _NEW in name)]:
        folder = os.path.join(root, name)
        with _open_lock(os.path.join(root, name.split(_NEW)[0])) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            gone = tempfile.mktemp(prefix=name.split(_NEW)[0] + _NEW, dir=root)  # noqa: S306  under its lock
            try:
                os.rename(folder, gone)
            except FileNotFoundError:  # another run has deleted it
                continue
            shutil.rmtree(gone, ignore_errors=True)


_LOCK, _NEW = ".lock", ".new-"


def _open_lock(folder: str) -> IO[bytes]:
    return open(folder + _LOCK, "ab")  # stays: a lock file that is deleted locks nobody out


def _build(root: str, folder: str, build: Callable[[str], None]) -> None:
    place = tempfile.mkdtemp(prefix=os.path.basename(folder) + _NEW, dir=root)
    try:
        complete = os.path.join(place, "packages")
        build(complete)
        os.rename(complete, folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _remove_unfinished(root: str, key: str) -> None:
    for name in os.listdir(root):
        if name.startswith(key + _NEW):
            shutil.rmtree(os.path.join(root, name), ignore_errors=True)


def _age(root: str, name: str) -> float:
    """A number that is smaller the later a folder was used."""
    try:
        return -os.stat(os.path.join(root, name)).st_mtime
    except FileNotFoundError:
        return 0.0
