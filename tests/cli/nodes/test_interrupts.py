"""Ctrl-C says what may bill; data goes to stdout, and what is asked and reported goes to stderr."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

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


COLUMNS = ["NAME", "ZONE", "TYPE", "HOSTS", "STATE", "SPOT", "RUNTIME", "AGE", "OWNER"]


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if not line.startswith("[sim]")]


def test_ls_writes_its_table_to_stdout_and_nothing_to_stderr(tpuctl: Tpuctl, node: str) -> None:
    result = tpuctl("ls")
    header, row = lines(result.out)
    assert header == [*COLUMNS, "PRICE/H"]
    assert row[:6] == [node, "europe-west4-a", "v3-8", "1", "READY", "no"]
    assert lines(result.err) == []


def test_ls_of_nothing_is_the_header_and_the_command_that_creates_a_node(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    result = tpuctl("ls")
    assert lines(result.out) == [COLUMNS]
    empty = "There are no TPUs in any zone of project sim-project."
    assert lines(result.err) == [empty.split(), ["Next:", "tpuctl", "up", "v3-8"]]


def test_ls_names_a_zone_that_did_not_answer_on_stderr(
    tpuctl: Tpuctl, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulator.world, "unreachable_zones", lambda parent: ["us-east1-d"])
    result = tpuctl("ls")
    assert (
        "Warning: no answer from us-east1-d: what is there is not listed, and may bill."
        in result.err.splitlines()
    )
    assert "There are no TPUs" not in result.err, "they may be in that zone"
    assert lines(result.out) == [COLUMNS]
    assert tpuctl("ls", "--json").json["unreachable"] == ["us-east1-d"]


def test_up_writes_the_node_to_stdout_and_the_plan_to_stderr(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    result = tpuctl("up", "v3-8", "--name", "n1", "--spot", "--yes")
    header, row = lines(result.out)
    assert (header, row[0], row[5]) == ([*COLUMNS, "PRICE/H"], "n1", "yes")
    plan = dict(line.split(maxsplit=1) for line in result.err.splitlines() if "  " in line)
    assert (plan["create"], plan["spot"], plan["zone"]) == ("n1", "yes", "europe-west4-a")
    assert result.err.splitlines()[-2].startswith("Next: tpuctl submit")


@pytest.mark.daily
def test_down_writes_what_it_deletes_to_stderr_and_nothing_to_stdout(tpuctl: Tpuctl, node: str) -> None:
    declined = tpuctl("down")
    assert (declined.code, declined.out) == (10, "")
    assert lines(declined.err)[0] == [*COLUMNS, "RUN"]
    result = tpuctl("down", "--yes")
    assert (result.code, result.out) == (0, "")
    assert lines(result.err)[0] == [*COLUMNS, "RUN"]
    assert result.err.splitlines()[-1] == f"Deleted {node}."


def test_json_is_all_of_stdout(tpuctl: Tpuctl, node: str) -> None:
    assert [listed["name"] for listed in tpuctl("ls", "--json").json["nodes"]] == [node]
    assert tpuctl("down", "--yes", "--json").json["deleted"] == [node]


def test_another_name_of_a_type_is_understood_and_said_on_stderr(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    result = tpuctl("up", "v5e-8", "--name", "n1", "--yes")
    assert result.code == 0, result.err
    assert lines(result.out)[1][2] == "v5litepod-8"
    assert result.err.splitlines()[0] == "v5e-8 is v5litepod-8 in the Cloud TPU API."
    assert "v5litepod-8 in the Cloud TPU API" not in tpuctl("up", "V5litepod-8", "--name", "n1", "--yes").err


@pytest.mark.parametrize(
    ("options", "header"),
    [(("--accelerator", "v5lite-8"), "v3-8"), ((), "v5e-8")],
    ids=["option", "header"],
)
def test_another_name_of_a_type_chooses_the_node_of_a_run(
    tpuctl: Tpuctl, simulator: RunningSimulator, options: tuple[str, ...], header: str
) -> None:
    assert tpuctl("up", "v5litepod-8", "--name", "n1", "--yes").code == 0
    lines_of_header = f'# /// script\n# [tool.tpuctl]\n# accelerator = "{header}"\n# ///\n'
    Path("job.py").write_text(f"{lines_of_header}print('hello')\n")
    result = tpuctl("submit", "job.py", *options)
    assert result.code == 0, result.err
    assert " is v5litepod-8 in the Cloud TPU API." in result.err
    assert "n1 (v5litepod-8, europe-west4-a)" in result.out


def test_another_name_of_a_type_decides_on_the_hosts_of_a_dataset(tpuctl: Tpuctl) -> None:
    Path("numbers.csv").write_text("number\n" + "1\n" * 8)
    result = tpuctl("data", "plan", "numbers", "numbers.csv", "--for", "v5e-16")
    assert result.code == 0, result.err
    assert "v5e-16 is v5litepod-16 in the Cloud TPU API." in result.err
    assert "the 4 hosts" in result.out
