"""Reads spans of time as Python has them: seconds, or a timedelta."""

from __future__ import annotations

import math
from datetime import timedelta

from tpuctl import durations
from tpuctl.errors import UsageError

Span = timedelta | float
"""A span of time: a timedelta, or seconds."""
HINT = "Give seconds, or a timedelta, such as timedelta(hours=2)."


def seconds(span: Span) -> float:
    """Return a span in seconds; raises UsageError for what is none."""
    try:
        length = span.total_seconds() if isinstance(span, timedelta) else float(span)
        if math.isnan(length):
            raise ValueError
        return length
    except (TypeError, ValueError) as error:
        raise UsageError(f"{span!r} is no span of time.", hint=HINT) from error


def length(span: Span) -> float:
    """Return a span of calendar time in seconds; raises UsageError for less than none, and for centuries."""
    value = seconds(span)
    if not 0 <= value <= durations.LONGEST:
        raise UsageError(f"{span!r} is not from 0 seconds to a century.", hint=HINT)
    return value
