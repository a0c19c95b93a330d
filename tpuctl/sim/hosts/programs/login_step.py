"""Becomes another program as sshd starts one: signals as at a login, perhaps a controlling terminal.

Run as a script, `login_step.py terminal|pipes PROGRAM ARGV0 ARGV1...`: between fork and exec no Python may
run in a process that has threads, so this step is a program of its own. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios

NEVER_IGNORED = (signal.SIGKILL, signal.SIGSTOP)


def main(arguments: list[str]) -> None:
    """Take the terminal on stdin if there is one, and become the program; does not return."""
    streams, program, *argv = arguments
    if streams == "terminal":
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in signal.valid_signals():
        if number not in NEVER_IGNORED:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execv(program, argv)  # noqa: S606  the program that a user of the host asked for


if __name__ == "__main__":
    main(sys.argv[1:])
