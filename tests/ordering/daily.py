"""Parameters of which `make test` tries a few, and `make test-all` every one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def daily(values: Iterable[Any], few: int) -> list[Any]:
    """Return the values as parameters of a test: those after the first few are for `make test-all` alone."""
    return [
        pytest.param(value, marks=pytest.mark.slow if place >= few else ())
        for place, value in enumerate(values)
    ]
