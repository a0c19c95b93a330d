"""Ends what a script leaves behind: it would go on, and hold the chips that the next run needs."""

from __future__ import annotations

import glob
import os
import signal
from typing import Callable, Iterable, List, Set

from tpuctl.host import timing
from tpuctl.host.worker.attempt_lock import is_held_in
from tpuctl.host.worker.job import processes
from tpuctl.host.worker.records import LOCK_FILE, SCRIPT_LOCK_FILE
from tpuctl.host.worker.reporting.logs import say
from tpuctl.host.worker.reporting.status import has_finished

MARK = "TPUCTL_REPORT_DIR"
"""The variable with a path of the attempt, which all processes of its script inherit."""
MOST_NAMED = 10


def end(folder: str, script: int, spared: Iterable[int], grace: float) -> None:
    """End what is left of the attempt in `folder`: SIGTERM, and SIGKILL after the grace.

    That is what is in the script's group and session, what descends from it, from this process or from a
    `spared` one, and what was started with the attempt's variable, wherever it has gone. This process and the
    spared ones stay.
    """
    stay = {os.getpid(), *spared} - {0}
    mark = variable(folder)

    def find() -> Set[int]:
        table = processes.running()
        left = processes.descendants(table, stay) | processes.with_variable(table, [mark])
        return (left | processes.stemming_from(table, script) if script else left) - stay

    _end_one(find, "the script", grace)
    for pid, device in processes.holders(processes.running()).items():
        say("process %s holds %s, and is not of this run" % (processes.name(pid), device))


def end_earlier(folders: Iterable[str]) -> None:
    """End what goes on of attempts whose supervisors have ended.

    It has the attempt's variable, or, where it has cleared its own, holds the lock of the attempt's script.
    """
    places = list(folders)
    marks = [variable(folder) for folder in places]
    locks = {os.path.realpath(os.path.join(folder, SCRIPT_LOCK_FILE)) for folder in places}

    def find() -> Set[int]:
        table = processes.running()
        left = processes.with_variable(table, marks) | processes.with_open_file(table, locks)
        return left - {os.getpid()}

    _end_one(find, "an earlier run", timing.LEFTOVER_GRACE)


def variable(folder: str) -> str:
    """Return the variable of an attempt's processes, as NAME=VALUE."""
    return "%s=%s" % (MARK, os.path.join(os.path.abspath(folder), "reports"))


def _end_one(find: Callable[[], Set[int]], owner: str, grace: float) -> None:
    """End processes, those too that they start meanwhile, and say which."""
    pids = find()
    if not pids:
        return
    names = [processes.name(pid) for pid in sorted(pids)[:MOST_NAMED]]
    more = " and %d more" % (len(pids) - MOST_NAMED) if len(pids) > MOST_NAMED else ""
    say("ending what %s left behind: %s%s" % (owner, ", ".join(names), more))
    signalled: Set[int] = set()

    def are_gone() -> bool:
        new = find()
        _signal(new - signalled, signal.SIGTERM)
        signalled.update(new)
        return not new

    def are_killed() -> bool:
        left = find()
        _signal(left, signal.SIGKILL)
        return not left

    if timing.wait_until(are_gone, grace, interval=0.05):
        return
    if not timing.wait_until(are_killed, timing.KILL_TIMEOUT, interval=0.05):
        say("these do not end: %s" % ", ".join(map(processes.name, sorted(find())[:MOST_NAMED])))


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


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
