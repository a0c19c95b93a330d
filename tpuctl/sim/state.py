"""Stores the simulator's state on disk: records and counters, private files, the folder's lock.

- Locks a simulator's folder: one simulator serves it at a time.
- Writes a file that only this user can read, in one step: a killed simulator leaves no partial file.
- Stores JSON records by kind and name, and counters, in one SQLite file.
- Runs transactions on one SQLite file, and actions after a commit or a rollback.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from tpuctl.atomic_files import PRIVATE, replace_file
from tpuctl.errors import DeadlineError, StateError
from tpuctl.polling import Backoff, poll

TIMEOUT = 0.5
"""Seconds to wait for it: what ends the programs of a killed simulator has it for a moment."""
LOOK = 0.001
"""Seconds between two tries while a client looks whether a simulator runs."""


def lock_folder(path: Path) -> int:
    """Lock the file `path` for the life of this process; returns its descriptor, raises StateError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        poll(
            lambda: try_lock(descriptor) or None,
            awaiting="the simulator's lock",
            timeout=TIMEOUT,
            backoff=Backoff(0.01, 0.1),
        )
    except DeadlineError as error:
        os.close(descriptor)
        raise StateError(
            f"A simulator already serves {path.parent}.", hint="'tpuctl sim status' shows it."
        ) from error
    return descriptor


def try_lock(descriptor: int) -> bool:
    """Lock an open file unless another process has it for itself; returns whether it did.

    Clients that look whether a simulator runs share it for that moment, which is waited for.
    """
    while not _try(descriptor, fcntl.LOCK_EX):
        if not _try(descriptor, fcntl.LOCK_SH):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(LOOK)
    return True


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_private(path: Path, content: bytes) -> None:
    """Make `content` the content of `path`, mode 0600."""
    replace_file(path, [content], mode=PRIVATE)


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


SCHEMA = """
CREATE TABLE IF NOT EXISTS record (
    kind TEXT NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
NEXT = """
INSERT INTO counter VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value
"""
BEGIN = "INSERT INTO counter VALUES (?, ?) ON CONFLICT (name) DO NOTHING"


class Named(Protocol):
    """A record with the name under which it is stored."""

    @property
    def name(self) -> str: ...


Record = TypeVar("Record", bound=Named)


class Database(SqliteFile):
    """The file of records and counters, used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, SCHEMA)

    def load(self, kind: str) -> list[bytes]:
        """Return the bodies of all records of one kind, by name."""
        return list(self.rows(bytes, "SELECT body FROM record WHERE kind = ? ORDER BY name", (kind,)))

    def put(self, kind: str, name: str, body: bytes) -> None:
        """Store a record; it replaces one of the same kind and name."""
        self.execute("INSERT OR REPLACE INTO record VALUES (?, ?, ?)", (kind, name, body))

    def remove(self, kind: str, name: str) -> None:
        """Delete a record, if it exists."""
        self.execute("DELETE FROM record WHERE kind = ? AND name = ?", (kind, name))

    def begin(self, counter: str, value: int) -> None:
        """Have a counter give `value` + 1 first, unless it has given a number."""
        self.execute(BEGIN, (counter, value))

    def next(self, counter: str) -> int:
        """Return the next number of a counter: 1 unless begun, 2, 3 ..., never the same again."""
        value = self.row(int, NEXT, (counter,))
        if value is None:
            raise LookupError(counter)
        return value


class RecordTable(Generic[Record]):
    """All records of one kind, in memory for reading; a change is on disk before it can be read."""

    def __init__(self, database: Database, kind: str, record_type: type[Record]) -> None:
        self._database = database
        self._kind = kind
        loaded = (msgspec.json.decode(body, type=record_type) for body in database.load(kind))
        self._records = {record.name: record for record in loaded}

    def get(self, name: str) -> Record | None:
        """Return the record called `name`, or None."""
        return self._records.get(name)

    def all(self, prefix: str = "") -> list[Record]:
        """Return the records whose names start with `prefix`."""
        return [record for name, record in self._records.items() if name.startswith(prefix)]

    def put(self, record: Record) -> None:
        """Store a record; it replaces one of the same name."""
        self._database.put(self._kind, record.name, msgspec.json.encode(record))
        self._change(record.name, record)

    def remove(self, name: str) -> None:
        """Delete a record, if it exists."""
        self._database.remove(self._kind, name)
        self._change(name, None)

    def _change(self, name: str, record: Record | None) -> None:
        before = self._records.get(name)
        self._database.on_rollback(lambda: self._set(name, before))
        self._set(name, record)

    def _set(self, name: str, record: Record | None) -> None:
        if record is None:
            self._records.pop(name, None)
        else:
            self._records[name] = record
