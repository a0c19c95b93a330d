"""The worker's own Cloud Storage client: transient failures are retried, others get an error of their own."""

from __future__ import annotations

import email.utils
import time
from contextlib import closing

import pytest

from tests.worker.faulty_wire import FaultyWire
from tests.worker.host import BUCKET
from tpuctl.cloud.storage import Bucket
from tpuctl.worker import gcs, timing


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


def test_a_missing_bucket_is_not_retried(wire: FaultyWire) -> None:
    with closing(gcs.Bucket("no-such-bucket")) as missing, pytest.raises(FileNotFoundError):
        missing.put("x", b"")
    assert len(wire.requests) == 1


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
        assert gcs._answered(email.utils.formatdate(seconds, usegmt=True)) == seconds
    for text in ("", "yesterday", "Sat, 31 Foo 2026 23:59:59 GMT", "Sat, 31 Jan 2026 23.59 GMT"):
        with pytest.raises(ValueError, match=r"unpack|not in|literal"):
            gcs._answered(text)


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
