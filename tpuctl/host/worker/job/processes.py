"""Finds processes in /proc: what stems from one, what has a variable, and what holds TPU chips.

- Ends what a script leaves behind: it would go on, and hold the chips that the next run needs.
"""

from __future__ import annotations

import glob
import os
import signal
import time
from typing import Callable, Dict, Iterable, List, NamedTuple, Set

from tpuctl.host import timing
from tpuctl.host.worker.control import is_held_in
from tpuctl.host.worker.records import LOCK_FILE, SCRIPT_LOCK_FILE
from tpuctl.host.worker.reporting import has_finished, say

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
        table = running()
        left = descendants(table, stay) | with_variable(table, [mark])
        return (left | stemming_from(table, script) if script else left) - stay

    _end_one(find, "the script", grace)
    for pid, device in holders(running()).items():
        say("process %s holds %s, and is not of this run" % (name(pid), device))


def end_earlier(folders: Iterable[str]) -> None:
    """End what goes on of attempts whose supervisors have ended.

    It has the attempt's variable, or, where it has cleared its own, holds the lock of the attempt's script.
    """
    places = list(folders)
    marks = [variable(folder) for folder in places]
    locks = {os.path.realpath(os.path.join(folder, SCRIPT_LOCK_FILE)) for folder in places}

    def find() -> Set[int]:
        table = running()
        left = with_variable(table, marks) | with_open_file(table, locks)
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
    names = [name(pid) for pid in sorted(pids)[:MOST_NAMED]]
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
        say("these do not end: %s" % ", ".join(map(name, sorted(find())[:MOST_NAMED])))


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


PROC = "/proc"
ROOT = "TPUCTL_HOST_ROOT"
"""Variable for the folder that stands for the root of the host's file system, on simulated hosts."""
CHIPS = ("/dev/accel[0-9]*", "/dev/vfio/[0-9]*")
"""What a process has open that holds TPU chips: tpu_info/device.py of AI-Hypercomputer's
cloud-accelerator-diagnostics. The control device /dev/vfio/vfio is none."""
LONGEST_NAME = 60
EXEC_PAUSE, EXEC_LOOKS = 0.001, 1000
"""Seconds between looks at a process that starts a program just now, and how many."""


class Process(NamedTuple):
    """A running process."""

    pid: int
    parent: int
    group: int
    session: int


def running(of_everyone: bool = False) -> Dict[int, Process]:
    """Return this user's processes by their id, without zombies; none where there is no /proc."""
    processes = (_process(pid, of_everyone) for pid in ids())
    return {process.pid: process for process in processes if process}


def ids() -> List[int]:
    """Return the ids of all processes, also of other users; none where there is no /proc."""
    try:
        return [int(name) for name in os.listdir(PROC) if name.isdigit()]
    except OSError:
        return []


def descendants(table: Dict[int, Process], roots: Iterable[int]) -> Set[int]:
    """Return the children of processes, their children and so on, without the roots."""
    return _grown(table, set(roots), lambda process: {process.parent}) - set(roots)


def stemming_from(table: Dict[int, Process], leader: int) -> Set[int]:
    """Return the members of a leader's group and session, and all descendants; it may have ended itself."""
    return _grown(
        table, {leader}, lambda process: {process.parent, process.group, process.session}
    ).intersection(table)


def _grown(table: Dict[int, Process], pids: Set[int], relatives: Callable[[Process], Set[int]]) -> Set[int]:
    while True:
        more = {process.pid for process in table.values() if relatives(process) & pids} - pids
        if not more:
            return pids
        pids = pids | more


def with_variable(table: Iterable[int], variables: Iterable[str]) -> Set[int]:
    """Return the processes that were started with one of the variables, each as NAME=VALUE."""
    texts = {os.fsencode(variable) for variable in variables}
    return {pid for pid in table if texts.intersection(_environment(pid).split(b"\0"))}


def with_open_file(table: Iterable[int], paths: Set[str]) -> Set[int]:
    """Return the processes that have one of the files open."""
    return {pid for pid in table if _open_files(pid) & paths}


def holders(table: Iterable[int]) -> Dict[int, str]:
    """Return the processes that hold a TPU chip, with the device."""
    present = devices()
    if not present:
        return {}
    return {pid: device for pid in table for device in sorted(_open_files(pid) & present, reverse=True)}


def devices() -> Set[str]:
    """Return the device files of this host's chips, as the open files of a process name them."""
    return {os.path.realpath(path) for pattern in CHIPS for path in glob.glob(place(pattern))}


def place(path: str) -> str:
    """Return where a path of the host's file system is."""
    root = os.environ.get(ROOT)
    return os.path.realpath(root) + path if root else path


def name(pid: int) -> str:
    """Return a process's id with the beginning of its command."""
    command = _read(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return "%d (%s)" % (pid, command[:LONGEST_NAME])


def program(pid: int) -> bytes:
    """Return the name of a process's program, without its folder."""
    return os.path.basename(_read(pid, "cmdline").partition(b"\0")[0])


def value_of(pid: int, variable: str) -> str:
    """Return the value of a variable that a process was started with; empty where nobody can tell."""
    start = os.fsencode(variable) + b"="
    values = (entry[len(start) :] for entry in _environment(pid).split(b"\0") if entry.startswith(start))
    return next(values, b"").decode("utf-8", "replace")


def _process(pid: int, of_everyone: bool) -> "Process | None":
    try:
        if os.stat("%s/%d" % (PROC, pid)).st_uid != os.geteuid() and not of_everyone:
            return None
    except OSError:
        return None
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    if len(fields) < 4 or fields[0] in b"ZX":
        return None
    return Process(pid, *map(int, fields[1:4]))


def _read(pid: int, file: str) -> bytes:
    try:
        with open("%s/%d/%s" % (PROC, pid, file), "rb") as stream:
            return stream.read()
    except OSError:  # it has ended
        return b""


def _environment(pid: int) -> bytes:
    for _ in range(EXEC_LOOKS):
        data = _read(pid, "environ")
        if data or not _starts_a_program(_read(pid, "stat").rpartition(b")")[2].split()):
            return data
        time.sleep(EXEC_PAUSE)
    return b""


def _starts_a_program(fields: List[bytes]) -> bool:
    """Tell whether a process whose environment reads as empty has one, or is about to have one.

    In execve its new memory, of some vsize, gets an environment, and then where its code begins; the kernel's
    own threads have no vsize. See proc(5), /proc/pid/stat, and create_elf_tables in Linux's fs/binfmt_elf.c.
    """
    if len(fields) < 49 or not int(fields[20]):
        return False
    start_code, env_start, env_end = int(fields[23]), int(fields[47]), int(fields[48])
    return not start_code or env_start < env_end


def _open_files(pid: int) -> Set[str]:
    try:
        return open_files(pid)
    except OSError:
        return set()


def open_files(pid: int) -> Set[str]:
    """Return what a process has open; raises PermissionError where this user may not know that."""
    folder = "%s/%d/fd" % (PROC, pid)
    paths: Set[str] = set()
    try:
        numbers = os.listdir(folder)
    except FileNotFoundError:  # it has ended
        return paths
    for number in numbers:
        try:
            paths.add(os.readlink("%s/%s" % (folder, number)))
        except FileNotFoundError:  # closed meanwhile
            pass
    return paths
