"""When a TPU ends by its metadata, and what is no time."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuctl import clock
from tpuctl.host.keeper import records


def test_a_ttl_counts_from_the_creation_and_an_expiry_replaces_it() -> None:
    ttl = {"tpuctl-ttl": "3600s"}
    assert records.expiry({}, 1000.0) is None
    assert records.expiry(ttl, 1000.0) == 4600.0
    assert records.expiry(ttl, None) is None
    assert records.expiry({**ttl, "tpuctl-expires": "2026-11-22T20:00:00Z"}, None) == 1795377600.0
    assert records.idle_limit({"tpuctl-idle": "1800s"}) == 1800
    assert records.idle_limit({}) is None


@pytest.mark.parametrize(
    "text", ["", "0s", "8h", "-1s", "1.5s", "3600", "99999999999s", "31622401s", "٣s", "1s\n"]
)
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not match"):
        records.seconds(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2026-11-22",
        "2026-11-22T20:00:00+01:00",
        "1026-11-22T20:00:00Z",
        "2026-13-40T20:00:00Z",
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="match"):
        records.moment(text)


@given(st.integers(946684800, 4102444800))
def test_laptop_and_keeper_write_and_read_the_same_times(seconds: int) -> None:
    text = records.iso(float(seconds))
    assert clock.parse(text).timestamp() == seconds == records.moment(text)
    assert records.moment(text.replace("Z", ".123456789Z")) == seconds


@given(st.text())
def test_any_text_is_a_time_or_refused(text: str) -> None:
    for read in (records.moment, records.seconds):
        try:
            read(text)
        except ValueError:
            pass


def test_a_long_error_loses_its_end() -> None:
    note = json.loads(records.encode(records.Note(0, "2026-11-22T20:00:00Z", error="x" * 10_000)))
    assert len(note["error"]) == 1000
