"""Reads durations as people type them: `90s`, `30m`, `6h`, `1d`, `1h30m`."""

from __future__ import annotations

import re

UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
LONGEST = 36500 * UNITS["d"]
"""Seconds of a duration that people mean; no calendar has room for much more."""
LONG = 120
"""Minutes from which on hours are told."""
_FORM = re.compile(r"(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?")


def parse(text: str) -> int:
    """Return a duration in seconds; raises ValueError for any text that is none."""
    match = _FORM.fullmatch(text.strip().lower())
    if match is None or not any(match.groups()):
        raise ValueError(f"'{text}' is no duration such as 30m, 6h or 1h30m")
    return sum(int(count or 0) * size for count, size in zip(match.groups(), UNITS.values(), strict=True))


def roughly(seconds: float) -> str:
    """Return how long nothing was heard, for people to read: `12 min`, from two hours on `2 h`."""
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < LONG else f"{minutes // 60} h"


def text(seconds: float) -> str:
    """Return seconds as `parse` reads them: 5400 is `1h30m`; 0 is `0s`."""
    rest, parts = round(seconds), ""
    for unit, size in UNITS.items():
        count, rest = divmod(rest, size)
        parts += f"{count}{unit}" if count else ""
    return parts or "0s"
