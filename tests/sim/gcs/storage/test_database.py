"""Transactions of the store's database: all or nothing, and what follows a commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules.preconditions import Preconditions
from tpuctl.sim.gcs.storage.blobs import Blobs
from tpuctl.sim.gcs.storage.database import Database
from tpuctl.sim.gcs.storage.store import Store

INSERT = "insert into buckets values (?, 'acme', '', '', 1, '{}', null)"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(tmp_path / "metadata.db")) as opened:
        yield opened


def names(database: Database) -> list[str]:
    return [row[0] for row in database.rows("select name from buckets")]


def test_a_transaction_that_fails_changes_nothing(database: Database) -> None:
    done = []

    def fail_midway() -> None:
        with database.transaction():
            database.execute(INSERT, ("outer",))
            with database.transaction():
                database.execute(INSERT, ("inner",))
                database.after_commit(lambda: done.append("too early"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_midway()
    assert (names(database), done) == ([], [])


def test_what_follows_a_commit_waits_for_the_outermost(database: Database) -> None:
    seen = []
    with database.transaction():
        with database.transaction():
            database.execute(INSERT, ("inner",))
            database.after_commit(lambda: seen.append(names(database)))
        assert seen == []
    assert seen == [["inner"]]


def test_a_move_that_fails_midway_moves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Store(tmp_path)) as store:
        store.create_bucket("acme-data", "acme")
        with store.blobs.create() as writer:
            writer.write([b"data"])
            source = store.objects.create("acme-data", "a", writer.finish(), {}, Preconditions())

        def refuse(*_: object) -> None:  # stands in for a disk that fills up between the two steps
            raise GcsError(500, "in between")

        monkeypatch.setattr(store.objects, "delete", refuse)
        with pytest.raises(GcsError):
            store.objects.move(source, "b", Preconditions(), Preconditions())
        assert store.objects.find("acme-data", "b") is None
        with store.blobs.open(store.objects.get("acme-data", "a").blob) as file:
            assert file.read() == b"data"


def test_a_blob_that_nobody_names_is_discarded(database: Database, tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs", database)
    with blobs.create() as writer:
        writer.write([b"data"])
        assert blobs.size(writer.blob) == 4
    assert blobs.size(writer.blob) == 0
