"""What /proc says of processes that start a program just now, and of others without an environment."""

from __future__ import annotations

import pytest


def stat_line(vsize: int, start_code: int, env_start: int, env_end: int) -> bytes:
    """Return /proc/PID/stat of a process: what says whether it has its environment yet."""
    fields = [b"S", b"1", b"7", b"7", *[b"1"] * 46]
    for number, value in ((23, vsize), (26, start_code), (50, env_start), (51, env_end)):
        fields[number - 3] = b"%d" % value
    return b"7 (a name) of one) " + b" ".join(fields)


STARTED = stat_line(430_080, 9000, 4000, 4100)
WITHOUT_ENVIRONMENT = [
    pytest.param(stat_line(4096, 0, 0, 0), 1, id="new memory"),
    pytest.param(stat_line(430_080, 0, 4000, 4000), 1, id="no strings"),
    pytest.param(STARTED, 1, id="just now"),
    pytest.param(stat_line(430_080, 9000, 4000, 4000), 0, id="empty"),
    pytest.param(stat_line(0, 0, 0, 0), 0, id="a thread of the kernel"),
]
"""The line while the environment reads as empty, and how many more looks it is worth."""
