"""A dataset for tests of what commands show of figures that are given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator


@pytest.fixture
def rows(tpuctl: Callable[..., CommandResult], simulator: RunningSimulator) -> str:
    """The name of a dataset of two rows."""
    Path("rows.csv").write_text("x\n1\n2\n")
    assert tpuctl("data", "upload", "rows", "rows.csv").code == 0
    return "rows"
