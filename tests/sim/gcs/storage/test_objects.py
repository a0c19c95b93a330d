"""Objects through the real client.

Contents, metadata, preconditions, listing, copies, and those that cannot be deleted.
"""

from __future__ import annotations

import base64
import gzip
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import google_crc32c
import pytest
import requests
from google.api_core import exceptions
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, RunningGcs, refused
from tpuctl.sim.gcs.storage import store

MIB = 1 << 20


@pytest.mark.parametrize("size", [0, 1, 64 << 10, 3 * MIB + 7])
def test_an_uploaded_object_is_downloaded_unchanged(bucket: storage.Bucket, size: int) -> None:
    data = os.urandom(size)
    blob = bucket.blob("dir/größe \U0001f600?#%.bin")
    blob.upload_from_string(data, content_type="application/x-test", checksum="md5")
    again = bucket.get_blob(blob.name)
    assert again.download_as_bytes() == data
    assert (again.size, again.content_type) == (size, "application/x-test")
    assert again.crc32c == base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


def test_metadata_is_kept_patched_and_counted(bucket: storage.Bucket) -> None:
    blob = bucket.blob("a")
    blob.metadata = {"color": "red", "shape": "round"}
    blob.cache_control = "no-store"
    blob.upload_from_string(b"x")
    blob.metadata = {"color": "blue", "shape": None}
    blob.patch()
    again = bucket.get_blob("a")
    assert again.metadata == {"color": "blue"}
    assert (again.metageneration, again.cache_control) == (2, "no-store")
    assert again.generation == blob.generation


def test_a_write_gets_a_new_and_larger_generation(bucket: storage.Bucket) -> None:
    blob = bucket.blob("a")
    generations = []
    for _ in range(5):
        blob.upload_from_string(b"x")
        generations.append(blob.generation)
    assert generations == sorted(set(generations))


def test_a_wrong_checksum_is_refused_and_changes_nothing(bucket: storage.Bucket) -> None:
    bucket.blob("a").upload_from_string(b"old")
    wrong = bucket.blob("a")
    wrong.md5_hash = base64.b64encode(b"0" * 16).decode()
    with pytest.raises(exceptions.BadRequest, match="doesn't match calculated MD5 hash"):
        wrong.upload_from_string(b"new", checksum=None)
    assert bucket.blob("a").download_as_bytes() == b"old"


def test_an_absent_object_or_bucket_is_not_found(bucket: storage.Bucket, client: storage.Client) -> None:
    with refused(exceptions.NotFound, "No such object: acme-data/nothing"):
        bucket.blob("nothing").download_as_bytes()
    with pytest.raises(exceptions.NotFound, match="bucket does not exist"):
        client.bucket("no-such-bucket").blob("a").upload_from_string(b"")
    with pytest.raises(exceptions.NotFound):
        bucket.blob("nothing").delete()
    assert not bucket.blob("nothing").exists()


def test_preconditions_hold_on_every_write(bucket: storage.Bucket) -> None:
    blob = bucket.blob("a")
    blob.upload_from_string(b"1", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string(b"2", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("b").upload_from_string(b"2", if_generation_match=17)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.delete(if_generation_match=blob.generation + 1)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.patch(if_metageneration_match=2)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.copy_blob(blob, bucket, "b", if_source_generation_match=1)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("a").compose([blob], if_generation_match=0)
    with refused(exceptions.PreconditionFailed):
        bucket.blob("a").download_as_bytes(if_generation_match=1)
    with pytest.raises(exceptions.NotModified):
        blob.reload(if_generation_not_match=blob.generation)
    assert [blob.name for blob in bucket.list_blobs()] == ["a"]
    blob.upload_from_string(b"2", if_generation_match=blob.generation, if_metageneration_match=1)
    assert blob.download_as_bytes() == b"2"


def test_of_many_writers_with_generation_zero_exactly_one_wins(bucket: storage.Bucket) -> None:
    together = threading.Barrier(32)

    def write(number: int) -> int | None:
        blob = bucket.blob("lock")
        together.wait()
        try:
            blob.upload_from_string(str(number) * 100_000, if_generation_match=0)
        except exceptions.PreconditionFailed:
            return None
        return number

    with ThreadPoolExecutor(32) as pool:
        winners = [number for number in pool.map(write, range(10, 42)) if number is not None]
    assert len(winners) == 1
    assert bucket.blob("lock").download_as_bytes() == str(winners[0]).encode() * 100_000


def test_of_many_counters_none_loses_a_count(bucket: storage.Bucket) -> None:
    bucket.blob("count").upload_from_string(b"0")

    def count(_: int) -> None:
        while True:
            blob = bucket.get_blob("count")
            try:
                number = int(blob.download_as_bytes(if_generation_match=blob.generation))
                blob.upload_from_string(str(number + 1), if_generation_match=blob.generation)
            except (exceptions.PreconditionFailed, exceptions.NotFound) as error:
                if error.response is not None:
                    error.response.close()
                continue
            return

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(32)))
    assert bucket.blob("count").download_as_bytes() == b"32"


