"""Stores JSON records by kind and name, and counters, in one SQLite file."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from tpuctl.sim.state.transactions import SqliteFile

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
