"""Holds, retention policies and soft delete: objects that cannot be deleted, or can be restored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import requests
from google.api_core import exceptions
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, RunningGcs

WEEK = 7 * 86400


@pytest.mark.parametrize("hold", ["temporary_hold", "event_based_hold"])
def test_an_object_on_hold_cannot_be_deleted_or_replaced(bucket: storage.Bucket, hold: str) -> None:
    blob = bucket.blob("a")
    blob.upload_from_string(b"data")
    setattr(blob, hold, True)
    blob.patch()
    for act in (
        blob.delete,
        lambda: blob.upload_from_string(b"new"),
        lambda: bucket.move_blob(bucket.blob("a"), "b"),
        lambda: bucket.copy_blob(bucket.blob("a"), bucket, "a"),
    ):
        with pytest.raises(exceptions.Forbidden, match="hold"):
            act()
    bucket.copy_blob(blob, bucket, "copy")
    assert getattr(bucket.get_blob("copy"), hold) is None
    blob.metadata = {"k": "v"}
    blob.patch()
    setattr(blob, hold, False)
    blob.patch()
    blob.delete()
    assert [blob.name for blob in bucket.list_blobs()] == ["copy"]


def test_a_bucket_can_put_its_objects_on_hold(bucket: storage.Bucket) -> None:
    bucket.default_event_based_hold = True
    bucket.patch()
    bucket.blob("a").upload_from_string(b"")
    assert bucket.get_blob("a").event_based_hold is True


def test_a_retention_policy_keeps_objects_and_can_be_locked(
    client: storage.Client, bucket: storage.Bucket
) -> None:
    bucket.blob("a").upload_from_string(b"data")
    bucket.retention_period = 3600
    bucket.patch()
    with pytest.raises(exceptions.Forbidden, match="retention policy"):
        bucket.blob("a").delete()
    with pytest.raises(exceptions.Forbidden, match="retention policy"):
        bucket.blob("a").upload_from_string(b"new")
    bucket.reload()
    bucket.lock_retention_policy()
    assert client.get_bucket(BUCKET).retention_policy_locked
    bucket.retention_period = 60
    with pytest.raises(exceptions.Forbidden, match="locked Retention Policy"):
        bucket.patch()
    assert bucket.blob("a").download_as_bytes() == b"data"


def test_an_objects_own_retention_keeps_it(client: storage.Client) -> None:
    bucket = client.create_bucket("acme-locked", enable_object_retention=True)
    blob = bucket.blob("a")
    blob.upload_from_string(b"")
    blob.retention.mode = "Unlocked"
    blob.retention.retain_until_time = datetime.now(UTC) + timedelta(hours=1)
    blob.patch(override_unlocked_retention=True)
    with pytest.raises(exceptions.Forbidden, match="object retention"):
        blob.delete()


def test_soft_deleted_objects_can_be_listed_and_restored(
    gcs: RunningGcs, http: requests.Session, client: storage.Client, bucket: storage.Bucket
) -> None:
    bucket.soft_delete_policy.retention_duration_seconds = WEEK
    bucket.patch()
    blob = bucket.blob("a")
    for data in (b"1", b"2"):
        blob.metadata = {"k": data.decode()}
        blob.upload_from_string(data)
    blob.delete()
    assert list(bucket.list_blobs()) == list(bucket.list_blobs(versions=True)) == []
    deleted = list(bucket.list_blobs(soft_deleted=True))
    assert [blob.metadata for blob in deleted] == [{"k": "1"}, {"k": "2"}]
    assert all(blob.hard_delete_time - blob.soft_delete_time == timedelta(seconds=WEEK) for blob in deleted)
    assert bucket.get_blob("a", generation=deleted[0].generation, soft_deleted=True).size == 1
    with pytest.raises(exceptions.NotFound):
        bucket.restore_blob("a", generation=1)
    restored = bucket.restore_blob("a", generation=deleted[0].generation)
    assert restored.generation > deleted[1].generation
    assert (restored.download_as_bytes(), restored.metadata, restored.soft_delete_time) == (
        b"1",
        {"k": "1"},
        None,
    )
    assert len(list(bucket.list_blobs(soft_deleted=True))) == 1
    assert len(gcs.blob_files()) == 2
    url = f"{gcs.url}/storage/v1/b/{BUCKET}/o"
    assert http.get(url, params={"softDeleted": "true", "versions": "true"}).status_code == 400
    assert http.get(f"{url}/a", params={"softDeleted": "true"}).status_code == 400


def test_soft_deleted_objects_expire(gcs: RunningGcs, bucket: storage.Bucket) -> None:
    bucket.soft_delete_policy.retention_duration_seconds = WEEK
    bucket.patch()
    bucket.blob("a").upload_from_string(b"data")
    bucket.blob("a").delete()
    gcs.server.store.objects.soft_deletes.delete_expired(datetime.now().timestamp() + WEEK - 60)
    assert len(gcs.blob_files()) == 1
    gcs.server.store.objects.soft_deletes.delete_expired(datetime.now().timestamp() + WEEK + 60)
    assert (list(bucket.list_blobs(soft_deleted=True)), len(gcs.blob_files())) == ([], 0)
