"""The speeds of a simulated cloud: how long each transition takes, and what may be asked for."""

from __future__ import annotations

import asyncio

import pytest

from tpuctl.errors import UsageError
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
