"""Names in a run's log the processes that hold the chips which its script needs, such as a notebook."""

from __future__ import annotations

import os
import pwd
from typing import List

from tpuctl.worker.job import processes

DEVICES = ("/dev/accel0", "/dev/vfio")
"""One of them is on each host with chips; on any other, nothing more is looked at."""
MOST_NAMED = 10


def write_holders(log: str) -> None:
    """Write a line for each process that holds a chip; those of other users can be seen by root only."""
    lines = _holders() if any(map(os.path.exists, DEVICES)) else []
    if lines:
        with open(log, "ab") as stream:
            stream.write("".join(lines[:MOST_NAMED]).encode("utf-8", "replace"))


def _holders() -> List[str]:
    try:
        pids = [int(name) for name in os.listdir(processes.PROC) if name.isdigit()]
    except OSError:  # not Linux
        return []
    return [
        "[tpuctl] %s is held by process %s of %s\n"
        % (device, processes.name(pid), _user(os.path.join(processes.PROC, str(pid))))
        for pid, device in processes.holders(pids).items()
    ]


def _user(path: str) -> str:
    """Return whose process has this folder in /proc."""
    try:
        number = os.stat(path).st_uid
    except OSError:
        return "somebody"
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return "user %d" % number