def test_listing_has_each_folder_once_and_pages_within_their_size(bucket: storage.Bucket) -> None:
    names = [f"runs/{run}/log/{part:03}" for run in "abc" for part in range(7)] + ["runs/x", "runs/y", "zoo"]
    for name in names:
        bucket.blob(name).upload_from_string(b"")
    for size in (1, 2, 1000):
        listing = bucket.list_blobs(prefix="runs/", delimiter="/", page_size=size)
        pages = [[blob.name for blob in page] for page in listing.pages]
        assert [name for page in pages for name in page] == ["runs/x", "runs/y"]
        assert sorted(listing.prefixes) == ["runs/a/", "runs/b/", "runs/c/"]
        assert size > 2 or len(pages) == -(-5 // size)
    assert [blob.name for blob in bucket.list_blobs(page_size=4)] == sorted(names)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"start_offset": "b", "end_offset": "d/2"}, ["b/", "b/1", "c", "d/1"]),
        ({"match_glob": "**/1"}, ["b/1", "d/1"]),
        ({"match_glob": "[!a-b]*"}, ["c"]),
        ({"match_glob": "{a,d/?}"}, ["a", "d/1", "d/2"]),
        ({"delimiter": "/", "include_trailing_delimiter": True}, ["a", "b/", "c"]),
        ({"prefix": "d/"}, ["d/1", "d/2"]),
        ({"prefix": "nothing"}, []),
    ],
)
def test_listing_applies_its_filters(
    bucket: storage.Bucket, options: dict[str, object], expected: list[str]
) -> None:
    for name in ["a", "b/", "b/1", "c", "d/1", "d/2"]:
        bucket.blob(name).upload_from_string(b"")
    for size in (1, 1000):
        assert [blob.name for blob in bucket.list_blobs(page_size=size, **options)] == expected


def test_listing_is_in_the_order_of_utf8_and_passes_the_edges_of_unicode(bucket: storage.Bucket) -> None:
    names = ["\U0010ffff/b", "\U0010ffff/a", "\ud7ff/x", "\ue000", "é", "e", "\U0001f600", "\uffff"]
    for name in names:
        bucket.blob(name).upload_from_string(b"")
    expected = sorted(names, key=str.encode)
    assert [blob.name for blob in bucket.list_blobs(page_size=3)] == expected
    listing = bucket.list_blobs(delimiter="/", page_size=3)
    assert [blob.name for blob in listing] == [name for name in expected if "/" not in name]
    assert listing.prefixes == {"\U0010ffff/", "\ud7ff/"}
    for delimiter in ("\U0010ffff", "\ud7ff", "\x7f"):
        listing = bucket.list_blobs(delimiter=delimiter)
        assert [blob.name for blob in listing] == [name for name in expected if delimiter not in name]


def test_copies_share_bytes_but_live_apart(bucket: storage.Bucket, client: storage.Client) -> None:
    blob = bucket.blob("a")
    blob.metadata = {"k": "v"}
    blob.upload_from_string(b"data" * 30_000, content_type="text/x")
    other = client.create_bucket("acme-other")
    copied = bucket.copy_blob(blob, other, "copy")
    token, rewritten, total = other.blob("rewritten").rewrite(bucket.blob("a"))
    assert (token, rewritten, total) == (None, 120_000, 120_000)
    blob.delete()
    assert copied.download_as_bytes() == other.blob("rewritten").download_as_bytes() == b"data" * 30_000
    again = other.get_blob("copy")
    assert (again.content_type, again.metadata, again.metageneration) == ("text/x", {"k": "v"}, 1)
    copied.delete()
    other.blob("rewritten").delete()


