"""Finds, stops and ends every process of a host, also detached ones, by a mark in their environment.

- Reads and writes raw file descriptors (pipes, terminals, pidfds) without blocking the event loop.
- Simulates a full disk: by a file that servers and Python programs check, by a kernel limit for others.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuctl.sim.records import Host

CHUNK = 64 * 1024


async def readable(descriptor: int) -> None:
    """Wait until `descriptor` has something to read, or its end."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _set, ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def writable(descriptor: int) -> None:
    """Wait until `descriptor` takes more data, or its reader is gone."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(descriptor, _set, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


async def read(descriptor: int) -> bytes:
    """Return the next bytes of the non-blocking `descriptor`, waiting for the first; empty at the end."""
    while True:
        try:
            return os.read(descriptor, CHUNK)
        except BlockingIOError:
            await readable(descriptor)
        except OSError as error:
            if error.errno == errno.EIO:  # on Linux: the last program on the terminal has ended
                return b""
            raise


async def write(descriptor: int, data: bytes) -> None:
    """Write all of `data`; raises BrokenPipeError when the reader is gone."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            await writable(descriptor)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


FULL = "disk_full"
"""Name of the file in the host's folder."""


def is_full(home: Path) -> bool:
    """Whether the disk of the host with this home is full."""
    return (home.parent / FULL).exists()


async def fill(folder: Path, mark: str, leaders: Callable[[], set[int]]) -> None:
    """Make every write on the host fail."""
    (folder / FULL).touch(mode=0o600)
    await asyncio.to_thread(_limit_all, mark, leaders(), 0)


async def free(folder: Path, mark: str, leaders: Callable[[], set[int]]) -> None:
    """Undo `fill`."""
    (folder / FULL).unlink(missing_ok=True)
    await asyncio.to_thread(_limit_all, mark, leaders(), resource.RLIM_INFINITY)


def limit(pid: int, size: int) -> None:
    """Limit the files of a running program to `size` bytes; Linux alone can do that from outside."""
    if not hasattr(resource, "prlimit"):
        return
    try:
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        soft = most if size == resource.RLIM_INFINITY else size
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, most))
    except (ProcessLookupError, PermissionError):  # it has ended, or its id is another user's by now
        pass


def _limit_all(mark: str, leaders: set[int], size: int) -> None:
    """Look again until there is no new process: one can start another meanwhile."""
    limited: set[int] = set()
    while new := of_host(mark, leaders) - limited:
        for pid in new:
            limit(pid, size)
        limited |= new


Sleep = Callable[[float], Coroutine[Any, Any, None]]

MARK = "TPUCTL_SIM_HOST"
"""Environment variable that every program of a host inherits."""
PROC = Path("/proc")
FIRST_PAUSE = 0.02
"""Seconds between the first two looks at the process table; each pause is twice the one before."""
LONGEST_PAUSE = 0.25
KILL_ROUNDS = 50
"""Looks after SIGKILL before giving up: a process can be stuck in the kernel."""

_EXEC_PAUSE, _EXEC_LOOKS = 0.001, 1000
"""Seconds between looks at a process that starts a program just now, and how many."""

_PS = ("ps", "-axww", "-E", "-o", "pid=,ppid=,pgid=,command=")
_PS_LINE = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)\s(.*)")
_PS_MARK = re.compile(rf"(?:^|\s){MARK}=(\S+)")


@dataclass(frozen=True)
class ProcessEntry:
    """One line of the process table. `mark` is empty for a process that belongs to no host."""

    pid: int
    parent: int
    group: int
    session: int
    mark: str


def world_mark(pool: Path) -> str:
    """Return the prefix of the marks of all hosts in this folder; each simulator has another."""
    return hashlib.sha256(os.fsencode(pool.resolve())).hexdigest()[:12] + "-"


def host_mark(pool: Path, host: Host) -> str:
    """Return the mark of one host."""
    return f"{world_mark(pool)}{host.node_uid}-{host.worker}"


def node_uid_of(mark: str) -> str:
    """Return the id of the node whose host has this mark."""
    return mark.partition("-")[2].rpartition("-")[0]


