"""A reader who leaves ends a command quietly; a connection that breaks is no such reader."""

from __future__ import annotations

import os
import socket
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
    shown = capsys.readouterr()
    assert "a connection broke" in shown.err
    assert "report" in shown.err
    assert ("bug" in shown.out) == ("--json" in arguments)
