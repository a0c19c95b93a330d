"""Checks the expiry of signed URLs; signatures are not checked, since every caller has access."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules.parameters import parse_number

LONGEST = 7 * 86400
"""Seconds that a V4 signature can be valid."""

REQUIRED_V4 = (
    "X-Goog-Algorithm",
    "X-Goog-Credential",
    "X-Goog-Date",
    "X-Goog-Expires",
    "X-Goog-SignedHeaders",
)
"""Parameters that `X-Goog-Signature` requires."""


def check_signed_url(query: Mapping[str, str], now: datetime | None = None) -> None:
    """Raise 400 when the signature of a request, V2 or V4, has expired or lacks a parameter."""
    now = now or datetime.now(UTC)
    if "X-Goog-Signature" in query:
        _check_v4(query, now)
    elif {"GoogleAccessId", "Signature"} <= set(query):
        _check_v2(query, now)


def _check_v2(query: Mapping[str, str], now: datetime) -> None:
    if now.timestamp() > parse_number("Expires", query.get("Expires", "")):
        raise _expired()


def _check_v4(query: Mapping[str, str], now: datetime) -> None:
    missing = [name for name in REQUIRED_V4 if not query.get(name)]
    if missing:
        raise GcsError(400, f"Missing query parameter {missing[0]}", xml_code="AuthenticationRequired")
    seconds = parse_number("X-Goog-Expires", query["X-Goog-Expires"])
    try:
        signed = datetime.strptime(query["X-Goog-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise GcsError(400, "Invalid argument: X-Goog-Date", xml_code="InvalidArgument") from error
    if seconds > LONGEST:
        raise GcsError(400, "X-Goog-Expires is longer than seven days.", xml_code="InvalidArgument")
    if now > signed + timedelta(seconds=seconds):
        raise _expired()


def _expired() -> GcsError:
    return GcsError(400, "Invalid argument: the signed URL has expired.", xml_code="ExpiredToken")
