"""The TPU chips of a host: whether they are there and free, who holds them, and whether the script does."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from typing import Callable, Dict, Iterable, List, Optional, Set

from tpuctl.host import timing
from tpuctl.host.worker.job import processes
from tpuctl.host.worker.records import Spec
from tpuctl.host.worker.reporting import PREFIX

LOCK = "/tmp/libtpu_lockfile"  # noqa: S108  libtpu's own
"""Who uses all chips of a host locks it: openxla/xla, xla/stream_executor/tpu/tpu_initialize_util.cc."""
LOCKS = "locks"
"""In /proc: all locks on files of this host with the process, which everybody may read. See proc(5)."""
SHARING = (
    "TPU_CHIPS_PER_PROCESS_BOUNDS",
    "TPU_CHIPS_PER_HOST_BOUNDS",
    "TPU_VISIBLE_CHIPS",
    "TPU_VISIBLE_DEVICES",
    "ALLOW_MULTIPLE_LIBTPU_LOAD",
)
"""Variables by which a script takes some of the chips: what holds others is not waited for."""
CLIENTS = (b"docker", b"podman", b"nerdctl", b"ctr")
"""Programs whose containers descend from a daemon and not from the script."""
SUDO = ("sudo", "-n")
SUDO_TIMEOUT = 10.0
MOST_NAMED = 10


def are_for_script(spec: Spec) -> bool:
    """Return whether the script is to hold chips; TensorFlow's on a slice uses the servers of its hosts."""
    return not (spec.framework == "tensorflow" and spec.workers > 1)


def await_devices(spec: Spec, log: str) -> None:
    """Wait until as many device files are there as the host has chips, and say so in the log.

    On v5e and later they come some time after SSH. The script starts without them, too: it may need none.
    """
    if not are_for_script(spec) or len(processes.devices()) >= spec.chips:
        return
    _write(log, "waiting for %d of %d TPU device files", spec.chips - len(processes.devices()), spec.chips)
    if not timing.wait_until(lambda: len(processes.devices()) >= spec.chips, timing.CHIPS_TIMEOUT):
        text = "%d of %d TPU device files are there after %d s: the script starts all the same"
        _write(log, text, len(processes.devices()), spec.chips, timing.CHIPS_TIMEOUT)


def await_free(spec: Spec, log: str) -> None:
    """Wait until nobody holds the chips, and write into the log who does; the script tells how it ends."""
    if not are_for_script(spec) or not processes.devices():
        return
    _remove_stale_lock(log)
    named: Set[int] = set()
    end = time.monotonic() + timing.CHIPS_TIMEOUT
    shares = any(name in spec.environment or name in os.environ for name in SHARING)
    while True:
        holders = _holders()
        new = sorted(set(holders) - named)
        for pid in new[: max(0, MOST_NAMED - len(named))]:
            _write(log, "%s is held by process %s of %s%s", holders[pid], *_described(pid))
        if holders and not named and not shares:
            _write(log, "waiting until that has ended, %d s at most", timing.CHIPS_TIMEOUT)
        named.update(new)
        if not holders or shares:
            return
        if time.monotonic() >= end:
            _write(log, "the chips are still held: the script starts all the same")
            return
        timing.sleep(timing.POLL_INTERVAL)


def _holders() -> Dict[int, str]:
    """Return the processes that hold a chip or libtpu's lock, with the file; those that this user can see."""
    present, hidden = processes.devices(), []
    found = dict.fromkeys(_lock_holders(processes.place(LOCK)), LOCK)
    for pid in processes.ids():
        try:
            held = processes.open_files(pid) & present
        except OSError:
            hidden.append(pid)
            continue
        found.update({pid: _name(min(held))} if held else {})
    found.update(_seen_by_root(hidden, present) if hidden else {})
    return found


def _seen_by_root(pids: Iterable[int], present: Iterable[str]) -> Dict[int, str]:
    """Return the same of processes whose open files this user may not see; nothing without sudo."""
    folders = ["%s/%d/fd" % (processes.PROC, pid) for pid in pids]
    links = [word for path in present for word in ("-o", "-lname", path)][1:]
    lines = _sudo("find", *folders, "(", *links, ")", "-printf", "%p %l\n").splitlines()
    pairs = (line.split(" ", 1) for line in lines)
    return {int(link.split("/")[-3]): _name(device) for link, device in pairs}


