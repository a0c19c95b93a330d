"""On a terminal: lines fit its width, states and errors have colours; a pipe gets neither."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.pseudo_terminal import in_terminal
from tests.running_simulator import CommandResult, RunningSimulator

Tpuctl = Callable[..., CommandResult]
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
COMMANDS = (
    ("ls",), ("runs",), ("data", "ls"), ("data", "fetch"), ("config", "show"), ("doctor",),
    ("sim", "fault", "ls"), ("up", "v99"), ("runs", "--bucket", "bucket!"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _busy(simulator: RunningSimulator, node: str) -> None:
    """A node, and a fault."""
    simulator.faults.add("stockout", zone="us-central1-a", type="v5litepod-16", probability=0.25)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("columns", [60, 120])
def test_lines_fit_the_terminal_except_those_that_hold_a_command(
    command: tuple[str, ...], columns: int
) -> None:
    shown = ESCAPE.sub("", in_terminal(*command, columns=columns))
    assert "a bug" not in shown
    path = str(Path.cwd().parent)
    too_long = [line for line in shown.splitlines() if len(line) > columns and path not in line]
    assert [line for line in too_long if not re.match(r" *(Hint|Next|fix):", line)] == []


def test_the_line_of_the_simulator_is_folded_between_words() -> None:
    assert "[sim] simulated TPUs and storage on this machine: nothing\nbills\n" in in_terminal(
        "ls", columns=60
    )


def test_states_have_their_colours() -> None:
    shown = in_terminal("ls", columns=120)
    assert "\x1b[32mREADY\x1b[0m" in shown
    assert "\x1b[32mok\x1b[0m" in in_terminal("doctor", columns=120)
    assert "\x1b[33min force\x1b[0m" in in_terminal("sim", "fault", "ls", columns=120)


def test_colours_take_no_room_in_a_table() -> None:
    lines = ESCAPE.sub("", in_terminal("ls", columns=120)).splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith("NAME"))
    for column, word in (("STATE", "READY"), ("SPOT", "no "), ("RUNTIME", "tpu-ubuntu")):
        assert lines[header + 1].index(word) == lines[header].index(column)


def test_errors_and_hints_have_their_colours() -> None:
    shown = in_terminal("up", "v99", columns=120)
    assert "\x1b[1;31mError:\x1b[0m There is no accelerator type" in shown
    assert "\x1b[36mHint:\x1b[0m The generations" in shown
    assert "\x1b[1;31mError:\x1b[0m" in in_terminal("ls", "--wrong", columns=120)


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_none_for_who_wants_none(variable: dict[str, str]) -> None:
    for command in (("ls",), ("doctor",), ("up", "v99")):
        assert "\x1b" not in in_terminal(*command, columns=120, **variable)


def test_a_pipe_gets_neither_colours_nor_folds(tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    wide = tpuctl("ls")
    assert "\x1b" not in wide.out + wide.err
    assert len(wide.out.splitlines()) == 2
    assert "[sim] simulated TPUs and storage on this machine: nothing bills\n" in wide.err
    refused = tpuctl("up", "v99")
    assert len(refused.err.splitlines()) == 2
    assert "\x1b" not in refused.err


def test_a_path_is_never_cut(tmp_path: Path) -> None:
    path = str(Path.cwd() / "tpuctl.toml")
    Path(path).write_text('project = "my-project"\nbucket = "my-bucket"\n')
    assert path in in_terminal("ls", "--target", "sim", columns=30).replace("\n", " ")
