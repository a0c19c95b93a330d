"""Defines every pause and time limit of the worker, in seconds; its only code that sleeps."""

from __future__ import annotations

import os
import time
from typing import Callable, Iterator, Sequence

POLL_INTERVAL = 0.25
"""Between two looks at the script, and between two tries of the last writes."""
HEARTBEAT = 10.0
"""Between two writes of the status."""
LOG_INTERVALS = ((60.0, 1.0), (600.0, 5.0), (float("inf"), 15.0))
"""(age of the job, pause): ship this often up to that age. Each chunk costs money; a young job is watched."""
REQUEST_PAUSES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Before each try of one request to Cloud Storage."""
LOOK = 0.001
"""Between two tries to take a lock at which another process only looks."""
FIRST_LOOK, LONGEST_LOOK = 0.2, 2.0
"""Between two looks at whether all workers are ready: the first pause, and the longest."""
PEER_INTERVAL = 5.0
"""Between two looks at whether another worker has ended: within it the others learn of a failure."""
NEIGHBOUR_INTERVAL = 60.0
"""Between two looks at the status of the next worker."""
NEIGHBOUR_SILENCE = 900.0
"""Without a word of a worker after which the others give it up: as long as until readers call it lost."""
LAUNCH_SILENCE = 60.0
"""Without a sign of who starts the workers after which one that has never written is not waited for."""
FRESH = 45.0
"""Age of a worker's last word up to which it counts as alive when all are to start."""
MEETING_TIMEOUT = 21_600.0
"""For which hosts wait for one that restarts, to resume their run together."""
LONGEST_MEETING_LOOK = 10.0
"""Between two looks at whether it has come back."""
STOP_GRACE = 15.0
"""Between SIGTERM and SIGKILL for the script: a preempted VM has about 30 in all."""
LEFTOVER_GRACE = 5.0
"""Between SIGTERM and SIGKILL for what a script leaves behind."""
KILL_TIMEOUT = 10.0
"""Within which a process ends that got SIGKILL, unless the kernel holds it."""
END_TIMEOUT = 10.0
"""Within which a program ends that has written its last status."""
SIGNAL_DELAY = 1.0
"""Within which a host that shuts down signals all of its processes."""
METADATA_TIMEOUT = 2.0
"""For an answer of the metadata server to a host that is being stopped."""
SETUP_GRACE = 5.0
"""Between SIGTERM and SIGKILL for a set-up command."""
CODE_TIMEOUT = 1800.0
"""For which the code is asked for again while the bucket cannot be reached."""
LAST_WRITE_TIMEOUT = 3600.0
"""For which the last log chunk and status are tried again while the bucket cannot be reached."""
REFUSED_TIMEOUT, LONGEST_REFUSED_PAUSE = 300.0, 30.0
"""For which what the bucket refuses is tried, and the longest pause between two tries of the last writes."""
CHIP_LOOK = float(os.environ.get("TPUCTL_SIM_CHIP_LOOK") or 120.0)
"""After the start of a script until the first look whether it holds a chip; the simulator sets its own."""
CHIPS_TIMEOUT = 180.0
"""For which a script waits until the chips of its host are there, and until they are free."""
START_TIMEOUT = 120.0
"""For which `launch` waits until the first status is in the bucket."""


def pause() -> None:
    """Return after the time between two looks at the script."""
    time.sleep(POLL_INTERVAL)


def growing(first: float, longest: float) -> Iterator[float]:
    """Yield pauses without end, each a quarter longer than the one before, up to the longest."""
    while True:
        yield first
        first = min(first * 1.25, longest)


def sleep(seconds: float) -> None:
    """Return after so many seconds; a signal whose handler raises ends it."""
    time.sleep(seconds)


def between(start: str, end: str) -> float:
    """Return the seconds between two times of statuses; infinite where one is none."""
    try:
        return moment(end) - moment(start)
    except ValueError:
        return float("inf")


def moment(text: str) -> float:
    """Return a time of a status in seconds since 1970; raises ValueError where it is none."""
    import calendar  # slow, and most workers never ask

    return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))


class Patience:
    """Is over once the bucket has refused for REFUSED_TIMEOUT what is tried again and again."""

    def __init__(self) -> None:
        self._end = 0.0

    def is_over(self) -> bool:
        """Note that something was refused; return whether that has lasted too long."""
        now = time.monotonic()
        self._end = self._end or now + REFUSED_TIMEOUT
        return now > self._end

    def renew(self) -> None:
        """Note that the bucket has answered."""
        self._end = 0.0


def tries(pauses: Sequence[float]) -> Iterator[int]:
    """Yield the number of each try, from 1, after its pause."""
    for number, pause in enumerate(pauses, start=1):
        time.sleep(pause)
        yield number


def wait_until(condition: Callable[[], bool], timeout: float, interval: float = POLL_INTERVAL) -> bool:
    """Return whether `condition` came true within `timeout` seconds, looking each `interval`."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(interval)
    return True
