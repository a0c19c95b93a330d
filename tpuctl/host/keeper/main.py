"""Runs the keeper: one on each host, until its node is gone.

Its folder is in memory. There a full disk stops nothing, and nothing outlives a boot: one host boots because
somebody starts it, and that is a use.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from contextlib import ExitStack
from typing import List

from tpuctl.host.keeper.activity import Activity
from tpuctl.host.keeper.keeper import Keeper, Memory, MetadataServer

INTERVAL = 30.0
"""Seconds between looks at the host."""


def main(arguments: List[str]) -> int:
    """Run in the current folder; the only argument is the seconds between looks.

    Returns 0 when there is nothing left to do; the shell that started it starts it again after any other end.
    """
    with ExitStack() as held:
        try:
            fcntl.flock(held.enter_context(open("lock", "wb")), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0  # another keeper runs
        except OSError:  # two keepers are better than none
            pass
        interval = float(arguments[0]) if arguments else INTERVAL
        activity = Activity(os.environ.get("TPUCTL_HOST_ROOT", "/"), os.path.expanduser("~"))
        keeper = Keeper(MetadataServer(), lambda: activity.reasons(), interval, Memory("memory"))
        signal.signal(signal.SIGTERM, lambda *_: keeper.terminate())
        keeper.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
