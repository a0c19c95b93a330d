"""Runs the program as a process group: stops it by SIGTERM, kills it if it ignores that.

- Recognizes why a script ended: what the host announced, no memory, no space on the disk, no chips.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import time
from typing import Dict, List, Mapping, Optional, Sequence

from tpuctl.host import timing
from tpuctl.host.wire import ask_metadata
from tpuctl.host.worker.control import hold
from tpuctl.host.worker.records import (
    CELLS_FILE,
    CHIPS_HELD,
    CHIPS_LOCKED,
    CODE,
    COMMAND,
    DISK_FULL,
    EXECUTED,
    MAINTENANCE,
    MODULE,
    NOTEBOOK,
    OUT_OF_MEMORY,
    PLACEHOLDER,
    PLACEHOLDERS,
    PREEMPTION,
    SHELL,
    Spec,
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
    import tempfile  # slow, and only a script that failed needs it

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


STOP_CODES = tuple(code for number in (signal.SIGTERM, signal.SIGKILL) for code in (-number, 128 + number))
"""Return codes of a script that was stopped from outside, or that reports so itself."""


def command(spec: Spec, variables: Mapping[str, str], python: str) -> List[str]:
    """Return what is started in the working folder; arguments have variables in place of their names."""
    arguments = [_filled(text, variables) for text in spec.arguments]
    if spec.kind == COMMAND:
        return [_filled(spec.script, variables), *arguments]
    if spec.kind == MODULE:
        return [python, "-u", "-m", spec.script, *arguments]
    script = os.path.relpath(spec.script, spec.directory or ".")
    if spec.kind == NOTEBOOK:
        code = os.path.join(CODE, spec.directory)
        written = os.path.join(EXECUTED, os.path.basename(spec.script))
        program, target = os.path.relpath(CELLS_FILE, code), os.path.relpath(written, code)
        return [python, "-u", program, script, target, *arguments]
    start = ["/bin/bash", "--"] if spec.kind == SHELL else [python, "-u", "--"]
    return [*start, script, *arguments]


def _filled(text: str, variables: Mapping[str, str]) -> str:
    """Return text with the values of the variables that it names in braces."""
    return PLACEHOLDER.sub(
        lambda match: variables[match[1]] if match[1] in PLACEHOLDERS and match[1] in variables else match[0],
        text,
    )


class Script:
    """One running script; its output goes to the end of the file `log`."""

    def __init__(
        self, command: Sequence[str], folder: str, environment: Dict[str, str], log: str, lock: str
    ) -> None:
        """Start it in `folder`; it holds the file `lock` as long as it lives."""
        descriptor = hold(lock)
        try:
            with open(log, "ab") as output:
                os.utime(output.fileno())  # what was printed before was not by the script
                self._process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=[descriptor] if descriptor >= 0 else [],
                )
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        self._stop_sent = 0.0

    @property
    def pid(self) -> int:
        """The process's id on this host."""
        return self._process.pid

    def poll(self) -> Optional[int]:
        """Return the return code, negative for a signal, or None while the script runs."""
        return self._process.poll()

    def stop(self, *, is_signalled: bool = False, grace: Optional[float] = None) -> None:
        """Send SIGTERM to the script and its children, unless it `is_signalled`, as by a host that stops.

        Called again after `grace` seconds, by default `timing.STOP_GRACE`, send SIGKILL.
        """
        grace = timing.STOP_GRACE if grace is None else grace
        if not self._stop_sent:
            self._stop_sent = time.monotonic()
            if not is_signalled:
                self._signal(signal.SIGTERM)
        elif time.monotonic() > self._stop_sent + grace:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass


class Sentinel:
    """A process that only a host signals that stops: it signals all, the script too.

    It ends with the supervisor, as nothing holds its input open any more.
    """

    def __init__(self) -> None:
        self._process: Optional["subprocess.Popen[bytes]"] = None
        try:
            self._process = subprocess.Popen(
                ["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
            )
        except OSError:  # without it a script may get SIGTERM twice
            pass

    @property
    def pid(self) -> int:
        """Its id on this host; 0 without it."""
        return self._process.pid if self._process else 0

    @property
    def is_signalled(self) -> bool:
        """Whether it has ended."""
        return self._process is not None and self._process.poll() is not None

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
