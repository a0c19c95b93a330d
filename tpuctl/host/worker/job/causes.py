"""Recognizes why a script ended: what the host announced, no memory, no space on the disk, no chips."""

from __future__ import annotations

import errno
import os
import re

from tpuctl.host import timing
from tpuctl.host.wire import ask_metadata
from tpuctl.host.worker.records import (
    CHIPS_HELD,
    CHIPS_LOCKED,
    DISK_FULL,
    MAINTENANCE,
    OUT_OF_MEMORY,
    PREEMPTION,
)

TAIL = 32 * 1024
"""Bytes of a log's end that are looked at; a table of allocations follows the sentence on memory."""
LONGEST_LINE = 300
"""Characters of a log's last line that the status gets."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LITTLE_SPACE = 1024 * 1024
"""Free bytes below which a disk counts as full."""
PROBE = 64 * 1024
"""Bytes that can be written where a disk is not full."""
_IN_LOG = (
    (re.compile(rb"No space left on device|Disk quota exceeded|\[Errno (28|122|27)\]"), DISK_FULL),
    (
        re.compile(
            rb"^MemoryError|RESOURCE_EXHAUSTED: .{0,400}(memory|HBM|hbm)|std::bad_alloc"
            # before 2022, and of buffers: https://github.com/pytorch/xla/issues/1735
            rb"|Attempting to (reserve|allocate) [^\n]{1,80}That was not possible"
            rb"|Ran out of memory in memory space|Exceeded hbm capacity",
            re.M,
        ),
        OUT_OF_MEMORY,
    ),
    (
        re.compile(
            # what libtpu and XLA say of a lock file that another user may have left:
            # https://github.com/openxla/xla/pull/4666, https://github.com/jax-ml/jax/issues/10192
            rb"already in used? by another process probably owned by another user"
            rb"|Internal error when accessing libtpu multi-process lockfile"
            rb"|TPU [^\n]{0,80}in use or the lock ?file is stale"
        ),
        CHIPS_LOCKED,
    ),
    (
        re.compile(
            rb"The TPU is already in use by process"
            rb"|libtpu\.so already in used? by another process"
            rb"|/dev/(accel|vfio)[^\n]{0,400}Device or resource busy"
            rb"|Device or resource busy[^\n]{0,400}/dev/(accel|vfio)"
        ),
        CHIPS_HELD,
    ),
)
_OOM_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def of_stop() -> str:
    """Return what the metadata server announces for a host that is being stopped; "" for nothing."""
    if _metadata("preempted") == "TRUE":
        return PREEMPTION
    return MAINTENANCE if _metadata("maintenance-event") not in ("", "NONE") else ""


def of_error(error: BaseException) -> str:
    """Return the cause of an exception of the supervisor itself; "" for an unknown one."""
    return DISK_FULL if isinstance(error, OSError) and error.errno in NO_SPACE else ""


def of_failure(log: str, signal: str, oom_kills: int) -> str:
    """Return the cause of a script's failure; `oom_kills` are those of the host before it started."""
    if signal == "SIGKILL" and count_oom_kills() > oom_kills:
        return OUT_OF_MEMORY
    if signal == "SIGXFSZ":
        return DISK_FULL
    end = _end(log)
    for pattern, cause in _IN_LOG:
        if pattern.search(end):
            return cause
    return DISK_FULL if _is_full(os.path.dirname(log)) else ""


def last_line(log: str) -> str:
    """Return the last line of a log that is not empty."""
    lines = [line.strip() for line in re.split(rb"[\r\n]", _end(log))]
    text = next((line for line in reversed(lines) if line), b"").decode("utf-8", "replace")
    return text[:LONGEST_LINE]


def count_oom_kills() -> int:
    """Return how many processes of this host the kernel has killed for want of memory."""
    try:
        with open("/proc/vmstat", encoding="ascii") as stream:
            match = _OOM_KILLS.search(stream.read())
    except OSError:  # not Linux
        return 0
    return int(match.group(1)) if match else 0


def _end(log: str) -> bytes:
    try:
        with open(log, "rb") as stream:
            stream.seek(max(0, os.path.getsize(log) - TAIL))
            return stream.read(TAIL)
    except OSError:
        return b""


def _is_full(folder: str) -> bool:
    """Return whether little is free, or nothing more can be written: for want of a quota or of inodes."""
    import tempfile  # noqa: PLC0415  slow, and only a script that failed needs it

    try:
        disk = os.statvfs(folder)
        if disk.f_bavail * disk.f_frsize < LITTLE_SPACE:
            return True
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(PROBE))
    except OSError as error:
        return error.errno in NO_SPACE
    return False


def _metadata(name: str) -> str:
    try:
        answer = ask_metadata("instance/" + name, timing.METADATA_TIMEOUT)
    except OSError:  # no answer is no announcement
        return ""
    return answer.text.strip() if answer.status == 200 else ""
