"""A command says on which target it runs: that nothing bills, on the simulator alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator

Tpuctl = Callable[..., CommandResult]
NOTE = "[sim] simulated TPUs and storage on this machine: nothing bills"


@pytest.fixture
def gcp(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole configuration of the target that bills, and no credentials."""
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # else google-auth looks for a metadata server
    for name, value in (("PROJECT", "p"), ("ZONE", "europe-west4-a"), ("BUCKET", "b")):
        monkeypatch.setenv(f"TPUCTL_{name}", value)


@pytest.mark.parametrize(
    "command", [("ls",), ("data", "ls"), ("up", "v3-8", "--yes"), ("doctor",)], ids=" ".join
)
def test_a_command_on_the_simulator_says_once_that_nothing_bills(
    tpuctl: Tpuctl, simulator: RunningSimulator, command: tuple[str, ...]
) -> None:
    result = tpuctl(*command)
    assert result.err.splitlines().count(NOTE) == 1
    assert result.err.startswith(NOTE), "before anything else"
    assert "[sim]" not in result.out


@pytest.mark.usefixtures("gcp")
@pytest.mark.parametrize(
    "command", [("ls",), ("data", "ls"), ("up", "v3-8", "--yes"), ("doctor",)], ids=" ".join
)
def test_a_command_on_the_target_that_bills_never_says_so(tpuctl: Tpuctl, command: tuple[str, ...]) -> None:
    for result in (tpuctl(*command), tpuctl(*command, "--target", "gcp")):
        assert result.code == 3, result.err
        assert "[sim]" not in result.out + result.err


def test_a_command_that_needs_no_cloud_does_not_say_where_it_runs(tpuctl: Tpuctl) -> None:
    assert "[sim]" not in tpuctl("config", "--target", "sim").err
