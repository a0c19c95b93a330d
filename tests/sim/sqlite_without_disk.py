"""A pytest plugin: SQLite in this process waits for no disk, which takes longer than a simulator's start.

No test cuts the power. What survives a `kill -9` does so without: the system has it, and writes it later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest


class UnsynchronizedConnection(sqlite3.Connection):
    """A connection that says `synchronous = off`, whatever it is told."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        super().execute("pragma synchronous = off")

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        """Run a statement unless it sets what this class is for."""
        if statement.startswith("pragma synchronous ="):
            statement = "pragma synchronous"
        return super().execute(statement, *parameters)


@pytest.fixture(autouse=True, scope="session")
def _sqlite_without_disk() -> Iterator[None]:
    connect = sqlite3.connect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sqlite3,
            "connect",
            lambda *arguments, **options: connect(
                *arguments, **{"factory": UnsynchronizedConnection, **options}
            ),
        )
        yield
