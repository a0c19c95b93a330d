"""The whole store: its folder, its database and its files, and multipart uploads that have ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.sim.gcs.running_server import blob_files
from tpuctl.errors import StateError
from tpuctl.sim.gcs.checksums import ExpectedChecksums
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import Preconditions
from tpuctl.sim.gcs.storage.blobs import Blobs, Content, Database
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.upload_sessions import UploadSession

WEEK = 7 * 86400


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path / "gcs")) as store:
        store.create_bucket("data", "p", softDeletePolicy={"retentionDurationSeconds": WEEK})
        yield store


def written(store: Store, data: bytes = b"data") -> Content:
    """Return bytes on disk that some row has to name before they are discarded."""
    writer = store.blobs.create()
    writer.write([data])
    writer.file.close()
    return writer.finish()


def files(folder: Path) -> int:
    """Return how many files have bytes of objects, parts and sessions."""
    return len(blob_files(folder / "gcs"))


def session(store: Store, name: str = "a", **conditions: int) -> UploadSession:
    return store.upload_sessions.start(
        "data", name, {"contentType": "text/x"}, ExpectedChecksums("c", "m"), Preconditions(**conditions)
    )


def test_another_simulator_does_not_get_the_folder(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StateError) as raised:
        Store(tmp_path / "gcs")
    assert raised.value.message == f"{tmp_path / 'gcs'} is in use by another simulator."
    assert raised.value.hint == "Stop it first, or use another folder."
    store.close()
    Store(tmp_path / "gcs").close()


def test_a_bucket_that_is_there_is_not_made_again(store: Store) -> None:
    assert store.ensure_bucket("data", "q", location="EU").project == "p"
    made = store.ensure_bucket("more", "q", location="EU")
    assert (made.project, made.location) == ("q", "EU")
    assert store.ensure_bucket("more", "q") == made


def test_a_bucket_goes_with_its_uploads_and_its_deleted_objects(store: Store, tmp_path: Path) -> None:
    store.objects.create("data", "a", written(store), {}, Preconditions())
    store.objects.delete("data", "a", None, Preconditions())
    upload = store.multipart_uploads.start("data", "b", {})
    store.multipart_uploads.put_part(upload, 1, written(store))
    begun = session(store)
    assert files(tmp_path) == 3
    store.delete_bucket("data", Preconditions())
    assert files(tmp_path) == 1, "a session may still be under way"
    store.delete_expired()
    with pytest.raises(GcsError, match="start a new one"):
        store.upload_sessions.get(begun.id)
    with pytest.raises(GcsError, match="The requested upload was not found"):
        store.multipart_uploads.get(upload.id, "data", "b")
    store.blobs.delete_orphans()
    assert files(tmp_path) == 0


def test_a_bucket_with_objects_or_another_condition_stays(store: Store) -> None:
    with pytest.raises(GcsError) as raised:
        store.delete_bucket("data", Preconditions(metageneration_match=2))
    assert raised.value.status == 412
    store.objects.create("data", "a", written(store), {}, Preconditions())
    with pytest.raises(GcsError) as raised:
        store.delete_bucket("data", Preconditions())
    assert (raised.value.status, raised.value.xml_code) == (409, "BucketNotEmpty")
    assert store.buckets.get("data").name == "data"


def test_a_session_outlives_a_restart_and_ends_with_its_object(store: Store, tmp_path: Path) -> None:
    begun = session(store, generation_match=0)
    store.close()
    with closing(Store(tmp_path / "gcs")) as again:
        assert again.upload_sessions.get(begun.id) == begun
        assert begun.result is None
        with again.blobs.extend(begun.blob, again.blobs.checksums_of(begun.blob, 0)) as writer:
            writer.write([b"data"])
            made = again.upload_sessions.complete(begun, writer.finish())
        assert (made.name, made.size, made.fields["contentType"]) == ("a", 4, "text/x")
        complete = again.upload_sessions.get(begun.id)
        assert (complete.result, complete.blob) == (made, "")
        again.upload_sessions.delete(complete)
        assert files(tmp_path) == 1, "the bytes are the object's"
        with pytest.raises(GcsError) as raised:
            again.upload_sessions.get(begun.id)
        assert (raised.value.status, raised.value.xml_code) == (404, "NoSuchUpload")


def test_a_session_that_is_cancelled_leaves_no_bytes(store: Store, tmp_path: Path) -> None:
    begun = session(store)
    assert files(tmp_path) == 1
    store.upload_sessions.delete(begun)
    assert files(tmp_path) == 0


def test_a_session_begins_only_if_its_conditions_hold(store: Store, tmp_path: Path) -> None:
    with pytest.raises(GcsError) as raised:
        session(store, generation_match=5)
    assert (raised.value.status, files(tmp_path)) == (412, 0)


def test_a_part_takes_the_place_of_that_of_its_number(store: Store, tmp_path: Path) -> None:
    upload = store.multipart_uploads.start("data", "b", {"contentType": "text/x"})
    for number, data in ((2, b"two"), (1, b"one"), (2, b"second")):
        store.multipart_uploads.put_part(upload, number, written(store, data))
    parts = store.multipart_uploads.parts(upload)
    assert [(part.number, part.size) for part in parts] == [(1, 3), (2, 6)]
    assert files(tmp_path) == 2
    made = store.multipart_uploads.complete(upload, parts[1].content, Preconditions())
    assert (made.size, made.fields["contentType"], files(tmp_path)) == (6, "text/x", 1)
    assert store.multipart_uploads.parts(upload) == []


def test_uploads_into_a_bucket_are_listed_by_name(store: Store) -> None:
    for name in ("b", "dir/a", "a"):
        store.multipart_uploads.start("data", name, {})
    assert [upload.name for upload in store.multipart_uploads.in_bucket("data")] == ["a", "b", "dir/a"]
    assert [upload.name for upload in store.multipart_uploads.in_bucket("data", "dir/")] == ["dir/a"]
    assert store.multipart_uploads.in_bucket("other") == []


def test_an_upload_is_for_its_bucket_and_its_object(store: Store) -> None:
    upload = store.multipart_uploads.start("data", "b", {})
    assert store.multipart_uploads.get(upload.id, "data", "b") == upload
    for bucket, name in (("data", "c"), ("other", "b")):
        with pytest.raises(GcsError) as raised:
            store.multipart_uploads.get(upload.id, bucket, name)
        assert (raised.value.status, raised.value.xml_code) == (404, "NoSuchUpload")


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
