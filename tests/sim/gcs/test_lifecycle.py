"""Lifecycle rules: their conditions, what they delete, keep or move, and when the tasks run by themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, RunningGcs
from tpuctl.sim.gcs import background_tasks
from tpuctl.sim.gcs.background_tasks import apply_lifecycle, run_once
from tpuctl.sim.gcs.checksums import ExpectedChecksums
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import Preconditions
from tpuctl.sim.gcs.storage import upload_sessions
from tpuctl.sim.gcs.storage.store import Store


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


STORED_BUCKET = "acme-data"
ALWAYS = Preconditions()


class Objects:
    """A store with a versioned bucket and some objects, and the rules that are applied to them."""

    def __init__(self, folder: Path) -> None:
        self._store = Store(folder)
        self._store.ensure_bucket(STORED_BUCKET, "acme")
        self.now = datetime.now(UTC)

    def put(self, name: str, **fields: Any) -> None:
        with self._store.blobs.create() as writer:
            self._store.objects.create(STORED_BUCKET, name, writer.finish(), fields, ALWAYS)

    def start_upload(self, name: str) -> None:
        self._store.multipart_uploads.start(STORED_BUCKET, name, {})

    def delete(self, name: str) -> None:
        self._store.objects.delete(STORED_BUCKET, name, None, ALWAYS)

    def set(self, **fields: Any) -> None:
        """Change the bucket."""
        self._store.buckets.patch(STORED_BUCKET, fields, ALWAYS)

    def left_after(self, condition: dict[str, Any], action: str = "Delete", **time: float) -> list[str]:
        """Apply a rule as of some time from now, and return the names of the generations that are left."""
        self.set(lifecycle={"rule": [{"action": {"type": action}, "condition": condition}]})
        return self.left(**time)

    def left(self, **time: float) -> list[str]:
        for _ in apply_lifecycle(self._store, self.now + timedelta(**time)):
            pass
        rows = self._store.database.rows(str, "select name from objects order by name, generation")
        return list(rows)

    def classes(self) -> dict[str, str]:
        names = self._store.database.rows(str, "select name from objects where live = 1 order by name")
        return {name: self._store.objects.get(STORED_BUCKET, name).storage_class for name in list(names)}

    def uploads(self) -> list[str]:
        return [upload.name for upload in self._store.multipart_uploads.in_bucket(STORED_BUCKET)]

    def close(self) -> None:
        self._store.close()


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[Objects]:
    with closing(Objects(tmp_path)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("condition", "days", "deleted"),
    [
        ({"age": 2}, 1.9, ""),
        ({"age": 2}, 2.1, "cold plain timed"),
        ({"age": 0}, 0.1, "cold plain timed"),
        ({"createdBefore": "2000-01-01"}, 9, ""),
        ({"createdBefore": "2999-01-01"}, 0, "cold plain timed"),
        ({"customTimeBefore": "2020-01-02"}, 0, "timed"),
        ({"customTimeBefore": "2020-01-01"}, 0, ""),
        ({"daysSinceCustomTime": 1}, 0, "timed"),
        ({"daysSinceCustomTime": 0}, 0, "timed"),
        ({"daysSinceCustomTime": 100_000}, 0, ""),
        ({"daysSinceNoncurrentTime": 0}, 9, ""),
        ({"noncurrentTimeBefore": "2999-01-01"}, 9, ""),
        ({"isLive": True}, 0, "cold plain timed"),
        ({"isLive": False}, 0, ""),
        ({"numNewerVersions": 1}, 0, ""),
        ({"numNewerVersions": 0}, 0, "cold plain timed"),
        ({"matchesStorageClass": ["COLDLINE", "NEARLINE"]}, 0, "cold"),
        ({"matchesStorageClass": ["STANDARD"]}, 0, "plain timed"),
        ({"matchesPrefix": ["pl", "ti"]}, 0, "plain timed"),
        ({"matchesPrefix": ["lain"]}, 0, ""),
        ({"matchesSuffix": ["n", "old"]}, 0, "cold plain"),
        ({"matchesSuffix": ["plai"]}, 0, ""),
        ({"age": 2, "matchesPrefix": ["plain"]}, 3, "plain"),
        ({"age": 2, "matchesPrefix": ["plain"]}, 1, ""),
    ],
)
def test_a_condition_on_live_objects(
    objects: Objects, condition: dict[str, Any], days: float, deleted: str
) -> None:
    objects.put("plain")
    objects.put("cold", storageClass="COLDLINE")
    objects.put("timed", customTime="2020-01-01T00:00:00Z")
    assert objects.left_after(condition, days=days) == sorted(
        {"cold", "plain", "timed"} - set(deleted.split())
    )


@pytest.mark.parametrize(
    ("condition", "days", "left"),
    [
        ({"daysSinceNoncurrentTime": 2}, 1.9, 4),
        ({"daysSinceNoncurrentTime": 2}, 2.1, 1),
        ({"noncurrentTimeBefore": "2999-01-01"}, 0, 1),
        ({"noncurrentTimeBefore": "2000-01-01"}, 9, 4),
        ({"numNewerVersions": 1}, 0, 1),
        ({"numNewerVersions": 2}, 0, 2),
        ({"numNewerVersions": 3}, 0, 3),
        ({"numNewerVersions": 4}, 0, 4),
        ({"isLive": False}, 0, 1),
    ],
)
def test_a_condition_on_generations(
    objects: Objects, condition: dict[str, Any], days: float, left: int
) -> None:
    objects.set(versioning={"enabled": True})
    for _ in range(4):
        objects.put("a")
    assert len(objects.left_after(condition, days=days)) == left


def test_a_live_object_becomes_noncurrent_in_a_versioned_bucket(objects: Objects) -> None:
    objects.set(versioning={"enabled": True})
    objects.put("a")
    assert objects.left_after({"isLive": True}) == ["a"]
    assert objects.classes() == {}
    assert objects.left_after({"isLive": False}) == []


def test_an_object_changes_its_class_once(objects: Objects) -> None:
    objects.put("a")
    objects.put("b", storageClass="ARCHIVE")
    rules = [
        {"action": {"type": "SetStorageClass", "storageClass": name}, "condition": {"age": age}}
        for name, age in (("NEARLINE", 1), ("COLDLINE", 1), ("ARCHIVE", 5))
    ]
    objects.set(lifecycle={"rule": rules})
    assert objects.left(days=0.5) == ["a", "b"]
    assert objects.classes() == {"a": "STANDARD", "b": "ARCHIVE"}
    objects.left(days=2)
    assert objects.classes() == {"a": "NEARLINE", "b": "NEARLINE"}
    rules.append({"action": {"type": "Delete"}, "condition": {"matchesPrefix": ["b"], "age": 1}})
    objects.set(lifecycle={"rule": rules})
    assert objects.left(days=2) == ["a"], "a deletion comes first"
    objects.set(lifecycle={"rule": [{"action": {"type": "SetStorageClass"}, "condition": {"age": 0}}]})
    objects.left(days=2)
    assert objects.classes() == {"a": "NEARLINE"}


def test_an_object_on_hold_stays_for_the_next_time(objects: Objects) -> None:
    objects.put("a", temporaryHold=True)
    objects.put("b")
    assert objects.left_after({"age": 0}, days=1) == ["a"]


@pytest.mark.parametrize(
    ("condition", "days", "left"),
    [
        ({"age": 2}, 1.9, "dir/a dir/b"),
        ({"age": 2}, 2.1, ""),
        ({"matchesPrefix": ["dir/a", "x"]}, 0.1, "dir/b"),
        ({"matchesSuffix": ["b"]}, 0.1, "dir/a"),
        ({"age": 0, "matchesPrefix": ["dir/"], "matchesSuffix": ["a", "b"]}, 0.1, ""),
        ({"matchesPrefix": ["a"]}, 9, "dir/a dir/b"),
    ],
)
def test_a_condition_on_uploads(objects: Objects, condition: dict[str, Any], days: float, left: str) -> None:
    objects.put("plain")
    for name in ("dir/a", "dir/b"):
        objects.start_upload(name)
    assert objects.left_after(condition, "AbortIncompleteMultipartUpload", days=days) == ["plain"]
    assert objects.uploads() == left.split()


def test_many_objects_are_looked_at_page_by_page(objects: Objects) -> None:
    for number in range(1001):
        objects.put(f"n{number:04}")
    objects.set(lifecycle={"rule": [{"action": {"type": "Delete"}, "condition": {"age": 0}}]})
    assert objects.left(days=1) == []


WEEK = 7 * 86400
START = 1_700_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path)) as store:
        store.create_bucket("acme-data", "acme")
        yield store


@pytest.mark.parametrize(("seconds", "is_there"), [(WEEK, True), (WEEK + 1, False)])
def test_an_upload_can_be_resumed_for_a_week(
    store: Store, monkeypatch: pytest.MonkeyPatch, seconds: int, is_there: bool
) -> None:
    now = [START]
    monkeypatch.setattr(upload_sessions, "time", SimpleNamespace(time=lambda: now[0]))
    session = store.upload_sessions.start("acme-data", "a", {}, ExpectedChecksums(), Preconditions())
    now[0] += seconds
    asyncio.run(background_tasks.run_once(store, datetime.now(UTC)))
    if is_there:
        assert store.upload_sessions.get(session.id) == session
        return
    with pytest.raises(GcsError) as raised:
        store.upload_sessions.get(session.id)
    assert (raised.value.status, raised.value.xml_code) == (404, "NoSuchUpload")


def test_the_tasks_run_every_minute_also_after_one_has_failed(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    steps: list[str] = []

    async def sleep(seconds: float) -> None:
        steps.append(f"sleep {seconds}")
        if len(steps) > 4:
            raise asyncio.CancelledError

    def delete_expired() -> None:  # stands in for a disk that fails once
        steps.append("run")
        if steps.count("run") == 1:
            raise OSError("the disk is gone")

    monkeypatch.setattr(background_tasks, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(store, "delete_expired", delete_expired)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(background_tasks.run_forever(store))
    assert steps == ["sleep 60.0", "run", "sleep 60.0", "run", "sleep 60.0"]
    (record,) = caplog.records
    assert (record.levelno, record.message) == (
        logging.ERROR,
        "a background task failed; it is retried in a minute",
    )
    assert record.exc_info is not None
