"""The worker's own Cloud Storage client: transient failures are retried, others get an error of their own."""

from __future__ import annotations

import pytest

from tests.worker.faulty_wire import FaultyWire
from tpuctl.cloud.storage import Bucket
from tpuctl.worker import gcs, timing


@pytest.mark.parametrize(
    "name", ["a", "runs/r1/log/000001.log", "a b/ä?#%&+=/x", "'\"", "-", "x/../y"], ids=range(6)
)
def test_objects_go_there_and_back_whatever_their_names(own: gcs.Bucket, bucket: Bucket, name: str) -> None:
    generation = own.put(name, b"\x00\xffdata")
    assert own.get(name) == b"\x00\xffdata" == bucket.read(name)
    assert own.generation(name) == generation == bucket.objects(name)[0].generation


@pytest.mark.parametrize("fault", [408, 429, 500, 502, 503, 504, "cut"])
def test_a_transient_failure_is_retried(own: gcs.Bucket, wire: FaultyWire, bucket, fault) -> None:
    wire.plan = [fault, fault]
    own.put("x", b"data")
    assert len(wire.requests) == 3
    wire.plan = [fault]
    assert own.get("x") == b"data"
    assert bucket.read("x") == b"data"


@pytest.mark.parametrize("fault", ["short", "lose"])
def test_a_response_that_is_cut_is_requested_again(own: gcs.Bucket, wire: FaultyWire, fault: str) -> None:
    own.put("x", b"data" * 1000)
    wire.plan = [fault, fault]
    assert own.get("x") == b"data" * 1000


def test_it_gives_up_after_all_tries_and_says_why(own: gcs.Bucket, wire: FaultyWire) -> None:
    wire.plan = [503] * 50
    with pytest.raises(gcs.GcsError, match="503 the wire says no"):
        own.get("x")
    assert len(wire.requests) == len(timing.REQUEST_PAUSES)


def test_a_service_that_never_answers_is_named(own: gcs.Bucket, wire: FaultyWire) -> None:
    wire.plan = ["cut"] * 50
    with pytest.raises(gcs.GcsError, match=r"GET http://.*/x: \S"):
        own.get("x")


@pytest.mark.parametrize("status", [400, 401, 403, 409])
def test_a_refusal_is_not_retried(own: gcs.Bucket, wire: FaultyWire, status: int) -> None:
    wire.plan = [status]
    with pytest.raises(gcs.GcsError, match=f"{status} the wire says no"):
        own.get("x")
    assert len(wire.requests) == 1


def test_a_missing_object_has_an_error_of_its_own(own: gcs.Bucket) -> None:
    assert own.generation("nothing") == 0
    with pytest.raises(FileNotFoundError):
        own.get("nothing")


def test_a_missing_bucket_is_not_retried(wire: FaultyWire) -> None:
    with pytest.raises(FileNotFoundError):
        gcs.Bucket("no-such-bucket").put("x", b"")
    assert len(wire.requests) == 1


def test_a_precondition_that_does_not_hold_is_an_error_of_its_own(own: gcs.Bucket, bucket: Bucket) -> None:
    first = own.put("x", b"1", if_generation=0)
    second = own.put("x", b"2", if_generation=first)
    for wrong in (0, first):
        with pytest.raises(gcs.PreconditionError):
            own.put("x", b"3", if_generation=wrong)
    assert own.generation("x") == second
    assert bucket.read("x") == b"2"


class TestToken:
    def test_one_serves_many_calls(self, own: gcs.Bucket, wire: FaultyWire) -> None:
        own.put("x", b"")
        own.get("x")
        assert wire.tokens == 1
        assert all(request.endswith(" Bearer token-1") for request in wire.requests)

    def test_one_that_ends_soon_is_renewed(self, own: gcs.Bucket, wire: FaultyWire) -> None:
        wire.expires_in = 60
        own.put("x", b"")
        own.get("x")
        assert [request.rpartition(" ")[2] for request in wire.requests] == ["token-1", "token-2"]

    def test_a_host_without_a_service_account_is_not_a_missing_object(
        self, own: gcs.Bucket, wire: FaultyWire
    ) -> None:
        wire.token_plan = [404]
        with pytest.raises(gcs.GcsError, match=r"metadata server gives no access token.*404"):
            own.generation("x")
        assert wire.requests == []

    def test_a_busy_metadata_server_is_asked_again(self, own: gcs.Bucket, wire: FaultyWire) -> None:
        wire.token_plan = [503, 429]
        assert own.generation("x") == 0
