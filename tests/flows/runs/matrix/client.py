"""Runs tpuctl in this process, as `client.py CONDITION ARGUMENT...`: with a wrong clock, or killed.

CONDITION is `ahead` or `behind` (by an hour), or the moment at which `submit` is killed by SIGKILL. The times
of the hosts' program are shortened then.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from types import SimpleNamespace
from typing import Any

from google.auth import _helpers
from grpc import _channel

from tpuctl import clock
from tpuctl.flows.runs import stored_run
from tpuctl.flows.runs.submission import launch

HOUR = 3600
NO_RECORD, NO_ATTEMPT, NO_HOST, HALF, ALL = (
    "before the record", "before the attempt", "before the hosts", "between the hosts", "after the hosts",
)  # fmt: skip


def shift(seconds: int) -> None:
    """Make the clock of this process wrong, for tpuctl and for Google's clients."""
    true_time, true_gmtime = time.time, time.gmtime

    class WrongTime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> WrongTime:
            return cls.fromtimestamp(true_time() + seconds, tz)

    _channel.time = SimpleNamespace(**vars(time))  # its core has the kernel's clock, which is not wrong
    time.time = lambda: true_time() + seconds
    time.gmtime = lambda moment=None: true_gmtime(time.time() if moment is None else moment)
    clock.datetime = WrongTime  # type: ignore[misc]
    _helpers.utcnow = lambda: WrongTime.now(UTC).replace(tzinfo=None)


def die(*_: object, **__: object) -> Any:
    """End this process as the system does that has no memory left, or a user who is impatient."""
    os.kill(os.getpid(), signal.SIGKILL)


def befall(
    moment: str, act: Callable[[], object], patch: Callable[[object, str, object], None] = setattr
) -> None:
    """Have something befall `submit` at one moment, after which it goes on."""
    if moment == HALF:
        patch(launch, "launch", _half_of(launch.launch, act))
        return
    place, name = {
        NO_RECORD: (stored_run.StoredRun, "create"), NO_ATTEMPT: (stored_run.StoredRun, "create_attempt"),
        NO_HOST: (launch, "launch_all"), ALL: (launch, "values"),
    }[moment]  # fmt: skip
    real = getattr(place, name)

    def call(*arguments: object, **options: object) -> object:
        act()
        return real(*arguments, **options)

    patch(place, name, call)


def _half_of(start: Callable[..., int], act: Callable[[], object]) -> Callable[..., int]:
    """Start the first half of the hosts; before the next one something happens."""
    started = set[int]()

    def launch_some(session: object, program: bytes, spec: Any) -> int:
        half = spec.workers // 2
        if spec.worker < half:
            pid = start(session, program, spec)
            started.add(spec.worker)
            return pid
        while len(started) < half:
            time.sleep(0.05)
        act()
        return start(session, program, spec)

    return launch_some


if __name__ == "__main__":
    condition, *arguments = sys.argv[1:]
    if condition in ("ahead", "behind"):
        shift(HOUR if condition == "ahead" else -HOUR)
    else:
        from tests.flows.runs.matrix import programs

        program = programs.changed(programs.SHORTENING)
        launch.worker_program = lambda: program
        befall(condition, die)
    from tpuctl.cli.main import run

    code = run(arguments)
    sys.stdout.flush()
    os._exit(code)
