"""A pytest plugin: temporary folders of tests are in memory where that is big enough: none waits for a disk.

A folder that the user names by TMPDIR counts.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")
FREE = 4 << 30
"""Bytes that must be free there: a whole run needs less than a quarter."""
LEFT = 8 << 30
"""Bytes of memory that must be free, with those."""
CHOICES = ("TMPDIR", "TEMP", "TMP", "PYTEST_DEBUG_TEMPROOT")


def pytest_configure() -> None:
    """Choose the place before the first folder is made."""
    if not any(map(os.environ.get, CHOICES)) and is_usable(MEMORY, _available()):
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY)


def is_usable(place: Path, available: int, free: int = FREE) -> bool:
    """Return whether a place has room, and programs can be written and run there."""
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        return False
    can_run = not os.statvfs(place).f_flag & os.ST_NOEXEC
    return can_run and shutil.disk_usage(place).free >= free and available >= LEFT


def _available() -> int:
    """Return the bytes of memory that programs can get; 0 where the system does not say it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)
