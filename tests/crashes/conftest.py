"""Fixtures: worlds for commands that crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crashes.world import CrashWorld, Worlds


@pytest.fixture
def worlds(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worlds:
    """As many worlds as a test needs, one after another."""
    return Worlds(tmp_path, monkeypatch)


@pytest.fixture
def world(worlds: Worlds) -> Iterator[CrashWorld]:
    """A world of its own, without a node."""
    with worlds.new() as built:
        yield built
