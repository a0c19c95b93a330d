"""Has cron run, at each boot of the host, the command of every attempt that is to be resumed.

A line of the user's own crontab: it needs no rights of root, and no other program on the host.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from typing import List

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
