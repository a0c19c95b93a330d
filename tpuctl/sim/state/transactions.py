"""Runs transactions on one SQLite file, and actions after a commit or a rollback."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

SqlValue = str | int | float | bytes | None
"""What a column can hold."""

Row = TypeVar("Row")

_log = logging.getLogger(__name__)


class SqliteFile:
    """One SQLite file, one connection, shared by threads; only its owner can read the file.

    A statement outside `transaction()` commits at once. The write-ahead log makes a commit survive a
    `kill -9` of the process, and with `fsync` also a power cut.
    """

    def __init__(self, path: Path, schema: str, *, fsync: bool = False) -> None:
        path.touch(mode=0o600)
        self._lock = threading.RLock()
        self._after_commit: list[Callable[[], object]] = []
        self._on_rollback: list[Callable[[], object]] = []
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute(f"pragma synchronous = {'full' if fsync else 'normal'}")
        self._connection.executescript(schema)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything in the block together, or nothing when it raises; do not await in it.

        A block inside another is a part of it. Other threads wait until the outermost block ends.
        """
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("begin immediate")
            try:
                yield
                self._connection.execute("commit")
            except BaseException:
                self._roll_back()
                raise
            self._follow_commit()

    def after_commit(self, action: Callable[[], object]) -> None:
        """Call `action` once the outermost transaction has committed, never after a rollback.

        Without a transaction it is called at once. An OSError in it is logged, since the commit stands.
        """
        if self._connection.in_transaction:
            self._after_commit.append(action)
        else:
            _call(action)

    def on_rollback(self, undo: Callable[[], object]) -> None:
        """Call `undo` if the current transaction does not commit, the latest first."""
        if self._connection.in_transaction:
            self._on_rollback.append(undo)

    def execute(self, statement: str, values: Sequence[SqlValue] = ()) -> int:
        """Run one statement and return the number of rows it changed."""
        with self._lock:
            return self._connection.execute(statement, values).rowcount

    def rows(
        self, record: Callable[..., Row], statement: str, values: Sequence[SqlValue] = ()
    ) -> Iterator[Row]:
        """Yield `record(*columns)` for each row of a query; use them before the next change."""
        with self._lock:
            cursor = self._connection.execute(statement, values)
        return (record(*columns) for columns in cursor)

    def row(self, record: Callable[..., Row], statement: str, values: Sequence[SqlValue] = ()) -> Row | None:
        """Return `record(*columns)` for the first row of a query, or None."""
        with self._lock:
            columns = self._connection.execute(statement, values).fetchone()
        return record(*columns) if columns is not None else None

    def close(self) -> None:
        """Close the connection; the write-ahead log goes into the database file."""
        self._connection.close()

    def _roll_back(self) -> None:
        self._connection.rollback()  # does nothing where a full disk has ended the transaction already
        self._after_commit.clear()
        undos, self._on_rollback = self._on_rollback, []
        for undo in reversed(undos):
            undo()

    def _follow_commit(self) -> None:
        self._on_rollback.clear()
        actions, self._after_commit = self._after_commit, []
        for action in actions:
            _call(action)


def _call(action: Callable[[], object]) -> None:
    try:
        action()
    except OSError:
        _log.exception("an action after a commit failed; the next start cleans up")
