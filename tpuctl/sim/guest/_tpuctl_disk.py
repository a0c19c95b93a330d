"""Simulates a full disk for Python programs of a host: opening a file for writing fails with ENOSPC.

The host's folder is TPUCTL_SIM_DISK; a file `disk_full` in it says that the disk is full. Loaded at the start
of every program, so it imports nothing that Python has not loaded by then.
"""

import errno
import os
import sys

WRITING = os.O_WRONLY | os.O_RDWR
GROWING = os.O_CREAT | os.O_TRUNC
PLACES = ("home", "tmp")


def install(folder: str) -> None:
    """Watch what this process opens from now on."""
    mark = os.path.join(folder, "disk_full")
    root = os.path.realpath(folder)
    places = tuple(os.path.join(root, place) + os.sep for place in PLACES)

    def watch(event, arguments):  # type: ignore[no-untyped-def]
        if event == "open":
            path, _, flags = arguments
            if not (flags & WRITING and flags & GROWING):
                return
        elif event == "os.mkdir":
            path = arguments[0]
        else:
            return
        if not isinstance(path, int) and os.path.exists(mark) and _is_below(path, places):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    sys.addaudithook(watch)


def _is_below(path, places):  # type: ignore[no-untyped-def]
    try:
        return os.path.realpath(os.fsdecode(path)).startswith(places)
    except (TypeError, ValueError):
        return False
