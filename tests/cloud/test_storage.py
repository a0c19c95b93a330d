"""Tests the client of Cloud Storage: complete objects or none; missing bucket or missing object.

Where a bucket is, as the service says it: regions, multi-regions, dual-regions; asked once.
"""

from __future__ import annotations

import gzip
import hashlib
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from google.cloud import storage

from tests.running_simulator import RunningSimulator
from tpuctl import clock
from tpuctl.bucket_objects import BadObjectError
from tpuctl.catalogue.regions import BucketLocation
from tpuctl.cloud.downloads import BoundedBuffer
from tpuctl.cloud.endpoints import Cloud, connect
from tpuctl.cloud.storage import UPLOAD_PART, Bucket, Grant
from tpuctl.config import load
from tpuctl.errors import BucketMissingError, ConflictError, DeadlineError, NotFoundError, TpuctlError
from tpuctl.object_content import MD5, Content
from tpuctl.sim.faults import grpc_fault

LIAR = "runs/The specified bucket does not exist./x"


@pytest.fixture
def nowhere(simulator) -> Iterator[Bucket]:
    """A bucket that is not there."""
    cloud = connect(load({"bucket": "no-such-bucket"}))
    yield cloud.bucket
    cloud.close()


class TestLimits:
    def test_an_object_that_is_too_large_ends_the_download(self, bucket: Bucket) -> None:
        bucket.upload("large", (bytes(1 << 20) for _ in range(40)), "text/plain")
        tracemalloc.start()
        with pytest.raises(BadObjectError, match=r"^large is larger than 1,000 bytes\.$"):
            bucket.read("large", 1000)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 5 << 20, "the simulator runs in this process, too"
        assert len(bucket.read("large", 40 << 20)) == 40 << 20

    def test_at_most_64_mebibytes_are_read_unless_the_reader_says_otherwise(
        self, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bucket.upload("small", [b"x"], "text/plain")
        limits: list[int] = []

        class RecordedBuffer(BoundedBuffer):
            def __init__(self, most: int) -> None:
                limits.append(most)
                super().__init__(most)

        # much quicker than an object of that size
        monkeypatch.setattr("tpuctl.cloud.storage.BoundedBuffer", RecordedBuffer)
        (listed,) = bucket.objects("small")
        assert {bucket.read("small"), bucket.read_listed(listed), bucket.find("small")} == {b"x"}
        assert bucket.find("small", 5) == b"x"
        assert limits == [64 << 20, 64 << 20, 64 << 20, 5]

    @pytest.mark.parametrize("size", [0, 1, 999, 1000])
    def test_an_object_within_the_limit_comes_whole(self, bucket: Bucket, size: int) -> None:
        bucket.upload("small", [bytes(size)], "text/plain")
        assert bucket.read("small", 1000) == bytes(size)

    def test_a_compressed_object_is_not_unpacked(self, bucket: Bucket, simulator, tmp_path: Path) -> None:
        packed = gzip.compress(bytes(10 << 20))
        requests.post(
            f"{simulator.simulator.endpoints['storage']}/upload/storage/v1/b/{bucket.name}/o",
            params={"uploadType": "media", "name": "bomb", "contentEncoding": "gzip"},
            data=packed,
            timeout=60,
        ).raise_for_status()
        assert bucket.read("bomb", 1 << 20) == packed
        (item,) = bucket.objects("bomb")
        bucket.download(item, tmp_path / "bomb")
        assert (tmp_path / "bomb").read_bytes() == packed

    def test_a_download_that_breaks_off_within_the_limit_is_resumed(self, bucket: Bucket, simulator) -> None:
        data = bytes(range(256)) * 8192
        bucket.upload("cut", [data], "text/plain")
        simulator.faults.add("gcs-cut", method="storage.objects.get", object="cut", bytes="300kB", count=1)
        assert bucket.read("cut", len(data)) == data


class TestMissing:
    def test_a_missing_object_is_none_to_find_and_an_error_to_read(self, bucket: Bucket) -> None:
        assert bucket.find("nothing") is None
        with pytest.raises(NotFoundError, match="gs://sim-project-tpuctl/nothing does not exist") as missing:
            bucket.read("nothing")
        assert not isinstance(missing.value, BucketMissingError)

    def test_a_missing_bucket_is_an_error_to_every_call(self, nowhere: Bucket, tmp_path: Path) -> None:
        calls = (
            nowhere.check,
            lambda: nowhere.objects("x"),
            lambda: nowhere.folders("x"),
            lambda: nowhere.read("x"),
            lambda: nowhere.find("x"),
            lambda: nowhere.create("x", b""),
            lambda: nowhere.upload("x", [b""], "text/plain"),
            lambda: nowhere.find(LIAR),
            lambda: nowhere.find("No such object: x"),
        )
        for call in calls:
            with pytest.raises(BucketMissingError, match="The bucket gs://no-such-bucket does not exist"):
                call()

    def test_an_objects_name_may_hold_any_words(self, bucket: Bucket) -> None:
        assert bucket.find(LIAR) is None
        assert bucket.find("bucket does not exist") is None
        bucket.create(LIAR, b"1")
        assert bucket.find(LIAR) == b"1"


class TestCreate:
    def test_the_first_wins(self, bucket: Bucket) -> None:
        bucket.create("x", b"first")
        with pytest.raises(ConflictError, match="gs://sim-project-tpuctl/x exists already"):
            bucket.create("x", b"second")
        assert bucket.read("x") == b"first"

    def test_the_same_again_is_no_conflict(self, bucket: Bucket) -> None:
        """So that a write whose answer was lost, and is sent again, is not taken for another client's."""
        bucket.create("x", b"first")
        before = bucket.objects("x")
        bucket.create("x", b"first")
        assert bucket.objects("x") == before

    def test_one_that_is_removed_while_we_look_at_it_was_anothers(
        self, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bucket.create("x", b"first")
        (theirs,) = bucket.objects("x")
        download = storage.Blob.download_as_bytes

        def removed_first(blob: storage.Blob) -> bytes:
            bucket.remove(theirs)
            return download(blob)

        monkeypatch.setattr(storage.Blob, "download_as_bytes", removed_first)
        with pytest.raises(ConflictError, match="gs://sim-project-tpuctl/x exists already"):
            bucket.create("x", b"first")

    def test_a_service_that_is_busy_at_first_is_tried_again(self, bucket: Bucket, simulator) -> None:
        simulator.faults.add(grpc_fault("storage.objects.create", 14, "busy", count=1))
        bucket.create("x", b"1")
        assert bucket.read("x") == b"1"


class TestUpload:
    @pytest.mark.parametrize("size", [0, 1, UPLOAD_PART - 1, UPLOAD_PART, UPLOAD_PART + 1, 2 * UPLOAD_PART])
    def test_any_size_arrives_whole(self, bucket: Bucket, size: int) -> None:
        data = bytes(size)
        uploaded = bucket.upload("x", iter([data]), "application/octet-stream")
        assert uploaded.content == Content.of(data)
        assert bucket.objects("x") == [uploaded]

    def test_chunks_of_odd_sizes_arrive_in_order(self, bucket: Bucket) -> None:
        chunks = [b"", b"a", b"", b"bc" * 3_000_001, b"d" * UPLOAD_PART, b"e"]
        uploaded = bucket.upload("x", iter(chunks), "text/plain")
        assert bucket.read("x") == b"".join(chunks)
        assert uploaded.content == Content.of(b"".join(chunks))

    def test_memory_stays_flat_however_large_it_is(self, bucket: Bucket) -> None:
        """48 MiB from 1 MiB pieces; the simulator, in this process too, spools to disk."""
        piece = bytes(1 << 20)
        tracemalloc.start()
        try:
            bucket.upload("x", (piece for _ in range(48)), "application/octet-stream")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 4.5 * UPLOAD_PART
        assert bucket.objects("x")[0].size == 48 << 20

    def test_a_part_that_failed_is_sent_again(self, bucket: Bucket, simulator) -> None:
        data = bytes(range(256)) * (3 * UPLOAD_PART // 256)

        def chunks() -> Iterator[bytes]:
            yield data[:UPLOAD_PART]
            yield data[UPLOAD_PART : 2 * UPLOAD_PART]
            simulator.faults.add(grpc_fault("storage.objects.create", 14, "busy", count=1))
            yield data[2 * UPLOAD_PART :]

        assert bucket.upload("x", chunks(), "text/plain").content == Content.of(data)
        assert simulator.faults.all() == []

    def test_a_source_that_fails_leaves_no_object(self, bucket: Bucket) -> None:
        def chunks() -> Iterator[bytes]:
            yield bytes(UPLOAD_PART)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            bucket.upload("x", chunks(), "text/plain")
        assert bucket.objects("") == []


class TestDownload:
    def test_a_file_comes_whole(self, bucket: Bucket, tmp_path: Path) -> None:
        data = hashlib.sha256(b"").digest() * 100_000
        item = bucket.upload("x", [data], "text/plain")
        bucket.download(item, tmp_path / "x")
        assert (tmp_path / "x").read_bytes() == data
        assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["x"]

    def test_the_generation_that_was_listed_comes_or_none(self, bucket: Bucket, tmp_path: Path) -> None:
        item = bucket.upload("x", [b"old"], "text/plain")
        bucket.upload("x", [b"new"], "text/plain")
        with pytest.raises(NotFoundError):
            bucket.download(item, tmp_path / "x")
        assert not list(tmp_path.glob("x*"))

    def test_what_was_damaged_on_the_way_is_not_left_behind(
        self, bucket: Bucket, simulator, tmp_path: Path
    ) -> None:
        item = bucket.upload("x", [b"0" * 100_000], "text/plain")
        blob = next(file for file in (simulator.folder / "gcs").rglob("*") if is_data(file, b"0" * 100_000))
        blob.write_bytes(b"0" * 50_000 + b"1" + b"0" * 49_999)
        with pytest.raises(DeadlineError, match=r"gs://sim-project-tpuctl/x arrived damaged"):
            bucket.download(item, tmp_path / "x")
        assert not list(tmp_path.glob("x*"))

    def test_a_file_that_is_there_stays(self, bucket: Bucket, tmp_path: Path) -> None:
        item = bucket.upload("x", [b"new"], "text/plain")
        (tmp_path / "x").write_bytes(b"what was there before")
        with pytest.raises(FileExistsError):
            bucket.download(item, tmp_path / "x")
        assert (tmp_path / "x").read_bytes() == b"what was there before"

    def test_a_service_that_fails_leaves_nothing_behind(
        self, bucket: Bucket, simulator, tmp_path: Path
    ) -> None:
        item = bucket.upload("x", [b"data"], "text/plain")
        simulator.faults.add(grpc_fault("storage.objects.get", 7, "no"))
        with pytest.raises(TpuctlError):
            bucket.download(item, tmp_path / "x")
        assert not list(tmp_path.glob("x*"))


def is_data(path: Path, data: bytes) -> bool:
    return path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data


class TestLists:
    @pytest.fixture
    def full(self, bucket: Bucket) -> Bucket:
        for name in ("runs/b/run.json", "runs/a/run.json", "runs/a/log/000001.log", "runs/a/log/000002.log",
                     "runs/a/log/000010.log", "runs", "runs/a/deep/run.json", "ü/x"):  # fmt: skip
            bucket.create(name, name.encode())
        return bucket

    def names(self, bucket: Bucket, prefix: str, **narrow: object) -> list[str]:
        return [listed.name for listed in bucket.objects(prefix, **narrow)]  # type: ignore[arg-type]

    def test_names_come_in_order(self, full: Bucket) -> None:
        assert self.names(full, "runs/a/log/") == [f"runs/a/log/{chunk:06d}.log" for chunk in (1, 2, 10)]
        assert len(self.names(full, "")) == 8
        assert self.names(full, "nothing/") == []

    def test_a_start_leaves_out_what_comes_before_it(self, full: Bucket) -> None:
        names = self.names(full, "runs/a/log/", start="runs/a/log/000002.log")
        assert names == ["runs/a/log/000002.log", "runs/a/log/000010.log"]
        assert self.names(full, "runs/a/log/", start="runs/a/log/000011.log") == []

    def test_a_glob_takes_only_what_fits(self, full: Bucket) -> None:
        assert self.names(full, "runs/", glob="runs/*/run.json") == ["runs/a/run.json", "runs/b/run.json"]

    def test_no_more_come_than_were_asked_for(self, full: Bucket) -> None:
        assert self.names(full, "runs/", most=2) == ["runs/a/deep/run.json", "runs/a/log/000001.log"]

    def test_folders_are_what_has_something_below_it(self, full: Bucket) -> None:
        assert full.folders("runs/") == ["a", "b"]
        assert full.folders("") == ["runs", "ü"]
        assert full.folders("nothing/") == []

    def test_an_object_is_described_with_its_checksum(self, full: Bucket) -> None:
        (listed,) = full.objects("ü/")
        assert (listed.name, listed.content) == ("ü/x", Content.of("ü/x".encode()))
        assert listed.updated.endswith("Z")
        assert listed.generation > 0


class TestChanges:
    def test_an_object_is_moved_and_copied_to_a_free_name(self, bucket: Bucket) -> None:
        item = bucket.upload("a", [b"1"], "text/plain")
        bucket.copy(item, "b")
        bucket.move(item, "c")
        assert [bucket.find(name) for name in "abc"] == [None, b"1", b"1"]
        other = bucket.upload("d", [b"2"], "text/plain")
        for change in (bucket.move, bucket.copy):
            with pytest.raises(ConflictError):
                change(other, "b")
            with pytest.raises(NotFoundError):
                change(item, "e")
        assert [bucket.find(name) for name in "bde"] == [b"1", b"2", None]

    def test_another_generation_is_left_alone(self, bucket: Bucket) -> None:
        first = bucket.upload("a", [b"1"], "text/plain")
        second = bucket.upload("a", [b"2"], "text/plain")
        bucket.remove(first)
        assert bucket.find("a") == b"2"
        with pytest.raises(ConflictError):
            bucket.replace(first, b"3")
        bucket.replace(second, b"3")
        assert bucket.find("a") == b"3"
        bucket.remove(second)
        assert bucket.find("a") == b"3"
        item = bucket.stat("a")
        assert item is not None
        bucket.remove(item)
        bucket.remove(item)
        assert (bucket.find("a"), bucket.stat("a")) == (None, None)

    def test_an_object_is_added_once(self, bucket: Bucket) -> None:
        added = bucket.add("a", [b"1", b"23"], "text/x")
        assert (added.name, added.size, added.content, added.content_type) == (
            "a",
            3,
            Content.of(b"123"),
            "text/x",
        )
        assert bucket.stat("a") == added
        with pytest.raises(ConflictError):
            bucket.add("a", [b"4"], "text/x")

    def test_a_checksum_of_md5_comes_where_it_is_asked_for(self, bucket: Bucket) -> None:
        bucket.upload("a", [b"hello"], "text/plain")
        assert [bucket.objects("", more=more)[0].md5 for more in ("", MD5)] == [
            "",
            "XUFAKrxLKna5cZ2REBfFkg==",
        ]

    def test_a_range_and_a_stream_have_the_bytes_of_their_generation(self, bucket: Bucket) -> None:
        item = bucket.upload("a", [b"0123456789"], "text/plain")
        assert [bucket.read_range(item, *span) for span in ((0, 10), (0, 1), (3, 5), (9, 10))] == [
            b"0123456789", b"0", b"34", b"9",
        ]  # fmt: skip
        stream = bucket.stream(item, part=4)
        assert b"".join(iter(lambda: stream.read(3), b"")) == b"0123456789"
        bucket.upload("a", [b"other"], "text/plain")
        with pytest.raises(NotFoundError):
            bucket.read_listed(item)

    def test_grants_are_the_roles_of_members(self, bucket: Bucket) -> None:
        stored = bucket._client.bucket(bucket.name)  # as its owner sets it
        stored.iam_configuration.uniform_bucket_level_access_enabled = True
        stored.patch()
        policy = stored.get_iam_policy(requested_policy_version=3)
        policy.version = 3
        condition = {"title": "t", "expression": "true"}
        policy.bindings = [
            {"role": "roles/storage.objectViewer", "members": {"allUsers"}},
            {"role": "roles/storage.admin", "members": {"user:ada@example.org"}, "condition": condition},
        ]
        stored.set_iam_policy(policy)
        assert sorted(bucket.grants(), key=lambda grant: grant.member) == [
            Grant("roles/storage.objectViewer", "allUsers", is_conditional=False),
            Grant("roles/storage.admin", "user:ada@example.org", is_conditional=True),
        ]

    def test_a_dry_run_sends_nothing_and_notes_each_change(self, bucket: Bucket) -> None:
        dry = bucket.dry_run()
        dry.create("a b", b"{}")
        item = bucket.upload("x", [b"1"], "text/plain")
        dry.remove(item)
        assert dry.name == bucket.name
        assert [request.method for request in dry.requests] == ["POST", "DELETE"]
        assert "name=a%20b" in dry.requests[0].url or dry.requests[0].body
        assert "ifGenerationMatch=0" in dry.requests[0].url
        assert dry.requests[1].url.partition("?")[0].endswith(f"/b/{bucket.name}/o/x")
        assert [bucket.find(name) for name in ("a b", "x")] == [None, b"1"]
        assert dry.objects("") == []

    def test_the_bucket_tells_the_time(self, bucket: Bucket) -> None:
        before = bucket.upload("a", [b"1"], "text/plain").updated
        assert clock.iso(bucket.now()) >= before


def test_a_proxy_of_the_users_is_not_asked_for_loopback(simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    cloud: Cloud = connect(load({}))
    cloud.bucket.create("x", b"1")
    assert cloud.bucket.read("x") == b"1"
    assert cloud.provider.list_nodes().nodes == ()
    cloud.close()


@pytest.mark.daily
@pytest.mark.parametrize(
    ("resource", "location"),
    [
        ({"location": "EUROPE-WEST4"}, BucketLocation("b-1", "europe-west4")),
        ({"location": "us"}, BucketLocation("b-1", "us")),
        ({"location": "NAM4"}, BucketLocation("b-1", "nam4")),
        (
            {"location": "US", "customPlacementConfig": {"dataLocations": ["US-EAST1", "US-WEST1"]}},
            BucketLocation("b-1", "us", ("us-east1", "us-west1")),
        ),
    ],
)
def test_the_location_is_as_the_service_names_it(
    simulator: RunningSimulator, resource: dict[str, object], location: BucketLocation
) -> None:
    url = f"{simulator.simulator.endpoints['storage']}/storage/v1/b"
    created = requests.post(url, params={"project": "p"}, json={"name": "b-1", **resource}, timeout=60)
    assert created.status_code == 200, created.text
    cloud = connect(load({"bucket": "b-1"}))
    assert cloud.bucket.location() == location
    assert cloud.bucket.location() == location
    cloud.close()
    assert len(simulator.events.find(kind="request", what="buckets.get", resource="b-1*")) == 1
