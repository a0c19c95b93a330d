"""Handles exceptions that no operation handles: a full disk becomes 507, a bug is logged and becomes 500."""

from __future__ import annotations

import errno
import logging
import sqlite3

from tpuctl.sim.gcs.errors import GcsError, disk_full

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

FULL_DATABASE = ("full", "disk I/O error")
"""SQLite's messages when its file cannot grow: the second one for a quota or a limit on file sizes."""

_log = logging.getLogger(__name__)


def as_gcs_error(error: Exception) -> GcsError:
    """Return the error for the client."""
    if isinstance(error, GcsError):
        return error
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return disk_full()
    if isinstance(error, sqlite3.OperationalError) and any(text in str(error) for text in FULL_DATABASE):
        return disk_full()
    _log.error("an operation failed with an exception", exc_info=error)
    return GcsError(500, "We encountered an internal error. Please try again.")
