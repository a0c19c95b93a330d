"""The operations of Compute Engine that can still be read."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from tpuctl.sim.compute import operations
from tpuctl.sim.compute.operations import Operation, Operations
from tpuctl.sim.state import Database, RecordTable

NOW = 1_700_000_000.25


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still."""
    monkeypatch.setattr(operations, "time", SimpleNamespace(time=lambda: NOW))


def test_an_operation_is_named_as_googles_and_can_be_read(tmp_path: Path, at_once: None) -> None:
    with closing(Database(tmp_path / "world.sqlite")) as database:
        made = Operations(database).record("p", "insert", "/global/firewalls/a")
        assert (made.project, made.kind, made.time, made.target) == (
            "p",
            "insert",
            NOW,
            "/global/firewalls/a",
        )
        assert re.fullmatch(r"operation-1700000000250-[0-9a-f]{13}-[0-9a-f]{8}-[0-9a-f]{8}", made.id)
        again = Operations(database)
        assert again.get("p", made.id) == made
        assert again.get("q", made.id) is None


def test_the_latest_thousand_can_be_read(tmp_path: Path, at_once: None) -> None:
    with closing(Database(tmp_path / "world.sqlite")) as database:
        table = RecordTable(database, "compute operation", Operation)
        for number in range(999):
            table.put(Operation(f"p/operation-{number}", "insert", NOW - number - 1))
        kept = Operations(database)
        kept.record("p", "insert")
        assert kept.get("p", "operation-998") is not None
        kept.record("p", "insert")
        assert (kept.get("p", "operation-998"), kept.get("p", "operation-997") is None) == (None, False)
