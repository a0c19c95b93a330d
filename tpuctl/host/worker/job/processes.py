"""Finds processes in /proc: what stems from one, what has a variable, and what holds TPU chips."""

from __future__ import annotations

import glob
import os
import time
from typing import Callable, Dict, Iterable, List, NamedTuple, Set

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