def _name(path: str) -> str:
    return path[len(processes.place("")) :]


def _lock_holders(path: str) -> Set[int]:
    """Return the processes that have locked a file; nothing where that cannot be known."""
    try:
        inode = os.stat(path).st_ino
        with open(os.path.join(processes.PROC, LOCKS), encoding="ascii") as stream:
            lines = [line.split() for line in stream]
    except OSError:
        return set()
    # 1: POSIX ADVISORY WRITE 4711 fe:00:2162884 0 EOF; the device's number is not that of stat everywhere
    found = (int(words[4]) for words in lines if len(words) == 8 and words[5].endswith(":%d" % inode))
    return {pid for pid in found if pid > 0}  # 0 is one of another namespace


def _remove_stale_lock(log: str) -> None:
    """Delete a lock file of another user that nobody has locked: libtpu could not open it.

    libtpu refuses all chips then, although nobody uses them.
    """
    path = processes.place(LOCK)
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return
    can_tell = os.access(os.path.join(processes.PROC, LOCKS), os.R_OK)
    if owner == os.geteuid() or not can_tell or _lock_holders(path):
        return
    user = _user(owner)
    try:
        os.unlink(path)
    except OSError:
        _sudo("rm", "-f", "--", path)
    if os.path.lexists(path):
        _write(
            log,
            "%s is of user '%s': if the chips are refused, run on each host: sudo rm -f %s",
            LOCK,
            user,
            LOCK,
        )
    else:
        _write(log, "deleted %s of user '%s', which no process had locked", LOCK, user)


def _sudo(*command: str) -> str:
    """Return what a command prints as root; nothing where this user may not do that without a password."""
    try:
        done = subprocess.run(
            [*SUDO, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SUDO_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def _described(pid: int) -> List[str]:
    """Return a process's number and command, its user, and the run of tpuctl that it is of."""
    try:
        user = _user(os.stat("%s/%d" % (processes.PROC, pid)).st_uid)
    except OSError:
        user = "somebody"
    run = processes.value_of(pid, "TPUCTL_RUN")
    return [processes.name(pid), user, ", of run '%s'" % run if run else ""]


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return "user %d" % number


def _write(log: str, text: str, *values: object) -> None:
    with open(log, "ab") as stream:
        stream.write((PREFIX + text % values + "\n").encode("utf-8", "replace"))


def script_holds_one(script: int, folder: str) -> Optional[bool]:
    """Return whether a process of the script in an attempt's folder holds a chip; None if nobody can tell."""
    present = processes.devices()
    table = processes.running(of_everyone=True)
    if not present or 1 not in table or script not in table:  # another user's processes may be hidden
        return None
    own = processes.stemming_from(table, script)
    own |= processes.with_variable(table, [processes.variable(folder)])
    is_known = True
    for pid in own:
        try:
            if processes.open_files(pid) & present:
                return True
        except OSError:
            is_known = False
        is_known = is_known and processes.program(pid) not in CLIENTS
    return False if is_known else None


class ChipWatch:
    """Looks whether the script holds a chip, from two minutes after its start until it has held one."""

    def __init__(self, spec: Spec, script: int, folder: str, note: Callable[[bool], object]) -> None:
        """`note` gets whether none is held, each time that this changes."""
        self._script, self._folder, self._note = script, folder, note
        self._next = time.monotonic() + timing.CHIP_LOOK if are_for_script(spec) else float("inf")
        self._holds_none = False

    def due(self) -> bool:
        """Return whether it is time to look."""
        return time.monotonic() >= self._next

    def look(self) -> None:
        """Look once; what cannot be known says nothing."""
        holds = script_holds_one(self._script, self._folder)
        self._next = float("inf") if holds else time.monotonic() + timing.HEARTBEAT
        if (holds is False) != self._holds_none and self._script in processes.running():
            self._holds_none = holds is False
            self._note(self._holds_none)
