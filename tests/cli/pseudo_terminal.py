"""Runs tpuctl in a pseudo-terminal of any width, as a user sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios


def in_terminal(
    *arguments: str, columns: int, program: tuple[str, ...] = ("-m", "tpuctl"), typed: str = "",
    **variables: str,
) -> str:  # fmt: skip
    """Return what a Python program shows on a terminal of so many columns, with line ends as in files.

    `typed` is what its user has typed before it asks.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, *program, *arguments],
        stdin=follower, stdout=follower, stderr=follower,
        env={**environment, "TERM": "xterm-256color", **variables}, start_new_session=True,
    )  # fmt: skip
    os.close(follower)
    os.write(leader, typed.encode())
    shown = _read_all(leader)
    os.close(leader)
    process.wait(60)
    return shown.replace("\r\n", "\n")


def _read_all(descriptor: int) -> str:
    chunks = []
    while True:
        try:
            chunk = os.read(descriptor, 1 << 16)
        except OSError:  # Linux: the other end is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    return b"".join(chunks).decode()
