"""Times as the API writes and reads them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tpuctl.sim.gcs.errors import http_date, microseconds, parse_timestamp, timestamp

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)


def test_a_time_is_written_in_utc_with_milliseconds() -> None:
    assert timestamp(MOMENT) == "2026-01-02T03:04:05.678Z"
    assert timestamp(MOMENT.replace(microsecond=0)) == "2026-01-02T03:04:05.000Z"


def test_without_a_time_it_is_now() -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    assert before <= parse_timestamp(timestamp()) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-02T03:04:05.678900Z", MOMENT),
        ("2026-01-02T05:04:05.678900+02:00", MOMENT),
        ("2026-01-02T03:04:05Z", MOMENT.replace(microsecond=0)),
    ],
)
def test_a_time_of_any_zone_is_read_in_utc(text: str, moment: datetime) -> None:
    parsed = parse_timestamp(text)
    assert (parsed, parsed.tzinfo) == (moment, UTC)
    assert parsed == moment.astimezone(timezone(timedelta(hours=5)))


@pytest.mark.parametrize(
    ("text", "message"),
    [("2026-01-02T03:04:05", "2026-01-02T03:04:05 has no time zone"), ("soon", "Invalid isoformat string")],
)
def test_a_text_that_is_no_moment_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_timestamp(text)


def test_the_date_of_a_header_has_whole_seconds_of_greenwich() -> None:
    assert http_date("2026-01-02T05:04:05.678+02:00") == "Fri, 02 Jan 2026 03:04:05 GMT"


def test_a_generation_counts_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_456_789)
    assert microseconds() == 1_700_000_000_123_456
