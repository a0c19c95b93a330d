"""The store's database and its files: neither has what the other does not know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import Preconditions
from tpuctl.sim.gcs.storage.blobs import Blobs, Database
from tpuctl.sim.gcs.storage.store import Store


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(tmp_path / "metadata.db")) as opened:
        yield opened


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
