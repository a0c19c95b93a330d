"""The worker's own Cloud Storage client: transient failures are retried, others get an error of their own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest

from tests.cloud.faulty_wire import FaultyWire
from tests.host.worker.host import BUCKET
from tpuctl.cloud.storage import Bucket
from tpuctl.host import gcs, timing


@pytest.mark.parametrize(
    "name", ["a", "runs/r1/log/000001.log", "a b/ä?#%&+=/x", "'\"", "-", "x/../y"], ids=range(6)
)
def test_objects_of_any_name_are_written_and_read(
    worker_bucket: gcs.Bucket, bucket: Bucket, name: str
) -> None:
    generation = worker_bucket.put(name, b"\x00\xffdata")
    assert worker_bucket.get(name) == b"\x00\xffdata" == bucket.read(name)
    assert worker_bucket.stat(name)[0] == generation == bucket.objects(name)[0].generation


@pytest.mark.parametrize("fault", [408, 429, 500, 502, 503, 504, "cut"])
def test_a_transient_failure_is_retried(worker_bucket: gcs.Bucket, wire: FaultyWire, bucket, fault) -> None:
    wire.plan = [fault, fault]
    worker_bucket.put("x", b"data")
    assert len(wire.requests) == 3
    wire.plan = [fault]
    assert worker_bucket.get("x") == b"data"
    assert bucket.read("x") == b"data"


@pytest.mark.parametrize("fault", ["short", "lose"])
def test_a_response_that_is_cut_is_requested_again(
    worker_bucket: gcs.Bucket, wire: FaultyWire, fault: str
) -> None:
    worker_bucket.put("x", b"data" * 1000)
    wire.plan = [fault, fault]
    assert worker_bucket.get("x") == b"data" * 1000


def test_after_the_last_try_the_error_gives_the_reason(worker_bucket: gcs.Bucket, wire: FaultyWire) -> None:
    wire.plan = [503] * 50
    with pytest.raises(gcs.GcsError, match="503 the wire says no"):
        worker_bucket.get("x")
    assert len(wire.requests) == len(timing.REQUEST_PAUSES)


def test_a_service_that_never_answers_is_named(worker_bucket: gcs.Bucket, wire: FaultyWire) -> None:
    wire.plan = ["cut"] * 50
    with pytest.raises(gcs.GcsError, match=r"GET http://.*/x: \S"):
        worker_bucket.get("x")


@pytest.mark.parametrize("status", [400, 401, 403, 409])
def test_a_refusal_is_not_retried(worker_bucket: gcs.Bucket, wire: FaultyWire, status: int) -> None:
    wire.plan = [status]
    with pytest.raises(gcs.GcsError, match=f"{status} the wire says no"):
        worker_bucket.get("x")
    assert len(wire.requests) == 1


def test_a_missing_object_has_an_error_of_its_own(worker_bucket: gcs.Bucket) -> None:
    assert worker_bucket.stat("nothing") == (0, 0)
    with pytest.raises(FileNotFoundError):
        worker_bucket.get("nothing")


def test_a_failed_precondition_has_an_error_of_its_own(worker_bucket: gcs.Bucket, bucket: Bucket) -> None:
    first = worker_bucket.put("x", b"1", if_generation=0)
    second = worker_bucket.put("x", b"2", if_generation=first)
    for wrong in (0, first):
        with pytest.raises(gcs.PreconditionError):
            worker_bucket.put("x", b"3", if_generation=wrong)
    assert worker_bucket.stat("x")[0] == second
    assert bucket.read("x") == b"2"


def test_times_of_the_service_are_read() -> None:
    for seconds in (0, 951_782_399, 951_782_400, 951_868_799, 951_868_800, 1_709_164_800, 4_102_444_799):
        moment = time.gmtime(seconds)
        assert gcs._moment(time.strftime("%Y-%m-%dT%H:%M:%S.123Z", moment)) == seconds


@pytest.mark.parametrize("place", ["127.0.0.1", "127.0.0.1.example.com", "198.51.100.7"])
def test_an_emulator_is_used_if_it_is_on_this_host(
    worker_bucket: gcs.Bucket, wire: FaultyWire, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """No other host gets our token by a variable."""
    monkeypatch.setattr(gcs, "HOST", "http://127.0.0.1:9")
    port = wire.address.rpartition(":")[2]
    monkeypatch.setenv(gcs.EMULATOR, f"http://{place}:{port}")
    with closing(gcs.Bucket(BUCKET)) as bucket:
        if place == "127.0.0.1":
            assert bucket.stat("nothing") == (0, 0)
        else:
            with pytest.raises(gcs.UnreachableError, match="refused"):
                bucket.stat("nothing")


class TestToken:
    def test_a_token_serves_many_requests(self, worker_bucket: gcs.Bucket, wire: FaultyWire) -> None:
        worker_bucket.put("x", b"")
        worker_bucket.get("x")
        assert wire.tokens == 1
        assert all(request.endswith(" Bearer token-1") for request in wire.requests)

    def test_a_token_that_expires_soon_is_renewed(self, worker_bucket: gcs.Bucket, wire: FaultyWire) -> None:
        wire.expires_in = 60
        worker_bucket.put("x", b"")
        worker_bucket.get("x")
        assert [request.rpartition(" ")[2] for request in wire.requests] == ["token-1", "token-2"]

    def test_a_host_without_a_service_account_is_not_a_missing_object(
        self, worker_bucket: gcs.Bucket, wire: FaultyWire
    ) -> None:
        wire.token_plan = [404]
        with pytest.raises(gcs.GcsError, match=r"metadata server gives no access token.*404"):
            worker_bucket.stat("x")
        assert wire.requests == []

    def test_a_busy_metadata_server_is_asked_again(self, worker_bucket: gcs.Bucket, wire: FaultyWire) -> None:
        wire.token_plan = [503, 429]
        assert worker_bucket.stat("x") == (0, 0)


class TestCreate:
    """Hosts may create objects, and by terraform/ only some of them may be overwritten."""

    def test_one_of_these_bytes_counts_as_created(self, worker_bucket: gcs.Bucket, bucket: Bucket) -> None:
        assert worker_bucket.create("x", b"data", "text/plain")
        assert worker_bucket.create("x", b"data", "text/plain")
        assert bucket.objects("x")[0].content_type == "text/plain"
        assert not worker_bucket.create("x", b"atad", "text/plain"), "as long, and another"
        assert not worker_bucket.create("x", b"data and more", "text/plain")
        assert bucket.read("x") == b"data"

    def test_a_refusal_to_overwrite_is_none_to_create(
        self, worker_bucket: gcs.Bucket, wire: FaultyWire
    ) -> None:
        wire.plan = [403]
        with pytest.raises(gcs.RefusedError, match=r"POST http://.*/o: 403 the wire says no"):
            worker_bucket.create("x", b"data", "text/plain")
        worker_bucket.put("x", b"data")
        wire.plan = [403]
        assert worker_bucket.create("x", b"data", "text/plain")
        wire.plan = [403]
        assert not worker_bucket.create("x", b"other", "text/plain")

    def test_an_empty_object_is_one(self, worker_bucket: gcs.Bucket, wire: FaultyWire) -> None:
        worker_bucket.put("x", b"")
        wire.plan = [403]
        assert not worker_bucket.create("x", b"other", "text/plain")
        assert worker_bucket.create("x", b"", "text/plain")


class TestMissingBucket:
    """A bucket that was deleted takes nothing any more; an object that is missing says nothing of it."""

    @pytest.fixture
    def missing(self, wire: FaultyWire) -> Iterator[gcs.Bucket]:
        with closing(gcs.Bucket("no-such-bucket")) as bucket:
            yield bucket

    @pytest.mark.parametrize(
        "write",
        [
            lambda bucket: bucket.put("x", b"data"),
            lambda bucket: bucket.put("x", b"data", 5),
            lambda bucket: bucket.create("x", b"data", "text/plain"),
            lambda bucket: list(bucket.list("x")),
        ],
        ids=["put", "replace", "create", "list"],
    )
    def test_it_refuses_as_the_service_says(
        self, missing: gcs.Bucket, wire: FaultyWire, write: Callable[[gcs.Bucket], object]
    ) -> None:
        with pytest.raises(gcs.RefusedError) as refused:
            write(missing)
        assert (refused.value.status, refused.value.answer) == (
            404,
            "404 The specified bucket does not exist.",
        )
        assert len(wire.requests) <= 3, "none is tried again"

    def test_an_object_of_it_is_just_missing(self, missing: gcs.Bucket) -> None:
        assert missing.stat("x") == (0, 0)
        assert missing.read("x", 4) == (0, b"")

    def test_any_other_404_of_a_write_is_none_of_the_bucket(
        self, worker_bucket: gcs.Bucket, wire: FaultyWire
    ) -> None:
        wire.plan = [404]
        with pytest.raises(FileNotFoundError):
            worker_bucket.put("x", b"data")
        wire.plan = [404]
        with pytest.raises(FileNotFoundError):
            worker_bucket.create("x", b"data", "text/plain")


class TestParts:
    def test_the_first_bytes_are_read_by_one_request(
        self, worker_bucket: gcs.Bucket, wire: FaultyWire
    ) -> None:
        generation = worker_bucket.put("x", b"0123456789")
        wire.requests.clear()
        assert worker_bucket.read("x", 4) == (generation, b"0123")
        assert worker_bucket.read("x", 10) == worker_bucket.read("x", 99) == (generation, b"0123456789")
        assert worker_bucket.read("nothing", 4) == (0, b"")
        assert len(wire.requests) == 4

    def test_an_object_without_bytes_is_one(self, worker_bucket: gcs.Bucket) -> None:
        generation = worker_bucket.put("x", b"")
        assert worker_bucket.read("x", 4) == (generation, b"")
        assert worker_bucket.stat("x") == (generation, 0)

    def test_a_part_is_of_one_generation(self, worker_bucket: gcs.Bucket) -> None:
        generation = worker_bucket.put("x", b"0123456789")
        assert worker_bucket.part("x", generation, 2, 5) == b"234"
        assert worker_bucket.get("x", generation) == b"0123456789"
        worker_bucket.put("x", b"other")
        for read in (
            lambda: worker_bucket.get("x", generation),
            lambda: worker_bucket.part("x", generation, 0, 2),
        ):
            with pytest.raises(FileNotFoundError):
                read()


class TestList:
    def test_objects_are_listed_in_order_with_size_and_generation(self, worker_bucket: gcs.Bucket) -> None:
        generations = {name: worker_bucket.put(name, name.encode()) for name in ("a/2", "a/10", "b", "a/1/x")}
        items = list(worker_bucket.list("a/"))
        assert [item.name for item in items] == ["a/1/x", "a/10", "a/2"]
        assert [item.size for item in items] == [5, 4, 3]
        assert [item.generation for item in items] == [generations[item.name] for item in items]
        assert all(0 <= item.age < 3600 for item in items)
        assert [item.name for item in worker_bucket.list("a/", glob="a/*")] == ["a/10", "a/2"]

    def test_pages_are_followed_as_far_as_somebody_wants_to_know(
        self, worker_bucket: gcs.Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A page of Cloud Storage has 1,000 objects."""
        targets: list[str] = []

        def call(method: str, target: str, *_: object) -> bytes:
            targets.append(target)
            start = 2 * len(targets)
            names = [f"{number}" for number in range(start, start + 2)]
            item = {"generation": "7", "updated": "2026-01-31T23:59:59.123Z", "size": "3"}
            items = ", ".join(json.dumps({"name": name, **item}) for name in names)
            token = f', "nextPageToken": "page {len(targets) + 1}"' if len(targets) < 3 else ""
            return f'{{"items": [{items}]{token}}}'.encode()

        monkeypatch.setattr(worker_bucket, "_call", call)
        monkeypatch.setattr(worker_bucket, "now", lambda: 1_769_904_009.0)
        items = list(worker_bucket.list("a b"))
        assert [item.name for item in items] == ["2", "3", "4", "5", "6", "7"]
        assert items[0] == gcs.Item("2", 7, 10.0, 3, "2026-01-31T23:59:59Z")
        assert [target.partition("pageToken=")[2] for target in targets] == ["", "page+2", "page+3"]
        assert all(
            target.startswith(f"/storage/v1/b/{BUCKET}/o?prefix=a+b&fields=items") for target in targets
        )
        for most, pages in ((2, 1), (3, 2)):
            targets.clear()
            list(worker_bucket.list("a b", most=most))
            assert len(targets) == pages

    def test_a_folder_without_objects_is_empty(self, worker_bucket: gcs.Bucket) -> None:
        assert list(worker_bucket.list("nothing/")) == []


