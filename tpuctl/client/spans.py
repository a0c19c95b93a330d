"""Reads spans of time as Python has them: seconds, or a timedelta."""

from __future__ import annotations

from datetime import timedelta

Span = timedelta | float
"""A span of time: a timedelta, or seconds."""


def seconds(span: Span) -> float:
    """Return a span in seconds."""
    return span.total_seconds() if isinstance(span, timedelta) else float(span)
