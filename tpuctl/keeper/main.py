"""Runs the keeper: one on each host, until its node is gone."""

from __future__ import annotations

import fcntl
import os
import sys
from typing import List

from tpuctl.keeper.activity import Activity
from tpuctl.keeper.keeper import Keeper
from tpuctl.keeper.metadata import MetadataServer

INTERVAL = 30.0
"""Seconds between looks at the host."""
FAILED = 1


def main(arguments: List[str]) -> int:
    """Run in the current folder; the only argument is the seconds between looks.

    Returns 0 when there is nothing left to do; the shell that started it starts it again after any other end.
    """
    with open("lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0  # another keeper runs
        interval = float(arguments[0]) if arguments else INTERVAL
        activity = Activity(os.environ.get("TPUCTL_HOST_ROOT", "/"), os.path.expanduser("~"))
        keeper = Keeper(MetadataServer(), lambda: activity.reasons(), interval)
        keeper.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
