"""Tests times as text, always in UTC, and ages for tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tpuctl import clock

MOMENT = datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC)


def test_a_time_is_written_in_utc() -> None:
    assert clock.iso(MOMENT) == "2026-01-31T23:59:59Z"
    elsewhere = MOMENT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert clock.iso(elsewhere) == "2026-01-31T23:59:59Z"
    assert clock.iso(MOMENT.replace(microsecond=999_999)) == "2026-01-31T23:59:59Z"


def test_a_time_comes_back_as_it_was() -> None:
    assert clock.parse(clock.iso(MOMENT)) == MOMENT
    assert clock.parse(clock.iso(MOMENT)).tzinfo is UTC


def test_now_has_a_zone() -> None:
    assert clock.now().utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (86399, "23h"),
        (86400, "1d"),
        (1e6, "11d"),
        (-5, "0s"),
    ],
)
def test_an_age_is_text_in_its_largest_unit(seconds: float, text: str) -> None:
    assert clock.age(clock.iso(MOMENT), MOMENT + timedelta(seconds=seconds)) == text


def test_no_time_has_no_age() -> None:
    assert clock.age("", MOMENT) == ""


@pytest.mark.parametrize("text", ["", "2026-01-31", "2026-01-31T23:59:59+01:00"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not match"):
        clock.parse(text)


@pytest.mark.parametrize(
    ("text", "is_time"),
    [("2026-01-31T23:59:59Z", True), ("2026-02-31T23:59:59Z", False), ("2026-01-31", False), ("", False)],
)
def test_a_text_is_a_time_or_none(text: str, is_time: bool) -> None:
    assert clock.is_time(text) is is_time
