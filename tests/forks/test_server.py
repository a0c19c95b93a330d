"""The server of forks: it ends with who started it, and its commands are as those of a new Python."""

from __future__ import annotations

import subprocess
import sys

from tests.forks.commands import Program
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


REFUSED = """
import socket
from concurrent.futures import ThreadPoolExecutor
import grpc
with socket.create_server(("127.0.0.1", 0)) as taken:
    try:
        server = grpc.server(ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
        server.add_insecure_port(f"127.0.0.1:{taken.getsockname()[1]}")
    except RuntimeError:
        print("refused")
"""


def test_grpc_writes_no_log_in_a_command() -> None:
    """One that becomes ssh has ended gRPC's threads in the middle of something."""
    with Program("-c", REFUSED, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as refused:
        assert refused.communicate(timeout=120) == ("refused\n", "")
