"""Parses numbers and flags in query parameters and headers."""

from __future__ import annotations

from tpuctl.sim.gcs.errors import invalid


def parse_number(name: str, text: object) -> int:
    """Return the number that a parameter holds, 0 to 2**63 - 1; raises 400."""
    try:
        number = int(str(text))
    except ValueError as error:
        raise invalid(f"Invalid value for parameter {name}: {text}") from error
    if not 0 <= number < 1 << 63:
        raise invalid(f"Invalid value for parameter {name}: {text}")
    return number


def is_true(text: str | None) -> bool:
    """Return whether a parameter is `true`, in any case of letters."""
    return (text or "").lower() == "true"
