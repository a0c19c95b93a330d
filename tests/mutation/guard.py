"""Runs a program, and ends what it has started once it or the process above has ended, however that ends.

The stdin of `python guard.py PROGRAM ...` is a pipe that ends with the process above. Exits with the code of
the program. What its descendants leave behind becomes a child of this process.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from contextlib import suppress

import psutil

PR_SET_CHILD_SUBREAPER = 36


def main(command: list[str]) -> int:
    """Run a program to its end and return its exit code."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=_await_end_above, daemon=True).start()
    code = None
    while code is None:
        pid, status = os.wait()  # of orphans, too
        if pid == program.pid:
            code = program.returncode = os.waitstatus_to_exitcode(status)
    with suppress(ChildProcessError):
        while True:
            _kill_descendants()
            os.wait()
    return code if code >= 0 else 128 - code


def _await_end_above() -> None:
    while os.read(0, 1):  # not by sys.stdin: Python closes that at its end
        pass
    _kill_descendants()


def _kill_descendants() -> None:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            process.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
