"""Resumes one attempt of a run on this host: after a reboot of this host, or of another one of the run."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from typing import Callable, List, Optional

from tpuctl.host import gcs, timing
from tpuctl.host.worker.attempt_lock import is_held_in, take
from tpuctl.host.worker.records import LOCK_FILE, REBOOT, Spec, WorkerStatus, encode
from tpuctl.host.worker.reporting.logs import say
from tpuctl.host.worker.reporting.status import read_last, status_of
from tpuctl.host.worker.resumption import kept
from tpuctl.host.worker.resumption.meeting import Meeting

NOTE = "# tpuctl: resumes runs after a reboot"
LINE = (
    '@reboot for f in "$HOME"/.tpuctl/runs/*/*/resume; do [ -f "$f" ] && setsid sh "$f" & done; wait  ' + NOTE
)
"""Does nothing where no attempt has the file."""
TIMEOUT = 20.0
"""Seconds for an answer of the program crontab."""


def ensure() -> None:
    """Add the line to the user's crontab, unless it has it; other lines stay.

    Raises OSError for a host without cron, and where cron refuses.
    """
    folder = os.path.join(os.path.expanduser("~"), ".tpuctl")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(os.path.join(folder, "crontab.lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs that start at once add one line
        lines = _lines()
        if LINE in lines:
            return
        others = [line for line in lines if NOTE not in line]
        _write("".join(line + "\n" for line in [*others, LINE]))


def _lines() -> List[str]:
    listed = _crontab("-l")
    if listed.returncode and b"no crontab for" not in listed.stderr:
        raise OSError("crontab -l: %s" % listed.stderr.decode("utf-8", "replace").strip())
    return listed.stdout.decode("utf-8", "surrogateescape").splitlines()


def _write(text: str) -> None:
    written = _crontab("-", text.encode("utf-8", "surrogateescape"))
    if written.returncode:
        raise OSError("crontab: %s" % written.stderr.decode("utf-8", "replace").strip())


def _crontab(argument: str, text: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    program = shutil.which("crontab")
    if program is None:
        raise OSError("this host has no crontab")
    return subprocess.run(
        [program, argument], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT,
        check=False,
    )  # fmt: skip


SOON = 120.0
"""Seconds within which an attempt that a reboot ended was lost at once, as in flows/runs/restarts.py."""
MOST_LOST_AT_ONCE = 2
"""Attempts in a row: after these a watcher replaces the machine."""
Start = Callable[[str], int]
"""`launch` of the program, which takes the path of a spec."""
LastWord = Callable[[Spec, str], None]
"""Says in the bucket how a worker ended that did not say so."""


def resume(folder: str, say_last_word: LastWord, start: Start) -> int:
    """Start the next attempt of the run in an attempt's folder, if its host's restart is why it ended."""
    spec = kept.read(folder)
    if spec is None:
        return 0
    with open(os.path.join(folder, "resume.lock"), "ab") as lock:
        if not take(lock):
            return 0
        path = _prepared(spec, folder, say_last_word)
    code = start(path) if path else 0
    kept.forget(folder)
    return code


def after_end(folder: str) -> None:
    """Forget an attempt that has ended, unless a reboot is why: of this host, or of another one of the run.

    For another host the command waits in a process of its own: this one holds the lock of the attempt.
    """
    status = last_status(folder)
    if status is None or (status.stopped and not status.stopped_by):
        return  # the command runs at the next boot
    if not concerns(status):
        kept.forget(folder)
    elif os.path.exists(os.path.join(folder, kept.COMMAND_FILE)):
        command = ["sh", os.path.join(folder, kept.COMMAND_FILE)]
        subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)


def concerns(status: WorkerStatus) -> bool:
    """Return whether a reboot may have ended a worker's script: its host's, or that of another worker."""
    return not status.stopped_by and bool(status.stopped or status.peer is not None)


def last_status(folder: str) -> Optional[WorkerStatus]:
    """Return the newest status on this host's disk; None without one."""
    return status_of(read_last(folder))


def _prepared(spec: Spec, folder: str, say_last_word: LastWord) -> str:
    """Return the path of the next attempt's spec once all hosts are there; empty where none follows."""
    if not timing.wait_until(lambda: not is_held_in(folder, LOCK_FILE), timing.START_TIMEOUT):
        return ""  # its supervisor lives: nothing was restarted
    bucket = gcs.Bucket(spec.bucket)
    try:
        say_last_word(spec, folder)
        status = last_status(folder)
        meeting = Meeting(bucket, spec, status) if status else None
        if status is None or meeting is None:
            return ""
        lost = _lost_at_once(spec, status)
        if not concerns(status) or lost >= MOST_LOST_AT_ONCE:
            say("not resumed: %s" % _reason_against(status, lost))
            meeting.refuse()
            return ""
        return _written(meeting.successor.spec(lost_at_once=lost), folder) if meeting.wait() else ""
    finally:
        bucket.close()


def _reason_against(status: WorkerStatus, lost: int) -> str:
    if lost >= MOST_LOST_AT_ONCE:
        return "%d attempts in a row were lost at once; 'tpuctl watch' replaces the TPU" % lost
    if status.stopped_by:
        return "%s asked to stop it" % status.stopped_by
    return "it had ended before: exit code %s, %s" % (status.exit_code, status.error or "no error")


def _lost_at_once(spec: Spec, status: WorkerStatus) -> int:
    """Return how many attempts in a row, this one included, a reboot without notice has ended at once."""
    before = spec.resumption.lost_at_once if spec.resumption else 0
    if status.cause != REBOOT:
        return 0
    return before + 1 if timing.between(status.started, status.heartbeat) <= SOON else 0


def _written(spec: Spec, folder: str) -> str:
    """Write program and spec of an attempt into its folder beside `folder`, and return the spec's path."""
    following = os.path.join(os.path.dirname(os.path.abspath(folder)), str(spec.attempt))
    os.makedirs(following, mode=0o700, exist_ok=True)
    shutil.copyfile(os.path.join(folder, "worker.zip"), os.path.join(following, "worker.zip"))
    path = os.path.join(following, "spec.json")
    with open(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as stream:
        stream.write(encode(spec))
    say("resumed as attempt %d" % spec.attempt)
    return path
