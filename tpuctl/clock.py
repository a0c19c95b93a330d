"""Converts times to text and back: ISO-8601, UTC, in seconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_FORM = re.compile(r"2[01][0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
"""Of the years 2000 to 2199: any other was not written by a clock."""


def now() -> datetime:
    """Return the current time, with its zone."""
    return datetime.now(UTC)


def iso(moment: datetime) -> str:
    """Return a time as `2026-01-31T23:59:59Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse(text: str) -> datetime:
    """Return the time that `iso` wrote; raises ValueError for any other text."""
    if not _FORM.fullmatch(text):
        raise ValueError(f"{text[:30]!r} does not match 2026-01-31T23:59:59Z")
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def is_time(text: str) -> bool:
    """Whether `parse` reads a text."""
    try:
        parse(text)
    except ValueError:
        return False
    return True


def age(text: str, at: datetime) -> str:
    """Return the age at `at` of a time in its largest unit: `12s`, `5m`, `3h`, `2d`; '' for ''."""
    if not text:
        return ""
    seconds = max(0, int((at - parse(text)).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
