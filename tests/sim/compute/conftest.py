"""Fixtures: a simulator and a user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sim.compute.site import Site


@pytest.fixture
def site_options() -> dict[str, Any]:
    """Options of the simulator."""
    return {}


@pytest.fixture
def site(home: Path, tmp_path: Path, site_options: dict[str, Any]) -> Iterator[Site]:
    """A simulator, away from the user's own environment."""
    site = Site(tmp_path, site_options)
    yield site
    site.close()
