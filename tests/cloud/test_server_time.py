"""Tests the time that a service's answers show: to the second, and never back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
import requests

from tpuctl.cloud import server_time
from tpuctl.cloud.server_time import AnswerClock

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Service:
    """A service and this machine's own clock, which the test moves together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        self.clock = AnswerClock(self.said.append)
        self.machine = timedelta()
        """How far this machine's clock is ahead of the service's at the start."""
        self.passed = 0.0
        self.offset = 0.0
        monkeypatch.setattr(server_time, "time", SimpleNamespace(monotonic=lambda: 500.0 + self.passed))
        machine = lambda: START + self.machine + timedelta(seconds=self.passed)  # noqa: E731
        monkeypatch.setattr(server_time, "clock", SimpleNamespace(now=machine))

    def answers(self, *, took: float = 0.0, **headers: str) -> None:
        """Answer in the service's second, which was `took` seconds ago."""
        response = requests.Response()
        date = START + timedelta(seconds=self.passed + self.offset - took)
        response.headers["Date"] = format_datetime(date.replace(microsecond=0), usegmt=True)
        response.headers.update(headers)
        response.elapsed = timedelta(seconds=took)
        self.clock.note(response)

    def shown(self) -> float:
        """Return the time shown, in seconds since the start."""
        now = self.clock.now()
        assert now
        return round((now - START).total_seconds(), 3)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    """A service that has not answered yet."""
    return Service(monkeypatch)


def test_no_time_is_known_before_an_answer_that_tells_it(service: Service) -> None:
    assert service.clock.now() is None
    service.answers(Date="soon")
    assert service.clock.now() is None
    service.answers()
    assert service.shown() == 0


def test_time_passes_without_an_answer(service: Service) -> None:
    service.answers()
    service.passed = 90.5
    assert service.shown() == 90.5


def test_a_later_answer_in_the_same_second_sets_nothing_back(service: Service) -> None:
    service.answers()
    service.passed = 0.9
    service.answers()
    assert service.shown() == 0.9


def test_an_answer_in_a_new_second_tells_more_of_the_time(service: Service) -> None:
    service.passed = 0.75
    service.answers()
    assert service.shown() == 0
    service.passed = 1.0
    service.answers()
    assert service.shown() == 1


def test_a_slow_answer_sets_nothing_back(service: Service) -> None:
    service.answers()
    service.passed = 30.0
    service.answers(took=20.0)
    assert service.shown() == 30


@pytest.mark.parametrize("offset", [-3600.0, -1.5, 1.5, 3600.0])
def test_a_service_whose_clock_was_set_is_believed(service: Service, offset: float) -> None:
    service.answers()
    service.passed, service.offset = 10.0, offset
    service.answers()
    assert service.shown() == int(10 + offset)


def test_a_machine_whose_clock_is_off_by_more_than_a_minute_is_told(service: Service) -> None:
    for seconds, took, words in (
        (0, 0.0, ""), (-59, 0.0, ""), (60, 0.0, ""), (50, 30.0, ""),  # the answer was on its way
        (62, 0.0, "1m ahead of"), (-61, 0.0, "1m behind"), (36_030, 0.0, "10h ahead of"),
        (-90_000, 0.0, "1d1h behind"),
    ):  # fmt: skip
        service.machine = timedelta(seconds=seconds)
        service.answers(took=took)
        said = f"This machine's clock is {words} the service's, which tpuctl goes by."
        assert service.said == ([said] if words else []), seconds
        service.said.clear()
