"""Tests durations as people type them."""

from __future__ import annotations

import pytest

from tpuctl import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("6h", 21600), ("1d", 86400), ("1h30m", 5400), (" 2H ", 7200)],
)
def test_a_duration_is_read(text: str, seconds: int) -> None:
    assert durations.parse(text) == seconds
    assert durations.parse(durations.text(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "6", "h", "-1h", "1h-30m", "1.5h", "30m1h", "\u0661h", "1e3s"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        durations.parse(text)


def test_nothing_is_0_seconds() -> None:
    assert durations.text(0) == "0s"
