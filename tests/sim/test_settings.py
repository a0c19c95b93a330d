"""The speeds of a simulated cloud: how long each transition takes, and what may be asked for."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tpuctl.errors import StateError, TpuctlError, UsageError
from tpuctl.sim import __main__ as program
from tpuctl.sim.settings import Profile, profile

REAL = {
    "create": 65, "delete": 20, "update": 3, "start": 20, "stop": 20, "simulateMaintenanceEvent": 3,
    "performMaintenance": 40, "failure": 5, "accept": 3, "queue": 5, "retry": 30, "suspend": 5, "dequeue": 5,
}  # fmt: skip
"""Seconds, of the order that users see for a small slice."""


@pytest.mark.parametrize("transition", REAL)
def test_transitions_take_their_time_or_none(transition: str) -> None:
    assert profile("real").seconds(transition) == REAL[transition]
    assert profile("real", 0.5).seconds(transition) == REAL[transition] / 2
    assert profile("instant").seconds(transition) == (0.05 if transition == "retry" else 0)
    assert profile("real").seconds("other") == 0


def test_a_cloud_is_open_unless_it_is_told_otherwise() -> None:
    for settings in (profile("real"), Profile({})):
        assert (settings.scale, settings.egress, settings.external_ips) == (1.0, "pass", True)
    assert profile("real", egress="refuse").egress == "refuse"


@pytest.mark.parametrize(
    ("name", "egress", "message", "hint"),
    [
        ("fast", "pass", "There is no simulator profile 'fast'.", "Use one of instant, real."),
        ("real", "some", "There is no egress 'some'.", "Use one of pass, refuse."),
    ],
)
def test_what_there_is_not_is_said(name: str, egress: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        profile(name, egress=egress)
    assert (raised.value.message, raised.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("now", "slept"), [(100.0, [10.0]), (104.0, [6.0]), (110.0, []), (200.0, []), (90.0, [20.0])]
)
def test_a_pause_lasts_for_the_rest_of_a_transition(now: float, slept: list[float]) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    settings = Profile({"stop": 5}, scale=2.0, clock=lambda: now, sleep=sleep)
    asyncio.run(settings.pause("stop", since=100.0))
    assert pauses == slept


SERVED = {
    "speed": "instant", "idle": 3600.0, "key_delay": None, "egress": "pass", "external_ips": True,
    "default_account": "editor", "firewall": "open",
    "iam": None, "iam_user": None, "python": "machine", "scenario": None,
}  # fmt: skip
"""What a simulator is started with unless options say otherwise."""


def started(patch: pytest.MonkeyPatch, *options: str, error: TpuctlError | None = None) -> dict[str, Any]:
    """Start the program with these options, and return with what it would serve."""
    served: dict[str, Any] = {}

    async def serve(**settings: Any) -> None:  # stands in for a simulator, which other tests start
        served.update(settings)
        if error:
            raise error

    patch.setattr(program, "serve", serve)
    patch.setattr(sys, "argv", ["tpuctl.sim", "--folder", "/sim", *options])
    program.main()
    return served


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ((), {}),
        (("--speed", "real"), {"speed": "real"}),
        (("--idle", "0"), {"idle": 0.0}),
        (("--key-delay", "1.5"), {"key_delay": 1.5}),
        (("--egress", "refuse"), {"egress": "refuse"}),
        (("--no-external-ips",), {"external_ips": False}),
        (("--iam",), {"iam": ""}),
        (("--python", "image"), {"python": "image"}),
        (("--iam", "iam.json", "--iam-user", "user:a@b"), {"iam": "iam.json", "iam_user": "user:a@b"}),
        (("--scenario", "bad-day.toml"), {"scenario": Path("bad-day.toml")}),
    ],
)
def test_the_program_serves_what_its_options_say(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], changed: dict[str, Any]
) -> None:
    assert started(monkeypatch, *options) == {"folder": Path("/sim"), **SERVED, **changed}


@pytest.mark.parametrize(
    "options", [("--speed", "fast"), ("--egress", "some"), ("--idle", "x"), ("--other",)]
)
def test_the_program_knows_its_options_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as ended:
        started(monkeypatch, *options)
    assert (ended.value.code, options[0] in capsys.readouterr().err) == (2, True)


def test_an_error_of_the_program_is_a_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = StateError("A simulator already serves /sim.", hint="'tpuctl sim status' shows it.")
    with pytest.raises(SystemExit) as ended:
        started(monkeypatch, error=error)
    assert ended.value.code == error.exit_code != 0
    assert capsys.readouterr() == ("", "A simulator already serves /sim. 'tpuctl sim status' shows it.\n")
