"""Ctrl-C in a shell without a terminal, as `timeout -s INT` and CI send it, says so and what may bill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator

Tpuctl = Callable[..., CommandResult]

HALF_MADE = """
import os, sys
from tpuctl.cli import main

class Client:
    def __del__(self):
        raise AttributeError("it was never made")

def command(*_, **__):
    client = Client()
    os.kill(os.getpid(), int(sys.argv[1]))
    return client

main.cli.main = command
main.main()
"""


@pytest.fixture
def interrupted(simulator: RunningSimulator) -> Iterator[Callable[..., CommandResult]]:
    """Runs a command in a process group of its own, which gets SIGINT once a method was called."""
    processes: list[subprocess.Popen[str]] = []

    def call(method: str, *arguments: str) -> CommandResult:
        before = len(simulator.events.find(kind="request", what=method))
        process = commands.start(
            *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
        while len(simulator.events.find(kind="request", what=method)) == before:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        return CommandResult(process.returncode, out, err)

    yield call
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("command", "method", "polled"),
    [
        (("up", "v3-8", "--name", "n2"), "CreateNode", "may bill"),
        (("stop", "n1"), "StopNode", "may still bill"),
        (("down", "n1"), "DeleteNode", "Interrupted"),
    ],
    ids=["up", "stop", "down"],
)
def test_a_command_that_waits_says_that_it_was_interrupted(
    interrupted: Callable[..., CommandResult], simulator: RunningSimulator, node: str,
    command: tuple[str, ...], method: str, polled: str,
) -> None:  # fmt: skip
    simulator.faults.add("stuck-operation", method=method)
    result = interrupted(method, *command, "--yes")
    assert result.code == 130, result.err
    assert "Interrupted" in result.err
    assert polled in result.err
    assert "interactive" not in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_client_that_was_half_made_at_an_interruption_ends_without_a_traceback(number: int) -> None:
    command = [sys.executable, "-c", HALF_MADE, str(int(number))]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "Interrupted.\n")


def test_a_start_that_is_interrupted_goes_on_by_itself(
    interrupted: Callable[..., CommandResult], simulator: RunningSimulator, node: str, tpuctl: Tpuctl
) -> None:
    assert tpuctl("stop", node, "--yes").code == 0
    stuck = simulator.faults.add("stuck-operation", method="StartNode")
    result = interrupted("StartNode", "start", node, "--yes", "--json")
    assert result.code == 130, result.err
    assert json.loads(result.out)["error"]["kind"] == "interrupted"
    assert "bills from now on" in result.err
    simulator.faults.remove(stuck.id)
    again = tpuctl("start", node, "--yes")
    assert again.code == 0, again.err


def test_a_file_that_ends_too_soon_is_not_taken_for_a_missing_answer(
    tpuctl: Tpuctl,
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """click makes one error of Ctrl-C, of the end of the input, and of any file that ends too soon."""
    from tpuctl.cli.main import run

    def ends(*_: object) -> None:
        raise EOFError("Compressed file ended before the end-of-stream marker was reached")

    # No input is known that raises it.
    monkeypatch.setattr("tpuctl.flows.overview.views.take_inventory", ends)
    assert run(["ls"]) == 1
    shown = capsys.readouterr().err
    assert "interactive" not in shown
    assert "Compressed file ended" in shown
