"""Reads spans of time as Python has them: seconds, or a timedelta."""

from __future__ import annotations

from datetime import timedelta

from tpuctl.errors import UsageError

Span = timedelta | float
"""A span of time: a timedelta, or seconds."""


def seconds(span: Span) -> float:
    """Return a span in seconds; raises UsageError for what is none."""
    try:
        return span.total_seconds() if isinstance(span, timedelta) else float(span)
    except (TypeError, ValueError) as error:
        hint = "Give seconds, or a timedelta, such as timedelta(hours=2)."
        raise UsageError(f"{span!r} is no span of time.", hint=hint) from error
