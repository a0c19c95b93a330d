"""Finds attempts on this host that nobody watches, and of which something may go on."""

from __future__ import annotations

import glob
import os
from typing import List

from tpuctl.worker.attempt_lock import is_held_in
from tpuctl.worker.records import LOCK_FILE, SCRIPT_LOCK_FILE
from tpuctl.worker.reporting.status import has_finished


def abandoned(folder: str) -> List[str]:
    """Return the folders of other attempts than that in `folder`, on this host, whose supervisors have ended.

    Those that ended without a word, and those of whose script something lives: it has their script's lock.
    """
    own = os.path.abspath(folder)
    runs = os.path.dirname(os.path.dirname(own))
    locks = glob.glob(os.path.join(glob.escape(runs), "*", "*", LOCK_FILE))
    others = (os.path.dirname(lock) for lock in locks if os.path.dirname(lock) != own)
    return [other for other in others if _may_go_on(other) and not is_held_in(other, LOCK_FILE)]


def _may_go_on(folder: str) -> bool:
    return is_held_in(folder, SCRIPT_LOCK_FILE) or not has_finished(folder)
