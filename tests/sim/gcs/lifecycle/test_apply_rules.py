"""Lifecycle rules: objects and uploads that they delete, keep, or move to another storage class."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import requests
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, RunningGcs
from tpuctl.sim.gcs.background_tasks import run_once


def after(gcs: RunningGcs, **time: float) -> None:
    """Run the background tasks as of some time from now."""
    gcs.call(run_once(gcs.server.store, datetime.now(UTC) + timedelta(**time)))


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
    assert [(blob.name, blob.storage_class) for blob in bucket.list_blobs()] == [
        ("a", "STANDARD"),
        ("b.log", "COLDLINE"),
    ]


def test_lifecycle_rules_delete_old_versions(gcs: RunningGcs, bucket: storage.Bucket) -> None:
    bucket.versioning_enabled = True
    bucket.add_lifecycle_delete_rule(number_of_newer_versions=2)
    bucket.patch()
    blob = bucket.blob("a")
    generations = []
    for data in (b"1", b"2", b"3", b"4"):
        blob.upload_from_string(data)
        generations.append(blob.generation)
    after(gcs, seconds=1)
    assert [version.generation for version in bucket.list_blobs(versions=True)] == generations[2:]
    bucket.blob("a").delete()
    assert [version.generation for version in bucket.list_blobs(versions=True)] == generations[2:]
    bucket.clear_lifecyle_rules()
    bucket.add_lifecycle_delete_rule(days_since_noncurrent_time=1, is_live=False)
    bucket.patch()
    after(gcs, days=2)
    assert (list(bucket.list_blobs(versions=True)), len(gcs.blob_files())) == ([], 0)


def test_lifecycle_rules_skip_held_objects_and_abort_old_uploads(
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
    assert [blob.name for blob in bucket.list_blobs()] == ["a"]


def test_an_age_is_reached_at_its_last_second(
    gcs: RunningGcs, http: requests.Session, bucket: storage.Bucket
) -> None:
    bucket.add_lifecycle_delete_rule(age=1)
    bucket.add_lifecycle_abort_incomplete_multipart_upload_rule(age=1)
    bucket.patch()
    blob = bucket.blob("a")
    blob.upload_from_string(b"")
    assert http.post(f"{gcs.url}/{BUCKET}/b?uploads").status_code == 200
    uploads = f"{gcs.url}/{BUCKET}?uploads"
    begun = datetime.fromisoformat(http.get(uploads).text.partition("<Initiated>")[2].partition("<")[0])
    for created, is_there in (
        (blob.time_created, blob.exists),
        (begun, lambda: "<Initiated>" in http.get(uploads).text),
    ):
        for second, is_kept in ((-1, True), (0, False)):
            gcs.call(run_once(gcs.server.store, created + timedelta(days=1, seconds=second)))
            assert is_there() is is_kept, (created, second)


def test_the_background_task_ends_with_the_server(gcs: RunningGcs) -> None:
    names = [task.get_coro().__qualname__ for task in asyncio.all_tasks(gcs.loop)]
    assert names.count("run_forever") == 1
