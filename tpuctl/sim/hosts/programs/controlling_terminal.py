"""Makes the terminal on stdin the controlling one of this new session, then becomes another program.

Run as a script, `controlling_terminal.py PROGRAM ARGV0 ARGV1...`: between fork and exec no Python code may
run in a process that has threads, so this step is a program of its own. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios

IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these signals from its start, and a program would inherit that through exec."""


def main(arguments: list[str]) -> None:
    """Take the terminal and become the program; does not return."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    os.execv(arguments[0], arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
