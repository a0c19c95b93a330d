"""Each condition of a lifecycle rule, on the store alone: https://cloud.google.com/storage/docs/lifecycle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tpuctl.sim.gcs.background_tasks import apply_lifecycle
from tpuctl.sim.gcs.rules import Preconditions
from tpuctl.sim.gcs.storage.store import Store

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
