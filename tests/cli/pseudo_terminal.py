"""Runs tpuctl in a pseudo-terminal of any width, as a user sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from threading import Thread

from tests.forks.commands import run


def in_terminal(
    *arguments: str, columns: int, program: tuple[str, ...] = ("-m", "tpuctl"), typed: str = "",
    pauses: bool = True, **variables: str,
) -> str:  # fmt: skip
    """Return what a Python program shows on a terminal of so many columns, with line ends as in files.

    `typed` is what its user has typed before it asks. `pauses`: see `commands.run`.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    reading = Thread(target=_read_all, args=(leader, chunks := []), daemon=True)
    reading.start()
    os.write(leader, typed.encode())
    try:
        terminal = {**environment, "TERM": "xterm-256color", **variables}
        run((*program, *arguments), terminal, [follower] * 3, pauses=pauses)
    finally:
        os.close(follower)
        reading.join()
        os.close(leader)
    return b"".join(chunks).decode().replace("\r\n", "\n")


def _read_all(descriptor: int, chunks: list[bytes]) -> None:
    """Read until nobody has the other end open."""
    while True:
        try:
            chunk = os.read(descriptor, 1 << 16)
        except OSError:  # Linux: the other end is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
