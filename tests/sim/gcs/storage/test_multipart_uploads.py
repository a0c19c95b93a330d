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
def upload_store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "gcs")
    made.create_bucket(BUCKET, "p")
    yield made
    made.close()


def content(upload_store: Store, data: bytes = b"part") -> Content:
    with upload_store.blobs.create() as writer:
        writer.write([data])
        return writer.finish()


def test_an_upload_that_was_aborted_meanwhile_takes_no_part(upload_store: Store) -> None:
    upload = upload_store.multipart_uploads.start(BUCKET, "a", {})
    upload_store.multipart_uploads.delete(upload)
    with pytest.raises(GcsError) as raised:
        upload_store.multipart_uploads.put_part(upload, 1, content(upload_store))
    assert raised.value.status == 404
    assert upload_store.multipart_uploads.parts(upload) == []


def test_an_upload_is_completed_once(upload_store: Store) -> None:
    upload = upload_store.multipart_uploads.start(BUCKET, "a", {})
    first = upload_store.multipart_uploads.complete(upload, content(upload_store), Preconditions())
    with pytest.raises(GcsError) as raised:
        upload_store.multipart_uploads.complete(upload, content(upload_store, b"other"), Preconditions())
    assert raised.value.status == 404
    assert upload_store.objects.get(BUCKET, "a").generation == first.generation
