"""Each fault of Cloud Storage as Google's own client meets it, and its end."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable

import grpc
import pytest
import requests
from google.api_core import exceptions
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption
from google.cloud.storage.retry import DEFAULT_RETRY

from tests.running_simulator import RunningSimulator

BIG = bytes(range(256)) * 4096
"""A mebibyte that differs everywhere."""
QUICK = DEFAULT_RETRY.with_delay(initial=0.01, maximum=0.05)


def put(bucket: storage.Bucket, name: str = "a", data: bytes = BIG, retry: object = None) -> None:
    bucket.blob(name).upload_from_string(data, retry=retry)


def get(bucket: storage.Bucket, name: str = "a", retry: object = None) -> bytes:
    return bytes(bucket.blob(name).download_as_bytes(retry=retry))


def hits(simulator: RunningSimulator, kind: str) -> int:
    return len(simulator.events.find(kind="fault", what=kind))


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("408", exceptions.GoogleAPICallError),
        ("429", exceptions.TooManyRequests),
        ("503", exceptions.ServiceUnavailable),
    ],
)
def test_an_upload_is_answered_with_an_error_and_tried_again(
    bucket: storage.Bucket, simulator: RunningSimulator, status: str, error: type[Exception]
) -> None:
    simulator.faults.add("gcs-error", status=status, method="storage.objects.create", object="a*", count=3)
    with pytest.raises(error) as raised:
        put(bucket)
    assert raised.value.code == int(status)
    put(bucket, "b")
    put(bucket, retry=QUICK)
    assert get(bucket) == BIG
    assert hits(simulator, "gcs-error") == 3
    assert not simulator.faults.all()


def test_an_error_is_for_its_bucket_its_objects_and_its_method(
    bucket: storage.Bucket, simulator: RunningSimulator
) -> None:
    put(bucket, "runs/r1/log", b"1")
    simulator.faults.add("gcs-error", bucket="other-*")
    fault = simulator.faults.add("gcs-error", method="storage.objects.get", object="runs/*/log")
    put(bucket, "runs/r2/log", b"2")
    with pytest.raises(exceptions.ServiceUnavailable):
        get(bucket, "runs/r1/log")
    assert [blob.name for blob in bucket.list_blobs()] == ["runs/r1/log", "runs/r2/log"]
    simulator.faults.remove(fault.id)
    assert get(bucket, "runs/r1/log") == b"1"


def test_an_answer_is_lost_although_the_object_is_there(
    bucket: storage.Bucket, simulator: RunningSimulator
) -> None:
    simulator.faults.add("gcs-error", method="storage.objects.create", when="after", count=1)
    blob = bucket.blob("a")
    with pytest.raises(exceptions.ServiceUnavailable):
        blob.upload_from_string(b"1", if_generation_match=0, retry=None)
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string(b"1", if_generation_match=0, retry=None)
    assert get(bucket) == b"1"


STATUS_OF_CODE = {"FAILED_PRECONDITION": 412, "OUT_OF_RANGE": 416, "UNKNOWN": 500, "DATA_LOSS": 500}
"""Where Cloud Storage differs from other services, and codes that their client has no class for."""


@pytest.mark.parametrize("code", [code.name for code in grpc.StatusCode if code.value[0]])
def test_each_of_grpcs_codes_has_the_http_status_of_googles_clients(
    bucket: storage.Bucket, simulator: RunningSimulator, code: str
) -> None:
    simulator.faults.add("error", code=code, method="storage.objects.get")
    url = f"{bucket.client._connection.API_BASE_URL}/storage/v1/b/{bucket.name}/o/a"
    expected = STATUS_OF_CODE.get(code) or exceptions.from_grpc_status(grpc.StatusCode[code], "").code
    assert requests.get(url, timeout=60).status_code == expected
    assert [event.service for event in simulator.events.find(kind="fault")] == ["storage"]


def test_grpcs_codes_and_missing_permissions_have_their_http_form(
    bucket: storage.Bucket, simulator: RunningSimulator
) -> None:
    simulator.faults.add("unavailable", method="storage.objects.list", count=1)
    simulator.faults.add("permission", method="storage.buckets.get", count=1)
    simulator.faults.add("api-off", api="storage", project="*", skip=2, count=1)
    with pytest.raises(exceptions.ServiceUnavailable):
        list(bucket.client.list_blobs(bucket, retry=None))
    with pytest.raises(exceptions.Forbidden, match=r"Permission 'storage\.buckets\.get' denied"):
        bucket.reload(retry=None)
    assert not list(bucket.list_blobs())
    bucket.reload()
    with pytest.raises(exceptions.Forbidden, match="has not been used in this project"):
        bucket.reload(retry=None)
    bucket.reload()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_is_reset(bucket: storage.Bucket, simulator: RunningSimulator, when: str) -> None:
    simulator.faults.add("gcs-reset", method="storage.objects.create", when=when, count=1)
    with pytest.raises((requests.ConnectionError, ConnectionError), match=r"reset|aborted"):
        put(bucket, data=b"1")
    assert bucket.blob("a").exists() == (when == "after")
    put(bucket, data=b"2")
    assert get(bucket) == b"2"


def test_a_download_is_cut_and_goes_on(bucket: storage.Bucket, simulator: RunningSimulator) -> None:
    put(bucket)
    simulator.faults.add("gcs-cut", method="storage.objects.get", bytes="300kB", count=2)
    with pytest.raises((requests.exceptions.ChunkedEncodingError, requests.ConnectionError)) as raised:
        get(bucket)
    assert "300000 bytes read" in str(raised.value)
    assert get(bucket, retry=QUICK) == BIG
    assert hits(simulator, "gcs-cut") == 2


def test_a_resumable_upload_is_cut_and_goes_on(bucket: storage.Bucket, simulator: RunningSimulator) -> None:
    """What had come through is kept: the client asks how far it came, and sends the rest."""
    simulator.faults.add("gcs-cut", method="storage.objects.create", bytes=300_000, skip=1, count=1)
    blob = bucket.blob("a", chunk_size=1 << 20)
    blob.upload_from_file(io.BytesIO(BIG + BIG), retry=QUICK)
    assert get(bucket) == BIG + BIG
    assert hits(simulator, "gcs-cut") == 1


def test_an_upload_in_one_piece_that_is_cut_leaves_nothing(
    bucket: storage.Bucket, simulator: RunningSimulator
) -> None:
    simulator.faults.add("gcs-cut", method="storage.objects.create", bytes=1000, count=1)
    with pytest.raises((requests.ConnectionError, ConnectionError)):
        put(bucket)
    assert not bucket.blob("a").exists()


def test_a_changed_byte_is_found_by_the_checksum(bucket: storage.Bucket, simulator: RunningSimulator) -> None:
    put(bucket)
    simulator.faults.add("gcs-corrupt", method="storage.objects.get", at=5, count=1)
    with pytest.raises(DataCorruption):
        get(bucket)
    assert get(bucket) == BIG
    simulator.faults.add("gcs-corrupt", method="storage.objects.get", at=5, count=1)
    changed = bucket.blob("a").download_as_bytes(checksum=None, retry=None)
    assert (changed[5], changed[:5], changed[6:]) == (BIG[5] ^ 0xFF, BIG[:5], BIG[6:])


def test_a_byte_that_changes_on_the_way_up_is_refused(
    bucket: storage.Bucket, simulator: RunningSimulator
) -> None:
    simulator.faults.add("gcs-corrupt", method="storage.objects.create", count=1)
    with pytest.raises(exceptions.BadRequest):
        bucket.blob("a").upload_from_string(BIG, checksum="md5", retry=None)
    assert not bucket.blob("a").exists()
    bucket.blob("a").upload_from_string(BIG, checksum="md5", retry=None)


@pytest.mark.parametrize("at", [0, 100_000])
def test_a_stall_outlasts_a_clients_patience_and_ends(
    bucket: storage.Bucket, simulator: RunningSimulator, at: int
) -> None:
    put(bucket)
    fault = simulator.faults.add("gcs-stall", method="storage.objects.get", at=at)
    with pytest.raises(requests.RequestException, match="timed out"):
        bucket.blob("a").download_as_bytes(timeout=0.3, retry=None)
    removing = threading.Timer(0.3, lambda: simulator.faults.remove(fault.id))
    removing.start()
    assert get(bucket) == BIG
    removing.join()
    simulator.faults.add("gcs-stall", seconds="200ms", method="storage.objects.get", count=1)
    began = time.monotonic()
    assert get(bucket) == BIG
    assert time.monotonic() - began >= 0.2


def test_a_slow_link_has_latency_and_bandwidth_both_ways(
    bucket: storage.Bucket, simulator: RunningSimulator
) -> None:
    fault = simulator.faults.add("gcs-slow", latency="100ms", bandwidth="2MiB")
    slow = min(duration(lambda: put(bucket, data=BIG)), duration(lambda: get(bucket)))
    assert slow >= 0.6
    simulator.faults.remove(fault.id)
    assert get(bucket) == BIG
    assert min(duration(lambda: get(bucket)) for _ in range(10)) < slow, "the quickest: others may be at work"


def duration(transfer: Callable[[], object]) -> float:
    """Return how many seconds a transfer takes."""
    began = time.monotonic()
    transfer()
    return time.monotonic() - began


def test_downloads_through_the_proxy_meet_faults_too(
    bucket: storage.Bucket, simulator: RunningSimulator
) -> None:
    put(bucket)
    endpoints = simulator.simulator.endpoints
    simulator.faults.add("gcs-corrupt", method="storage.objects.get", at=0, count=1)
    answer = requests.get(
        "https://storage.googleapis.com/sim-project-tpuctl/a",
        proxies={"https": endpoints["proxy"]},
        verify=endpoints["ca_file"],
        timeout=60,
    )
    assert answer.content[0] == BIG[0] ^ 0xFF
