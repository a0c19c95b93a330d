"""A command says on which target it runs, and goes by the clock of its services."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import Client, clock

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


def machine_is(monkeypatch: pytest.MonkeyPatch, fast: timedelta) -> None:
    """Set this machine's clock, and not that of the services."""
    monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + fast)


def test_no_answer_depends_on_the_clock_of_this_machine(
    tpuctl: Tpuctl, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--ttl", "8h", "--yes").code == 0
    waiting = ("up", "v3-8", "--name", "q1", "--queued", "--valid-until", "6h", "--dry-run", "--json")
    for hours, side in ((10, "ahead of"), (-10, "behind")):
        machine_is(monkeypatch, timedelta(hours=hours))
        listed = tpuctl("ls")
        header, row = (line.split() for line in listed.out.splitlines())
        assert row[header.index("ENDS")] == "7h", listed.out
        assert "its time to live is over" not in listed.out
        cost = tpuctl("describe", "n1", "--json").json["nodes"][0]["cost_so_far"]
        assert float(cost["amount"]) < 9.77, "of an hour"
        with Client() as client:
            (node,) = client.nodes()
            assert node.cost_so_far
            assert node.cost_so_far.amount < 9.77
            assert not node.notes
        (request,) = tpuctl(*waiting).json["requests"]
        until = datetime.fromisoformat(request["body"]["queueingPolicy"]["validUntilTime"])
        assert timedelta(hours=5) < until - datetime.now(UTC) < timedelta(hours=7)
        said = rf"^Warning: This machine's clock is (10h|9h5.m) {side} the service's, which tpuctl goes by\.$"
        assert len(re.findall(said, listed.err, re.M)) == 1, listed.err


def test_a_clock_that_is_off_by_less_than_a_minute_is_not_spoken_of(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds in (-50, 50):
        machine_is(monkeypatch, timedelta(seconds=seconds))
        assert "clock" not in tpuctl("runs").err


def test_where_no_server_tells_the_time_tpus_are_listed_and_the_queue_is_not_limited(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise requests.ConnectionError("no route")

    monkeypatch.setattr(requests, "head", unreachable)
    listed = tpuctl("ls")
    assert listed.code == 0
    assert "READY" in listed.out
    assert (
        "No server tells the time: no route. Ages, ends and costs are by this machine's clock." in listed.err
    )
    refused = tpuctl("up", "v3-8", "--name", "q1", "--queued", "--valid-until", "6h", "--dry-run")
    assert (refused.code, refused.out) == (9, ""), refused.err
