"""What keeps objects and what clears them away: holds, retention, soft delete, lifecycle, old versions."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import requests
from google.api_core import exceptions
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, RunningGcs
from tpuctl.sim.gcs.lifecycle.background_tasks import run_once

WEEK = 7 * 86400


def files(gcs: RunningGcs) -> int:
    """Return how many files hold objects' bytes."""
    return sum(path.is_file() for path in (gcs.root / "blobs").rglob("*"))


def after(gcs: RunningGcs, **time: float) -> None:
    """Let the janitor do a round as of some time from now."""
    gcs.call(run_once(gcs.server.store, datetime.now(UTC) + timedelta(**time)))


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
    assert [found.name for found in bucket.list_blobs()] == ["copy"]


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


def test_what_is_soft_deleted_can_be_listed_and_restored(
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
    gone = list(bucket.list_blobs(soft_deleted=True))
    assert [one.metadata for one in gone] == [{"k": "1"}, {"k": "2"}]
    assert all(one.hard_delete_time - one.soft_delete_time == timedelta(seconds=WEEK) for one in gone)
    assert bucket.get_blob("a", generation=gone[0].generation, soft_deleted=True).size == 1
    with pytest.raises(exceptions.NotFound):
        bucket.restore_blob("a", generation=1)
    restored = bucket.restore_blob("a", generation=gone[0].generation)
    assert restored.generation > gone[1].generation
    assert (restored.download_as_bytes(), restored.metadata, restored.soft_delete_time) == (
        b"1",
        {"k": "1"},
        None,
    )
    assert len(list(bucket.list_blobs(soft_deleted=True))) == 1
    assert files(gcs) == 2
    url = f"{gcs.url}/storage/v1/b/{BUCKET}/o"
    assert http.get(url, params={"softDeleted": "true", "versions": "true"}).status_code == 400
    assert http.get(f"{url}/a", params={"softDeleted": "true"}).status_code == 400


def test_what_was_soft_deleted_long_ago_is_gone(gcs: RunningGcs, bucket: storage.Bucket) -> None:
    bucket.soft_delete_policy.retention_duration_seconds = WEEK
    bucket.patch()
    bucket.blob("a").upload_from_string(b"data")
    bucket.blob("a").delete()
    gcs.server.store.objects.soft_deletes.delete_expired(datetime.now().timestamp() + WEEK - 60)
    assert files(gcs) == 1
    gcs.server.store.objects.soft_deletes.delete_expired(datetime.now().timestamp() + WEEK + 60)
    assert (list(bucket.list_blobs(soft_deleted=True)), files(gcs)) == ([], 0)


def test_lifecycle_rules_delete_what_has_the_age_and_the_name(
    gcs: RunningGcs, bucket: storage.Bucket
) -> None:
    bucket.add_lifecycle_delete_rule(age=3, matches_prefix=["tmp/"])
    bucket.add_lifecycle_set_storage_class_rule("COLDLINE", age=5, matches_suffix=[".log"])
    bucket.patch()
    for name in ("tmp/a", "a", "b.log", "tmp/c.log"):
        bucket.blob(name).upload_from_string(b"")
    after(gcs, days=2)
    assert len(list(bucket.list_blobs())) == 4
    after(gcs, days=6)
    assert [(one.name, one.storage_class) for one in bucket.list_blobs()] == [
        ("a", "STANDARD"),
        ("b.log", "COLDLINE"),
    ]


def test_lifecycle_rules_thin_out_old_versions(gcs: RunningGcs, bucket: storage.Bucket) -> None:
    bucket.versioning_enabled = True
    bucket.add_lifecycle_delete_rule(number_of_newer_versions=2)
    bucket.patch()
    blob = bucket.blob("a")
    generations = []
    for data in (b"1", b"2", b"3", b"4"):
        blob.upload_from_string(data)
        generations.append(blob.generation)
    after(gcs, seconds=1)
    assert [one.generation for one in bucket.list_blobs(versions=True)] == generations[2:]
    bucket.blob("a").delete()
    assert [one.generation for one in bucket.list_blobs(versions=True)] == generations[2:]
    bucket.clear_lifecyle_rules()
    bucket.add_lifecycle_delete_rule(days_since_noncurrent_time=1, is_live=False)
    bucket.patch()
    after(gcs, days=2)
    assert (list(bucket.list_blobs(versions=True)), files(gcs)) == ([], 0)


def test_lifecycle_spares_what_is_held_and_clears_unfinished_uploads(
    gcs: RunningGcs, http: requests.Session, bucket: storage.Bucket
) -> None:
    bucket.add_lifecycle_delete_rule(age=1)
    bucket.add_lifecycle_abort_incomplete_multipart_upload_rule(age=1)
    bucket.patch()
    blob = bucket.blob("a")
    blob.upload_from_string(b"")
    blob.temporary_hold = True
    blob.patch()
    begun = http.post(f"{gcs.url}/{BUCKET}/b?uploads").text
    identity = begun.partition("<UploadId>")[2].partition("<")[0]
    url = f"{gcs.url}/{BUCKET}/b?uploadId={identity}"
    assert http.put(f"{url}&partNumber=1", data=b"data").status_code == 200
    after(gcs, hours=23)
    assert http.get(url).status_code == 200
    after(gcs, days=2)
    assert http.get(url).status_code == 404
    assert [one.name for one in bucket.list_blobs()] == ["a"]


@pytest.mark.parametrize(
    "changes",
    [
        {"lifecycle": {"rule": [{"action": {"type": "Explode"}, "condition": {"age": 1}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": "old"}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"createdBefore": "x"}}]}},
        {"lifecycle": {"rule": [5]}},
        {"softDeletePolicy": {"retentionDurationSeconds": "5"}},
        {"softDeletePolicy": {"retentionDurationSeconds": "soon"}},
        {"retentionPolicy": {"retentionPeriod": "-1"}},
        {"acl": [{"entity": 5, "role": "OWNER"}]},
        {"acl": ["x"]},
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    gcs: RunningGcs, http: requests.Session, changes: dict[str, object]
) -> None:
    url = f"{gcs.url}/storage/v1/b/{BUCKET}"
    assert http.patch(url, json=changes).status_code == 400
    assert http.get(url).json()["metageneration"] == "1"


def test_the_background_task_ends_with_the_server(gcs: RunningGcs) -> None:
    names = [task.get_coro().__qualname__ for task in asyncio.all_tasks(gcs.loop)]
    assert names.count("run_forever") == 1
