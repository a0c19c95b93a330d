"""Objects through the real client: contents, metadata, checksums, preconditions, listing, copies."""

from __future__ import annotations

import base64
import gzip
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import google_crc32c
import pytest
from google.api_core import exceptions
from google.cloud import storage

from tests.sim.gcs.running_server import refused

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
