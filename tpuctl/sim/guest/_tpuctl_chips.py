"""Holds the chips of a host for one process as libtpu does: by their device files and a lock file.

Which programs share them, and what a second one is told: TryAcquireTpuLock in openxla/xla,
xla/stream_executor/tpu/tpu_initialize_util.cc. Standard library only.
"""

from __future__ import annotations

import atexit
import fcntl
import glob
import os
from collections.abc import Mapping

LOCK = "/tmp/libtpu_lockfile"  # noqa: S108  libtpu's own
DEVICES = ("/dev/accel[0-9]*", "/dev/vfio/[0-9]*")
WHOLE_HOST = ("", "2,2,1")
"""Values of BOUNDS that leave no chip to another process."""
BOUNDS = ("TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_CHIPS_PER_HOST_BOUNDS")
VISIBLE = ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES")

_held: dict[int, list[int]] = {}
"""Descriptors by process id: closing them would give the chips back, and a forked child has no lock."""


def take(environ: Mapping[str, str]) -> str:
    """Take the chips until this process ends; return '', or why it cannot, as libtpu says it.

    The host's files are below TPUCTL_HOST_ROOT; without it there is no host, and nothing to take.
    """
    root = environ.get("TPUCTL_HOST_ROOT", "")
    if not root or os.getpid() in _held:
        return ""
    root = os.path.realpath(root)
    names = sorted(path[len(root) :] for name in DEVICES for path in glob.glob(root + name))
    descriptors = list[int]()
    refusal = "" if _shares(environ) else _lock(root, names[0] if names else "", descriptors)
    refusal = refusal or _open(root, _visible(environ, names), descriptors)
    if refusal:
        for descriptor in descriptors:
            os.close(descriptor)
        return refusal
    _held[os.getpid()] = descriptors
    _show(root)
    return ""


def _lock(root: str, first: str, descriptors: list[int]) -> str:
    path = root + LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except PermissionError:
        return _of_another_user(first)
    descriptors.append(descriptor)
    if os.fstat(descriptor).st_uid != os.geteuid():
        return _of_another_user(
            first
        )  # in /tmp root cannot open it either: proc_sys_fs(5), protected_regular
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = _holders(root).get(first)
        if holder is None:
            return f'Internal error when accessing libtpu multi-process lockfile. Run "$ sudo rm {LOCK}".'
        return (
            f"The TPU is already in use by process with pid {holder}. "
            "Not attempting to load libtpu.so in this process."
        )
    atexit.register(_remove, path, os.getpid())
    return ""


def _of_another_user(first: str) -> str:
    return (
        "The TPU is already in use by another process probably owned by another user. "
        f'Run "$ sudo lsof -w {first}" to figure out which process is using the TPU. '
        f'If you still get this message, run "$ sudo rm {LOCK}".'
    )


def _remove(path: str, pid: int) -> None:
    """Delete a file at the end of this process, if it is not killed, as libtpu deletes its lock file."""
    if pid == os.getpid() and pid in _held:
        try:
            os.unlink(path)
        except OSError:
            pass


def _show(root: str) -> None:
    """Show this process in the host's /proc, where the keeper of the host looks for who holds chips."""
    entry = f"{root}/proc/{os.getpid()}"
    try:
        os.symlink(f"/proc/{os.getpid()}", entry)
    except OSError:  # a host without one; or the program before one that it became
        return
    atexit.register(_remove, entry, os.getpid())


def _open(root: str, names: list[str], descriptors: list[int]) -> str:
    """Open the chips; the words for one that is held are those of public logs with /dev/vfio."""
    holders = _holders(root)
    for name in names:
        if name in holders:
            return f"TPU initialization failed: open({name}): Device or resource busy"
        descriptors.append(os.open(root + name, os.O_RDWR | os.O_CLOEXEC))
    return ""


def _visible(environ: Mapping[str, str], names: list[str]) -> list[str]:
    """Return the chips that the program asks for, by their numbers."""
    chosen = next(filter(None, map(environ.get, VISIBLE)), "")
    numbers = chosen.split(",") if chosen else []
    return [name for name in names if not chosen or name[len(name.rstrip("0123456789")) :] in numbers]


def _holders(root: str) -> dict[str, int]:
    """Return the other processes that have chips open, by chip; nothing where there is no /proc."""
    found = dict[str, int]()
    for link in glob.iglob("/proc/[0-9]*/fd/*"):
        try:
            target = os.readlink(link)
        except OSError:  # it has ended, or closed the file
            continue
        pid = int(link.split("/")[2])
        if target.startswith(root + "/dev/") and pid != os.getpid():
            found.setdefault(target[len(root) :], pid)
    return found


def _shares(environ: Mapping[str, str]) -> bool:
    """Whether the program says that it takes some of the chips, or that the lock is not for it."""
    if environ.get("TPU_LOAD_LIBRARY") == "1" or environ.get("ALLOW_MULTIPLE_LIBTPU_LOAD") in ("1", "true"):
        return True
    return next(filter(None, map(environ.get, BOUNDS)), "") not in WHOLE_HOST