def test_the_time_is_that_of_the_service(worker_bucket: gcs.Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    worker_bucket.stat("x")
    monkeypatch.setattr(gcs, "time", SimpleNamespace(time=lambda: 1000.0))
    ahead = worker_bucket._ahead
    worker_bucket._note_time("Sat, 31 Jan 2026 23:59:59 GMT")
    assert worker_bucket.now() == 1_769_903_999.0
    worker_bucket._note_time("some day")
    assert worker_bucket.now() == 1_769_903_999.0, "an answer without a time changes nothing"
    assert abs(ahead) < 3600


class TestTokenTime:
    @pytest.mark.parametrize(("age", "requests"), [(3479, 1), (3481, 2)])
    def test_a_token_is_renewed_two_minutes_before_it_expires(
        self, wire: FaultyWire, monkeypatch: pytest.MonkeyPatch, age: float, requests: int
    ) -> None:
        now = [1000.0]
        monkeypatch.setattr(gcs, "time", SimpleNamespace(time=lambda: now[0]))
        token = gcs.Token()
        assert token.header() == "Bearer token-1"
        now[0] += age
        assert token.header() == f"Bearer token-{requests}"

    @pytest.mark.parametrize(("status", "error"), [(503, OSError), (429, OSError), (403, gcs.GcsError)])
    def test_a_metadata_server_that_is_busy_is_no_refusal(
        self, wire: FaultyWire, status: int, error: type[Exception]
    ) -> None:
        wire.token_plan = [status]
        with pytest.raises(error, match=f"the metadata server gives no access token: {status}"):
            gcs.Token().header()
