"""A reader who leaves ends a command quietly, a full disk does not; neither is a connection that breaks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forks import commands
from tests.running_simulator import RunningSimulator
from tpuctl.cli.main import run


def test_a_reader_who_leaves_ends_the_command_quietly(home: Path, tmp_path: Path) -> None:
    """As `tpuctl runs | head -1` does."""
    reader, writer = os.pipe()
    os.close(reader)
    errors = tmp_path / "errors"
    with open(os.devnull) as nothing, errors.open("wb") as stderr:
        descriptors = [nothing.fileno(), writer, stderr.fileno()]
        assert commands.run(("-m", "tpuctl", "help", "up"), os.environ, descriptors) == 0
    os.close(writer)
    assert errors.read_bytes() == b""


def test_what_changes_something_is_done_although_nobody_reads_its_output(simulator: RunningSimulator) -> None:
    """`tpuctl down --yes 2>&1 | head -1` ended with 0, before it had deleted anything."""
    reader, writer = os.pipe()
    os.close(reader)
    for words, states in (
        (("up", "v3-8", "--name", "n1"), ["READY"]), (("stop", "n1"), ["STOPPED"]),
        (("up", "v3-8", "--name", "n1"), ["READY"]), (("down", "n1"), []),
    ):  # fmt: skip
        with open(os.devnull) as nothing:
            descriptors = [nothing.fileno(), writer, writer]
            assert commands.run(("-m", "tpuctl", *words, "--yes"), os.environ, descriptors) == 0
        assert [node.state for node in simulator.world.nodes.all()] == states, words
    os.close(writer)


FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")


def shown(*arguments: str, stdout: str | Path, stderr: str | Path) -> int:
    """Run a command with its output to two files, and return its exit code."""
    with open(os.devnull) as nothing, open(stdout, "wb") as out, open(stderr, "wb") as err:
        descriptors = [nothing.fileno(), out.fileno(), err.fileno()]
        return commands.run(("-m", "tpuctl", *arguments), os.environ, descriptors)


@FULL
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("help", "up"), "The output cannot be written: No space left on device."),
        (("config", "show"), "The output cannot be written: No space left on device."),
        (("config", "show", "--json"), "The output cannot be written: No space left on device."),
        (("frob", "--json"), "There is no command 'frob'."),
    ],
)
def test_output_to_a_full_disk_is_an_error_with_its_reason_and_no_bug(
    home: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    errors = tmp_path / "errors"
    assert shown(*arguments, stdout="/dev/full", stderr=errors) == 2
    assert f"Error: {message}" in errors.read_text()
    assert "Traceback" not in errors.read_text()


@FULL
def test_a_full_disk_for_what_is_said_besides_ends_no_command(home: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    assert shown("config", "show", "--json", stdout=output, stderr="/dev/full") == 0
    assert output.read_text().startswith("{")


@FULL
def test_a_full_disk_for_what_is_said_besides_keeps_no_node_billing(
    simulator: RunningSimulator, node: str
) -> None:
    """As `tpuctl down --yes 2>>log` in a crontab."""
    assert shown("down", node, "--yes", stdout=os.devnull, stderr="/dev/full") == 0
    assert simulator.world.nodes.all() == []


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_an_empty_one(home: Path, closed: str) -> None:
    command = f'exec "$0" -m tpuctl config show --json {closed}'
    ended = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, check=False)
    assert (ended.returncode, b"Traceback" in ended.stderr) == (0, False), ended.stderr
    assert (b'"schema"' in ended.stdout) == (" >&-" not in f" {closed}")


def test_a_file_that_is_opened_takes_the_place_of_no_closed_stream(home: Path) -> None:
    program = (
        "import os; from tpuctl.cli import printing; printing.open_closed_streams(); "
        "file = os.open('file', os.O_CREAT | os.O_WRONLY); os.system('echo lost; echo lost >&2'); "
        "raise SystemExit(os.fstat(file).st_size or file < 3)"
    )
    ended = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, program], check=False
    )
    assert ended.returncode == 0


@pytest.mark.parametrize("arguments", [["runs"], ["runs", "--json"]], ids=" ".join)
def test_a_connection_that_breaks_is_said_though_click_takes_it_for_the_output(
    simulator: RunningSimulator,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    """Without the word, `tpuctl submit --replace | tail -1` would look like a success."""

    def breaks(*_arguments: object, **_options: object) -> None:
        near, far = socket.socketpair()
        far.close()
        with near:
            near.send(b"x")

    # Google's clients and paramiko wrap such errors: the first that escapes is one to correct.
    monkeypatch.setattr("tpuctl.flows.runs.summaries.take_page", breaks)
    assert run(arguments) == 1
    written = capsys.readouterr()
    assert "a connection broke" in written.err
    assert "report" in written.err
    assert ("bug" in written.out) == ("--json" in arguments)
