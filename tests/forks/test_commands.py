"""A program that runs as a fork is like one of `subprocess.Popen`.

The server of forks: it ends with who started it, and its commands are as those of a new Python.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forks.commands import Program, start
from tests.paths import ROOT

PIPES = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
ECHO = "import sys; sys.stdout.write(sys.stdin.read()); sys.stderr.write(' '.join(sys.argv[1:])); sys.exit(7)"
ENDLESS = "import sys, time; print('runs', flush=True); time.sleep(1000)"


def test_it_gets_its_input_and_arguments_and_gives_its_output_and_exit_code() -> None:
    with Program("-c", ECHO, "a", "b", **PIPES, text=True) as program:
        assert program.communicate("what is typed", timeout=60) == ("what is typed", "a b")
    assert program.returncode == 7


def test_its_errors_go_where_its_output_goes_if_asked_to() -> None:
    text = "import sys; print('out', flush=True); print('error', file=sys.stderr)"
    with Program("-c", text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as program:
        assert program.communicate(timeout=60)[0] == b"out\nerror\n"


def test_it_has_the_environment_and_the_folder_that_a_process_of_popen_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A", "inherited")
    text = "import os; print(os.getcwd(), os.environ.get('A'), len(os.environ))"
    answers = []
    for options in ({}, {"env": {"B": "1"}}):
        with Program("-c", text, stdout=subprocess.PIPE, text=True, **options) as program:
            answers.append(program.communicate(timeout=60)[0].split())
    assert answers == [[str(tmp_path), "inherited", str(len(os.environ))], [str(tmp_path), "None", "1"]]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_it(number: signal.Signals) -> None:
    with Program("-c", ENDLESS, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        assert program.stdout.readline() == "runs\n"
        assert program.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(0.01)
        program.send_signal(number)
        assert program.wait(60) == -number
        program.kill()  # one that has ended: nobody gets the signal


def test_it_leads_a_session_as_soon_as_it_has_been_started() -> None:
    with Program("-c", ENDLESS, stdout=subprocess.PIPE) as program:
        assert program.pid == os.getsid(program.pid) == os.getpgid(program.pid)
        os.killpg(program.pid, signal.SIGKILL)
        assert program.wait(60) == -signal.SIGKILL


def test_ctrl_c_is_an_exception_in_it() -> None:
    text = f"try:\n {ENDLESS}\nexcept KeyboardInterrupt:\n print('interrupted')"
    with Program("-c", text, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        program.stdout.readline()
        program.send_signal(signal.SIGINT)
        assert program.communicate(timeout=60)[0] == "interrupted\n"
        assert program.returncode == 0


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Its output ends with it."""
    starter = (
        "import sys, os; from tests.forks.commands import Program;"
        f"Program('-c', {ENDLESS!r}, stdout=1); sys.stdin.read(1); os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", starter]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"runs\n"
        process.stdin.write(b"x")
        process.stdin.flush()
        assert process.stdout.read() == b""


@pytest.mark.parametrize(("command", "code"), [(("help", "up"), 0), (("no-such-command",), 2)])
def test_it_is_tpuctl(home: Path, command: tuple[str, ...], code: int) -> None:
    own: list[Any] = []
    for program in (
        start(*command, **PIPES, text=True),
        subprocess.Popen([sys.executable, "-m", "tpuctl", *command], **PIPES, text=True),
    ):
        with program:
            own.append((*program.communicate("", timeout=60), program.returncode))
    assert own[0] == own[1]
    assert own[0][2] == code


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