def test_a_copy_onto_itself_keeps_its_bytes(bucket: storage.Bucket) -> None:
    blob = bucket.blob("a")
    blob.upload_from_string(b"data")
    bucket.blob("a").rewrite(bucket.blob("a"))
    assert bucket.get_blob("a").generation > blob.generation
    assert bucket.blob("a").download_as_bytes() == b"data"


def test_an_object_moves(bucket: storage.Bucket) -> None:
    blob = bucket.blob("a")
    blob.upload_from_string(b"data")
    bucket.move_blob(blob, "b")
    assert [blob.name for blob in bucket.list_blobs()] == ["b"]
    assert bucket.blob("b").download_as_bytes() == b"data"


def test_composing_puts_parts_one_behind_the_other(bucket: storage.Bucket) -> None:
    parts = [os.urandom(MIB + number) for number in range(3)]
    blobs = [bucket.blob(f"part-{number}") for number in range(3)]
    for blob, data in zip(blobs, parts, strict=True):
        blob.upload_from_string(data)
    whole = bucket.blob("part-0")
    whole.content_type = "text/x"
    whole.compose(blobs)
    assert whole.download_as_bytes() == b"".join(parts)
    assert (whole.component_count, whole.md5_hash, whole.content_type) == (3, None, "text/x")
    assert whole.crc32c == base64.b64encode(google_crc32c.value(b"".join(parts)).to_bytes(4, "big")).decode()
    with pytest.raises(exceptions.NotFound):
        whole.compose([whole, bucket.blob("nothing")])
    with pytest.raises(exceptions.BadRequest, match="exceeds the maximum"):
        whole.compose([whole] * 33)


def test_a_versioned_bucket_keeps_what_is_overwritten_and_deleted(bucket: storage.Bucket) -> None:
    bucket.versioning_enabled = True
    bucket.patch()
    blob = bucket.blob("a")
    generations = []
    for data in (b"1", b"2", b"3"):
        blob.upload_from_string(data)
        generations.append(blob.generation)
    bucket.blob("a").delete()
    assert [blob.name for blob in bucket.list_blobs()] == []
    for size in (1, 1000):
        versions = list(bucket.list_blobs(versions=True, page_size=size))
        assert [version.generation for version in versions] == generations
        assert all(version.time_deleted for version in versions)
    assert bucket.blob("a", generation=generations[1]).download_as_bytes() == b"2"
    bucket.blob("a", generation=generations[1]).delete()
    assert [version.generation for version in bucket.list_blobs(versions=True)] == generations[::2]
    bucket.copy_blob(bucket.blob("a"), bucket, "a", source_generation=generations[0])
    assert bucket.blob("a").download_as_bytes() == b"1"


def test_gzipped_objects_come_back_plain(bucket: storage.Bucket) -> None:
    blob = bucket.blob("log.gz")
    blob.content_encoding = "gzip"
    blob.upload_from_string(gzip.compress(b"line\n" * 50_000))
    assert bucket.get_blob("log.gz").download_as_bytes() == b"line\n" * 50_000
    assert gzip.decompress(blob.download_as_bytes(raw_download=True)) == b"line\n" * 50_000


@pytest.mark.parametrize(
    ("prefix", "following"),
    [
        ("a/", "a0"),
        ("a", "b"),
        ("\ud7ff", "\ue000"),
        ("a\ud7ff", "a\ue000"),
        ("\U0010ffff", None),
        ("ab\U0010ffff", "ac"),
        ("ab\U0010ffff\U0010ffff", "ac"),
        ("\U0010fffe", "\U0010ffff"),
        ("", None),
    ],
)
def test_it_is_the_least_name_above_them(prefix: str, following: str | None) -> None:
    assert store._after(prefix) == following


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
