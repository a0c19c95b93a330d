"""Stays above a supervisor: if that is killed, what it started is ended, and its last word is said.

Orphans below it become its children, so that nothing leaves the reach of the run. It does nothing else, which
makes it the last to fall.
"""

from __future__ import annotations

import os
import signal
from typing import Callable, Optional

from tpuctl.host.gcs import FORBIDDEN, RefusedError
from tpuctl.host.worker.records import STARTED, Spec
from tpuctl.host.worker.reporting import say

PR_SET_CHILD_SUBREAPER = 36
NOT_PERMITTED = 77
"""Exit code of a supervisor to which Cloud Storage has refused something: EX_NOPERM of sysexits.h."""
STOPS = (signal.SIGTERM, signal.SIGINT)
"""What stops a host or a run."""


def guarded(spec: Spec, folder: str, supervise: Callable[[], int]) -> int:
    """Run `supervise` in a child, in the attempt's `folder`, and return its exit code."""
    child = _Child()
    child.start(supervise)
    _adopt_orphans()
    if spec.resumption:
        _try(lambda: _keep(spec, folder))
    oom_kills = _oom_kills()
    code = child.wait()
    is_started = os.path.exists(os.path.join(folder, STARTED))
    if (
        code and is_started and not _has_finished(folder)
    ):  # a full disk has no last status, but the bucket has
        _take_over(spec, folder, code, oom_kills, child.stop_signal)
    if spec.resumption:
        _try(lambda: _resume(folder))
    return code if code >= 0 else 128 - code


def _keep(spec: Spec, folder: str) -> None:
    """Have the host resume the run after a reboot."""
    from tpuctl.host.worker import resumption  # beside the start of the supervisor

    resumption.keep(spec, folder)
    resumption.ensure()


def _resume(folder: str) -> None:
    """Forget an attempt that has ended, unless the restart of a host is why."""
    from tpuctl.host.worker.resumption import after_end  # at the end

    after_end(folder)


def _try(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:  # the run itself goes on
        say("it will not resume by itself after a reboot: %s: %s" % (type(error).__name__, error))


def _run_to_the_end(supervise: Callable[[], int]) -> None:
    """Leave this process with the supervisor's exit code: Python's own end fails where the disk is full."""
    code = 1
    try:
        code = supervise()
    except Exception as error:
        import traceback  # slow, and most supervisors end well

        say(traceback.format_exc())
        if isinstance(error, RefusedError) and error.status == FORBIDDEN:
            code = NOT_PERMITTED
            say(error.words)
    finally:
        os._exit(code)


class _Child:
    """The supervisor's process."""

    def __init__(self) -> None:
        self.pid = 0
        self.stop_signal = 0
        """The signal that this process got; 0 for none."""

    def start(self, supervise: Callable[[], int]) -> None:
        """Fork it. A stop waits until this process can pass it on; a child that hears none yet is ended."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        self.pid = os.fork()
        for number in STOPS:
            signal.signal(number, self.forward if self.pid else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if not self.pid:
            _run_to_the_end(supervise)

    def forward(self, number: int, _frame: Optional[object]) -> None:
        """Pass a signal on: a host that stops signals both, and somebody may know the guard only."""
        self.stop_signal = number
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def wait(self) -> int:
        """Return its exit code, negative for a signal; orphans that end meanwhile are waited for, too."""
        while True:
            pid, status = os.wait()
            if pid == self.pid:
                return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _take_over(spec: Spec, folder: str, code: int, oom_kills: int, stop_signal: int) -> None:
    """End what is left on this host, and write the worker's last status."""
    from tpuctl.host.worker.supervisor import Supervisor  # only where something went wrong

    how = "was ended by %s" % signal.Signals(-code).name if code < 0 else "ended with exit code %d" % code
    Supervisor(spec, folder).take_over(
        "the program that runs the script %s" % how, code, oom_kills, stop_signal
    )


def _has_finished(folder: str) -> bool:
    from tpuctl.host.worker.reporting import has_finished

    return has_finished(folder)


def _oom_kills() -> int:
    from tpuctl.host.worker.job import script  # beside the supervisor's start

    return script.count_oom_kills()


def _adopt_orphans() -> None:
    """Become the parent of descendants that lose theirs, where the system is Linux."""
    import ctypes  # slow, and beside the supervisor's start

    try:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass
