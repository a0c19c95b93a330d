"""Finds attempts on this host whose supervisors ended without a word: their scripts may go on."""

from __future__ import annotations

import fcntl
import glob
import os
from typing import List

from tpuctl.worker.records import FINISHED, LOCK_FILE
from tpuctl.worker.reporting.status import read_last


def abandoned(folder: str) -> List[str]:
    """Return the folders of other attempts than that in `folder`, on this host, that ended without a word."""
    own = os.path.abspath(folder)
    runs = os.path.dirname(os.path.dirname(own))
    locks = glob.glob(os.path.join(glob.escape(runs), "*", "*", LOCK_FILE))
    others = (os.path.dirname(lock) for lock in locks if os.path.dirname(lock) != own)
    return [other for other in others if not _has_finished(other) and not _is_held(other)]


def _has_finished(folder: str) -> bool:
    return (read_last(folder) or {}).get("state") == FINISHED


def _is_held(folder: str) -> bool:
    try:
        with open(os.path.join(folder, LOCK_FILE), "rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
