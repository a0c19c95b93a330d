"""Multipart uploads in the store: what is refused once one has ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import Preconditions
from tpuctl.sim.gcs.storage.blobs import Content
from tpuctl.sim.gcs.storage.store import Store

BUCKET = "acme-data"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "gcs")
    made.create_bucket(BUCKET, "p")
    yield made
    made.close()


def content(store: Store, data: bytes = b"part") -> Content:
    with store.blobs.create() as writer:
        writer.write([data])
        return writer.finish()


def test_an_upload_that_was_aborted_meanwhile_takes_no_part(store: Store) -> None:
    upload = store.multipart_uploads.start(BUCKET, "a", {})
    store.multipart_uploads.delete(upload)
    with pytest.raises(GcsError) as raised:
        store.multipart_uploads.put_part(upload, 1, content(store))
    assert raised.value.status == 404
    assert store.multipart_uploads.parts(upload) == []


def test_an_upload_is_completed_once(store: Store) -> None:
    upload = store.multipart_uploads.start(BUCKET, "a", {})
    first = store.multipart_uploads.complete(upload, content(store), Preconditions())
    with pytest.raises(GcsError) as raised:
        store.multipart_uploads.complete(upload, content(store, b"other"), Preconditions())
    assert raised.value.status == 404
    assert store.objects.get(BUCKET, "a").generation == first.generation
