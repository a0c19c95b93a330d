"""Holds the chips of a host for one process, by a lock that ends with the process, as libtpu does.

Which programs share them, and what a second one is told, is in TryAcquireTpuLock of TensorFlow's and JAX's
tpu_initializer_framework_helper.cc. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

LOCK = "libtpu_lockfile"
"""In the host's folder, which programs know by TPUCTL_SIM_DISK; without it there is no host, and no lock."""
WHOLE_HOST = ("", "2,2,1")
"""Values of BOUNDS that leave no chip to another process."""
BOUNDS = ("TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_CHIPS_PER_HOST_BOUNDS")

_held: dict[int, int] = {}
"""The descriptor by process id: closing it would end the lock, and a forked child has no lock."""


def take(environ: Mapping[str, str]) -> str:
    """Take the chips until this process ends; return '', or why it cannot, as libtpu says it."""
    folder = environ.get("TPUCTL_SIM_DISK")
    if not folder or os.getpid() in _held or _shares(environ):
        return ""
    descriptor = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        holder = Path(folder, LOCK).read_text()
        return (
            f"The TPU is already in use by process with pid {holder}. "
            "Not attempting to load libtpu.so in this process."
        )
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    _held[os.getpid()] = descriptor
    return ""


def _shares(environ: Mapping[str, str]) -> bool:
    """Whether the program says that it takes some of the chips, or that the lock is not for it."""
    if environ.get("TPU_LOAD_LIBRARY") == "1":
        return True
    return next(filter(None, map(environ.get, BOUNDS)), "") not in WHOLE_HOST