async def end_processes(
    chosen: Callable[[str], bool],
    leaders: Callable[[], set[int]],
    grace: float,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """End all processes whose mark is `chosen`, and those of the sessions of `leaders`, with their children.

    Sends SIGTERM, then SIGKILL after `grace` seconds of `sleep`'s clock (at once if 0), and returns once all
    have ended. `leaders` returns, at each look, children of this process that have not been waited for:
    their ids cannot have been reused.
    """
    if grace > 0:
        running = await asyncio.to_thread(_find, chosen, leaders())
        deadline = asyncio.ensure_future(sleep(grace))  # only now: the first look takes its time, too
        try:
            if await _ended(running, deadline, chosen, leaders):
                return
        finally:
            deadline.cancel()
    await _kill(chosen, leaders)


async def _ended(
    running: set[int],
    deadline: asyncio.Future[None],
    chosen: Callable[[str], bool],
    leaders: Callable[[], set[int]],
) -> bool:
    """Send SIGTERM to each process once; return whether all have ended before the deadline."""
    signalled: set[int] = set()
    pause = FIRST_PAUSE
    while running:
        if signalled and deadline.done():
            return False
        _signal(running - signalled, signal.SIGTERM)
        signalled |= running
        await asyncio.wait([deadline], timeout=pause)
        pause = min(2 * pause, LONGEST_PAUSE)
        running = await asyncio.to_thread(_find, chosen, leaders())
    return True


async def freeze(mark: str, leaders: Callable[[], set[int]]) -> None:
    """Stop all processes of a host (SIGSTOP), also those that are just being started."""
    await asyncio.to_thread(_signal_all, mark, leaders(), signal.SIGSTOP)


async def thaw(mark: str, leaders: Callable[[], set[int]]) -> None:
    """Resume them (SIGCONT)."""
    await asyncio.to_thread(_signal_all, mark, leaders(), signal.SIGCONT)


def of_host(mark: str, leaders: set[int]) -> set[int]:
    """Return the ids of a host's processes."""
    return _find(mark.__eq__, leaders)


def _signal_all(mark: str, leaders: set[int], number: int) -> None:
    signalled: set[int] = set()
    while new := of_host(mark, leaders) - signalled:
        _signal(new, number)
        signalled |= new


async def _kill(chosen: Callable[[str], bool], leaders: Callable[[], set[int]]) -> None:
    for _ in range(KILL_ROUNDS):
        running = await asyncio.to_thread(_find, chosen, leaders())
        if not running:
            return
        _signal(running, signal.SIGKILL)
        await asyncio.sleep(FIRST_PAUSE)


def _find(chosen: Callable[[str], bool], leaders: set[int]) -> set[int]:
    table = snapshot()
    return belonging(table, chosen, leaders) - _ancestry(table)


def belonging(table: list[ProcessEntry], chosen: Callable[[str], bool], leaders: set[int]) -> set[int]:
    """Return the marked ones, the leaders, and their descendants and sessions, which may lack the mark."""
    pids = {entry.pid for entry in table if (entry.mark and chosen(entry.mark)) or entry.pid in leaders}
    while more := {
        entry.pid
        for entry in table
        if entry.pid not in pids and {entry.parent, entry.group, entry.session} & pids
    }:
        pids |= more
    return pids


def snapshot() -> list[ProcessEntry]:
    """Return this user's running processes, without zombies."""
    return _from_proc() if (PROC / "self" / "environ").exists() else _from_ps()


def _from_proc() -> list[ProcessEntry]:
    pids = [int(name) for name in os.listdir(PROC) if name.isdigit()]
    return [entry for entry in map(_proc_entry, pids) if entry is not None]


def _proc_entry(pid: int) -> ProcessEntry | None:
    try:
        environ, fields = _proc_read(pid)
        for _ in range(_EXEC_LOOKS):
            if environ or not _starts_a_program(fields):
                break
            time.sleep(_EXEC_PAUSE)
            environ, fields = _proc_read(pid)
    except OSError:  # it has ended meanwhile, or is another user's
        return None
    state, parent, group, session, *_ = fields
    if state in b"ZX":
        return None
    return ProcessEntry(pid, int(parent), int(group), int(session), _mark_in(environ))


def _proc_read(pid: int) -> tuple[bytes, list[bytes]]:
    """Return the environment of a process, and its `stat` from the field `state` on."""
    with open(f"{PROC}/{pid}/environ", "rb", buffering=0) as stream:
        environ = stream.readall()
    with open(f"{PROC}/{pid}/stat", "rb", buffering=0) as stream:
        return environ, stream.readall().rpartition(b")")[2].split()


def _starts_a_program(fields: list[bytes]) -> bool:
    """Tell whether a process whose environment reads as empty has one, or is about to have one.

    In execve its new memory, of some vsize, gets an environment, and then where its code begins; the kernel's
    own threads have no vsize. See proc(5), /proc/pid/stat, and create_elf_tables in Linux's fs/binfmt_elf.c.
    """
    if len(fields) < 49 or not int(fields[20]):
        return False
    start_code, env_start, env_end = int(fields[23]), int(fields[47]), int(fields[48])
    return not start_code or env_start < env_end


def _mark_in(environ: bytes) -> str:
    _, start, rest = (b"\0" + environ).partition(f"\0{MARK}=".encode())
    return os.fsdecode(rest.partition(b"\0")[0]) if start else ""


def _from_ps() -> list[ProcessEntry]:
    """macOS: `ps -E` shows the environment of the user's own processes, Apple's own programs excepted."""
    ps = subprocess.run(_PS, capture_output=True, text=True, errors="replace", check=True)
    return parse_ps(ps.stdout)


def parse_ps(text: str) -> list[ProcessEntry]:
    """Read the output of macOS's `ps`. It shows no session, so the group stands for it."""
    matches = filter(None, map(_PS_LINE.match, text.splitlines()))
    return [_ps_entry(*match.groups()) for match in matches if not match[4].startswith("(")]


def _ps_entry(pid: str, parent: str, group: str, command: str) -> ProcessEntry:
    mark = _PS_MARK.search(command)
    return ProcessEntry(int(pid), int(parent), int(group), int(group), mark[1] if mark else "")


def _ancestry(table: list[ProcessEntry]) -> set[int]:
    """The simulator's process and its ancestors, which may run on a simulated host themselves."""
    parents = {entry.pid: entry.parent for entry in table}
    line = {pid := os.getpid()}
    while (pid := parents.get(pid, 0)) > 1 and pid not in line:
        line.add(pid)
    return line


def _signal(pids: Iterable[int], number: int) -> None:
    """Send a signal to each, parents first: a supervisor gets it no later than its script."""
    for pid in sorted(pids):
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):  # it has ended, or its id is another user's by now
            pass
