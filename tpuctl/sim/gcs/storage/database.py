"""The SQLite database under the store: schema, transactions, and what follows a commit."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SCHEMA = """
create table if not exists buckets (
    name text primary key, project text not null, created text not null, updated text not null,
    metageneration integer not null, fields text not null, policy text
) without rowid;
create table if not exists objects (
    bucket text not null, name text not null, generation integer not null, live integer not null,
    metageneration integer not null, blob text not null, size integer not null, crc32c text not null,
    md5 text, components integer, created text not null, updated text not null, deleted text,
    fields text not null,
    primary key (bucket, name, generation)
) without rowid;
create index if not exists objects_by_blob on objects (blob);
create table if not exists sessions (
    id text primary key, bucket text not null, name text not null, fields text not null, claims text not null,
    conditions text not null, blob text not null, created real not null, result text
) without rowid;
create index if not exists sessions_by_blob on sessions (blob);
create table if not exists soft_deleted (
    bucket text not null, name text not null, generation integer not null, live integer not null,
    metageneration integer not null, blob text not null, size integer not null, crc32c text not null,
    md5 text, components integer, created text not null, updated text not null, deleted text,
    fields text not null, expires real not null,
    primary key (bucket, name, generation)
) without rowid;
create index if not exists soft_deleted_by_blob on soft_deleted (blob);
create table if not exists multiparts (
    id text primary key, bucket text not null, name text not null, fields text not null, created text not null
) without rowid;
create table if not exists parts (
    multipart text not null, number integer not null, blob text not null, size integer not null,
    crc32c text not null, md5 text not null, created text not null,
    primary key (multipart, number)
) without rowid;
create index if not exists parts_by_blob on parts (blob);
"""

_log = logging.getLogger(__name__)


class Database:
    """One connection, shared by threads; every change happens inside `transaction`."""

    def __init__(self, path: Path, *, fsync: bool = False) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._after: list[Callable[[], None]] = []
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("pragma journal_mode = wal")
        # NORMAL survives a kill of the process; only a power cut may take the last transactions
        self._connection.execute(f"pragma synchronous = {'full' if fsync else 'normal'}")
        self._connection.executescript(SCHEMA)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all of the block or none of it; blocks may nest, the outermost commits."""
        with self._lock:
            if self._depth == 0:
                self._connection.execute("begin immediate")
            self._depth += 1
            try:
                yield
                if self._depth == 1:
                    self._connection.execute("commit")
            except BaseException:
                self._after.clear()
                if self._depth == 1 and self._connection.in_transaction:
                    self._connection.execute("rollback")
                raise
            finally:
                self._depth -= 1
            if self._depth == 0:
                self._run_after()

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run `action` once the outermost transaction is on disk; not at all if it is rolled back."""
        self._after.append(action)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run one statement and return the number of rows it changed."""
        with self._lock:
            return self._connection.execute(statement, values).rowcount

    def row(self, statement: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """Return the first row of a query, or None."""
        with self._lock:
            found: tuple[Any, ...] | None = self._connection.execute(statement, values).fetchone()
            return found

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a query as they are asked for; use them before the next change."""
        with self._lock:
            return self._connection.execute(statement, values)

    def close(self) -> None:
        """Close the connection; the write-ahead log goes into the database file."""
        self._connection.close()

    def _run_after(self) -> None:
        actions, self._after = self._after, []
        for action in actions:
            try:
                action()
            except OSError:
                _log.exception("a file could not be removed; the next start will")
