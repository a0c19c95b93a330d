"""Objects of a source are listed by folder, read at their generation, verified, and asked for again."""

from __future__ import annotations

import random

import pytest
import requests

from tests.running_simulator import RunningSimulator
from tpuctl.bucket_objects import ListedObject
from tpuctl.cloud import bulk as bulk
from tpuctl.cloud.bulk import BulkObjects
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import ConfigError, DeadlineError, NotFoundError
from tpuctl.object_content import crc32c
from tpuctl.polling import NO_PAUSE

DATA = random.Random(1).randbytes(300_000)


@pytest.fixture
def objects(cloud: Cloud, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> BulkObjects:
    """The objects of the simulator's bucket, without pauses between requests."""
    monkeypatch.setattr(bulk, "BACKOFF", NO_PAUSE)
    return cloud.source_objects(bucket.name)


@pytest.fixture
def item(bucket: Bucket, objects: BulkObjects) -> ListedObject:
    bucket.upload("raw/large", [DATA], "application/octet-stream")
    item = objects.find("raw/large")
    assert item
    return item


def test_a_page_has_the_objects_and_folders_directly_below_a_prefix(
    bucket: Bucket, objects: BulkObjects
) -> None:
    for name in ("raw/a", "raw/b", "raw/cat/1", "raw/dog/1", "other/1"):
        bucket.upload(name, [name.encode()], "text/plain")
    page = objects.page("raw/")
    assert [(item.name, item.size) for item in page.items] == [("raw/a", 5), ("raw/b", 5)]
    assert page.items[0].crc32c == crc32c(b"raw/a")
    assert page.items[0] == objects.find("raw/a")
    assert (page.folders, page.token) == (["raw/cat/", "raw/dog/"], "")
    first = objects.page("raw/", most=3)
    rest = objects.page("raw/", first.token, most=3)
    assert [*first.items, *rest.items] == page.items
    assert [*first.folders, *rest.folders] == page.folders
    assert objects.find("raw/c") is None


def test_all_or_part_of_an_object_is_read_at_its_generation(
    bucket: Bucket, objects: BulkObjects, item: ListedObject
) -> None:
    assert objects.read(item, 0, item.size) == DATA
    assert objects.read(item, 10, 20) == DATA[10:20]
    assert objects.read(item, 5, 5) == b""
    bucket.upload("raw/large", [b"another"], "text/plain")
    with pytest.raises(NotFoundError):
        objects.read(item, 0, item.size)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("gcs-error", {"status": "429", "count": 3}),
        ("gcs-error", {"status": "503", "count": 3}),
        ("gcs-cut", {"bytes": "100kB", "count": 3}),
        ("gcs-reset", {"count": 3}),
        ("gcs-corrupt", {"count": 2}),
    ],
)
def test_what_fails_on_the_way_is_asked_for_again(
    objects: BulkObjects, item: ListedObject, simulator: RunningSimulator, kind: str, options: dict[str, str]
) -> None:
    simulator.faults.add(kind, method="storage.objects.get", object="raw/large", **options)
    assert objects.read(item, 0, item.size) == DATA
    assert simulator.faults.all() == []


def test_a_listing_that_fails_is_asked_for_again(
    objects: BulkObjects, item: ListedObject, simulator: RunningSimulator
) -> None:
    for status in ("429", "503"):
        simulator.faults.add("gcs-error", method="storage.objects.list", status=status, count=1)
    assert objects.page("raw/").items == [item]


def test_an_object_that_arrives_damaged_each_time_is_named(
    objects: BulkObjects, item: ListedObject, simulator: RunningSimulator
) -> None:
    simulator.faults.add("gcs-corrupt", method="storage.objects.get", object="raw/large")
    with pytest.raises(DeadlineError, match="raw/large arrived damaged 3 times"):
        objects.read(item, 0, item.size)


def test_a_service_that_never_answers_is_named(
    objects: BulkObjects, item: ListedObject, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PATIENCE", 0.0)
    simulator.faults.add("gcs-error", method="storage.objects.get", status="503")
    with pytest.raises(DeadlineError, match="raw/large"):
        objects.read(item, 0, item.size)


def test_a_refusal_is_not_asked_again(
    objects: BulkObjects, item: ListedObject, simulator: RunningSimulator
) -> None:
    simulator.faults.add("gcs-error", method="storage.objects.list", status="403")
    with pytest.raises(ConfigError) as refused:
        objects.page("raw/")
    assert "gs://sim-project-tpuctl/raw/" in refused.value.message
    assert '"error"' not in refused.value.message, "the sentence of the service, and not its JSON"
    assert len(simulator.events.find(kind="request", what="*objects.list")) == 1


def test_a_bucket_that_does_not_exist_is_told_from_an_object(cloud: Cloud) -> None:
    missing = cloud.source_objects("no-such-bucket")
    item = ListedObject("a", 1, 1)
    for call in (lambda: missing.page(""), lambda: missing.find("a"), lambda: missing.read(item, 0, 1)):
        with pytest.raises(NotFoundError, match="The bucket gs://no-such-bucket does not exist"):
            call()


def test_the_content_encoding_is_told(
    simulator: RunningSimulator, bucket: Bucket, objects: BulkObjects
) -> None:
    url = f"{simulator.simulator.endpoints['storage']}/upload/storage/v1/b/{bucket.name}/o"
    query = {"uploadType": "media", "name": "packed", "contentEncoding": "gzip"}
    assert requests.post(url, params=query, data=b"\x1f\x8b...", timeout=60).status_code == 200
    item = objects.find("packed")
    assert item
    assert item.encoding == "gzip"
