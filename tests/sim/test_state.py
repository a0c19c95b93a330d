"""Transactions: all or nothing, and what follows a commit or a rollback.

The lock of a simulator's folder: clients that look at it for a moment keep no simulator from it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tpuctl.errors import StateError
from tpuctl.sim import state
from tpuctl.sim.state import SqliteFile, lock_folder, try_lock

SCHEMA = "create table if not exists nodes (name text primary key)"
INSERT = "insert into nodes values (?)"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteFile]:
    with closing(SqliteFile(tmp_path / "state.db", SCHEMA)) as opened:
        yield opened


def names(database: SqliteFile) -> list[str]:
    return list(database.rows(str, "select name from nodes order by name"))


def test_a_transaction_that_fails_changes_nothing(database: SqliteFile) -> None:
    calls = []

    def fail_midway() -> None:
        with database.transaction():
            database.execute(INSERT, ("outer",))
            with database.transaction():
                database.execute(INSERT, ("inner",))
                database.after_commit(lambda: calls.append("too early"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_midway()
    assert (names(database), calls) == ([], [])


def test_what_follows_a_commit_waits_for_the_outermost(database: SqliteFile) -> None:
    rows_at_calls = []
    with database.transaction():
        with database.transaction():
            database.execute(INSERT, ("inner",))
            database.after_commit(lambda: rows_at_calls.append(names(database)))
        assert rows_at_calls == []
    assert rows_at_calls == [["inner"]]


def test_without_a_transaction_a_statement_has_committed_already(database: SqliteFile) -> None:
    calls = []
    database.execute(INSERT, ("a",))
    database.after_commit(lambda: calls.append("committed"))
    database.on_rollback(lambda: calls.append("rolled back"))
    with suppress(RuntimeError), database.transaction():
        raise RuntimeError
    assert calls == ["committed"]


def test_undo_actions_run_latest_first_and_only_after_a_rollback(database: SqliteFile) -> None:
    calls: list[str] = []
    with database.transaction():
        database.on_rollback(lambda: calls.append("of another transaction"))
    with suppress(RuntimeError), database.transaction():
        database.on_rollback(lambda: calls.append("first"))
        with database.transaction():
            database.on_rollback(lambda: calls.append("second"))
        raise RuntimeError
    assert calls == ["second", "first"]


def test_a_commit_that_fails_is_rolled_back(database: SqliteFile) -> None:
    calls = []
    database.execute("pragma foreign_keys = on")
    database.execute("create table disks (node text references nodes deferrable initially deferred)")

    def commit_a_disk_of_no_node() -> None:
        with database.transaction():
            database.execute(INSERT, ("a",))
            database.execute("insert into disks values ('no such node')")
            database.on_rollback(lambda: calls.append("rolled back"))
            database.after_commit(lambda: calls.append("committed"))

    with pytest.raises(sqlite3.IntegrityError):
        commit_a_disk_of_no_node()
    assert (names(database), calls) == ([], ["rolled back"])


def test_a_file_that_cannot_be_removed_does_not_undo_the_commit(
    database: SqliteFile, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def refuse() -> None:
        raise PermissionError("read-only file system")

    with database.transaction():
        database.execute(INSERT, ("a",))
        database.after_commit(refuse)
        database.after_commit(lambda: calls.append("the next action"))
    assert (names(database), calls) == (["a"], ["the next action"])
    assert "read-only file system" in caplog.text


def test_another_thread_waits_for_the_end_of_a_transaction(database: SqliteFile) -> None:
    def insert() -> None:
        with database.transaction():
            database.execute(INSERT, ("other thread",))

    other = threading.Thread(target=insert, daemon=True)
    with suppress(RuntimeError), database.transaction():
        other.start()
        database.execute(INSERT, ("this thread",))
        raise RuntimeError
    other.join()
    assert names(database) == ["other thread"]


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(SqliteFile(path, SCHEMA)):
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "simulator.lock"


def test_a_look_of_any_length_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "TIMEOUT", 0.0)
    with path.open("ab") as look, path.open("ab") as lock:
        fcntl.flock(look, fcntl.LOCK_SH)
        monkeypatch.setattr(state.time, "sleep", lambda seconds: look.close())
        assert try_lock(lock.fileno())
        assert look.closed


def test_another_simulator_is_not_waited_for_for_long(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "TIMEOUT", 0.0)
    first = lock_folder(path)
    try:
        with pytest.raises(StateError, match="A simulator already serves"):
            lock_folder(path)
    finally:
        os.close(first)
    os.close(lock_folder(path))
