"""Sizes have the largest unit of which they have at least one."""

from __future__ import annotations

import pytest

from tpuctl.printable import format_bytes


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (1, "1 B"), (999, "999 B"), (1000, "1.0 kB"), (1234, "1.2 kB"), (999_900, "999.9 kB"),
        (1_000_000, "1.0 MB"), (2.5e9, "2.5 GB"), (1e12, "1.0 TB"), (1.5e15, "1500.0 TB"),
    ],
)  # fmt: skip
def test_a_size_has_its_unit(size: float, text: str) -> None:
    assert format_bytes(size) == text
