"""Finds and ends every process of a host, the detached ones too: a daemon keeps its mark."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tpuctl.sim.records import Host

MARK = "TPUCTL_SIM_HOST"
"""Environment variable that every program of a host inherits."""
PROC = Path("/proc")
LOOK_AGAIN = 0.02
"""Seconds between two looks at the process table, at first."""
LOOK_AGAIN_MOST = 0.25
KILL_ROUNDS = 50
"""Looks after SIGKILL before giving up: a process can be stuck in the kernel."""

_PS = ("ps", "-axww", "-E", "-o", "pid=,ppid=,pgid=,command=")
_PS_LINE = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)\s(.*)")
_PS_MARK = re.compile(rf"(?:^|\s){MARK}=(\S+)")


@dataclass(frozen=True)
class Seen:
    """One line of the process table. `mark` is empty for a process that belongs to no host."""

    pid: int
    parent: int
    group: int
    session: int
    mark: str


def world_mark(pool: Path) -> str:
    """Return how the marks of all hosts in this folder begin; other simulators on the machine have others."""
    return hashlib.sha256(os.fsencode(pool.resolve())).hexdigest()[:12] + "-"


def host_mark(pool: Path, host: Host) -> str:
    """Return the mark of one host."""
    return f"{world_mark(pool)}{host.node_uid}-{host.worker}"


async def end_processes(chosen: Callable[[str], bool], leaders: Callable[[], set[int]], grace: float) -> None:
    """End all processes whose mark is `chosen`, and those of the sessions of `leaders`, with their children.

    SIGTERM first, SIGKILL `grace` seconds after it, at once when that is 0; returns once none is left.
    `leaders` are asked for at each look: children of this process that have not been waited for, so that
    their ids cannot be others' by now.
    """
    if grace <= 0:
        return await _kill(chosen, leaders)
    loop = asyncio.get_running_loop()
    deadline = 0.0
    told: set[int] = set()
    pause = LOOK_AGAIN
    while left := await asyncio.to_thread(_find, chosen, leaders()):
        if not told:
            deadline = loop.time() + grace  # the first look takes its time, too
        elif loop.time() >= deadline:
            return await _kill(chosen, leaders)
        _signal(left - told, signal.SIGTERM)
        told |= left
        await asyncio.sleep(min(pause, max(0.0, deadline - loop.time())))
        pause = min(2 * pause, LOOK_AGAIN_MOST)
    return None


async def freeze(mark: str, leaders: Callable[[], set[int]]) -> None:
    """Stop all processes of a host (SIGSTOP), also those that are just being started."""
    await asyncio.to_thread(_signal_all, mark, leaders(), signal.SIGSTOP)


async def thaw(mark: str, leaders: Callable[[], set[int]]) -> None:
    """Let them go on."""
    await asyncio.to_thread(_signal_all, mark, leaders(), signal.SIGCONT)


def of_host(mark: str, leaders: set[int]) -> set[int]:
    """Return the ids of a host's processes."""
    return _find(mark.__eq__, leaders)


def _signal_all(mark: str, leaders: set[int], number: int) -> None:
    told: set[int] = set()
    while new := of_host(mark, leaders) - told:
        _signal(new, number)
        told |= new


async def _kill(chosen: Callable[[str], bool], leaders: Callable[[], set[int]]) -> None:
    for _ in range(KILL_ROUNDS):
        left = await asyncio.to_thread(_find, chosen, leaders())
        if not left:
            return
        _signal(left, signal.SIGKILL)
        await asyncio.sleep(LOOK_AGAIN)


def _find(chosen: Callable[[str], bool], leaders: set[int]) -> set[int]:
    table = snapshot()
    ours = belonging(table, chosen, leaders)
    return ours - _ourselves(table)


def belonging(table: list[Seen], chosen: Callable[[str], bool], leaders: set[int]) -> set[int]:
    """Return the marked ones and, for those that shed their environment, their descendants and sessions."""
    found = {seen.pid for seen in table if (seen.mark and chosen(seen.mark)) or seen.pid in leaders}
    while more := {
        seen.pid
        for seen in table
        if seen.pid not in found and {seen.parent, seen.group, seen.session} & found
    }:
        found |= more
    return found


def snapshot() -> list[Seen]:
    """Return this user's processes that run; a zombie has ended already."""
    return _from_proc() if (PROC / "self" / "environ").exists() else _from_ps()


def _from_proc() -> list[Seen]:
    pids = [int(name) for name in os.listdir(PROC) if name.isdigit()]
    return [seen for seen in map(_proc_entry, pids) if seen is not None]


def _proc_entry(pid: int) -> Seen | None:
    try:
        stat = (PROC / str(pid) / "stat").read_bytes()
        environ = (PROC / str(pid) / "environ").read_bytes()
    except OSError:  # it has ended meanwhile, or is another user's
        return None
    state, parent, group, session, *_ = stat.rpartition(b")")[2].split()
    if state in b"ZX":
        return None
    return Seen(pid, int(parent), int(group), int(session), _mark_in(environ))


def _mark_in(environ: bytes) -> str:
    start = f"{MARK}=".encode()
    return next((os.fsdecode(one[len(start) :]) for one in environ.split(b"\0") if one.startswith(start)), "")


def _from_ps() -> list[Seen]:
    """macOS: `ps -E` shows the environment of the user's own processes, Apple's own programs excepted."""
    answer = subprocess.run(_PS, capture_output=True, text=True, errors="replace", check=True)
    return parse_ps(answer.stdout)


def parse_ps(text: str) -> list[Seen]:
    """Read the output of macOS's `ps`. It shows no session, so the group stands for it."""
    matches = filter(None, map(_PS_LINE.match, text.splitlines()))
    return [_ps_entry(*match.groups()) for match in matches if not match[4].startswith("(")]


def _ps_entry(pid: str, parent: str, group: str, command: str) -> Seen:
    mark = _PS_MARK.search(command)
    return Seen(int(pid), int(parent), int(group), int(group), mark[1] if mark else "")


def _ourselves(table: list[Seen]) -> set[int]:
    """The simulator and what it descends from, which may itself run on a simulated host."""
    parents = {seen.pid: seen.parent for seen in table}
    line = {pid := os.getpid()}
    while (pid := parents.get(pid, 0)) > 1 and pid not in line:
        line.add(pid)
    return line


def _signal(pids: Iterable[int], number: int) -> None:
    """Send a signal to each, parents first: a supervisor hears of it no later than its script."""
    for pid in sorted(pids):
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):  # ended meanwhile; or has become another user's
            pass
