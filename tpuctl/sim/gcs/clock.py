"""Timestamps as the API writes them."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from email.utils import formatdate


def timestamp() -> str:
    """Return the time now: RFC 3339, UTC, milliseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def http_date(stamp: str) -> str:
    """Return a timestamp in the form of HTTP headers."""
    return formatdate(datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp(), usegmt=True)


def microseconds() -> int:
    """Return the time now in microseconds, the unit of generations."""
    return time.time_ns() // 1000
