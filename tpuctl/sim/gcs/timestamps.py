"""The timestamps of the API: RFC 3339, the dates of HTTP headers, and generations in microseconds."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import formatdate


def timestamp(moment: datetime | None = None) -> str:
    """Return a time, by default now, in RFC 3339: UTC, milliseconds."""
    moment = moment or datetime.now(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_timestamp(text: str) -> datetime:
    """Return an RFC 3339 timestamp as a time; raises ValueError, also for one without a zone."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return moment.astimezone(UTC)


def http_date(stamp: str) -> str:
    """Return a timestamp in the format of HTTP headers."""
    return formatdate(parse_timestamp(stamp).timestamp(), usegmt=True)


def microseconds() -> int:
    """Return the current time in microseconds, the unit of generations."""
    return time.time_ns() // 1000
