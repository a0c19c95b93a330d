"""The server of forks ends with who started it, however that ended."""

from __future__ import annotations

import subprocess
import sys

from tests.paths import ROOT

STARTER = """
import os, socket, subprocess, sys
listener = socket.create_server(("127.0.0.1", 0))
subprocess.Popen(
    [sys.executable, "-m", "tests.forks.server", "commands", str(listener.fileno()), str(os.getpid())],
    pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL,
)
os.kill(os.getpid(), 9)
"""


def test_it_ends_when_its_starter_was_killed() -> None:
    """Its end is that of the output, which it has inherited."""
    command = [sys.executable, "-c", STARTER]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (-9, b""), ended.stderr
