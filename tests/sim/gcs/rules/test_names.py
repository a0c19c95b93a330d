"""The names of buckets and objects: hostile ones stay in the store, invalid ones are refused."""

from __future__ import annotations

import pytest
import requests
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, RunningGcs, blob_files
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import check_bucket_name, check_object_name, decode_segment


@pytest.mark.parametrize(
    "name",
    [
        "../../escape",
        "/etc/passwd",
        "a/../../../b",
        "....//",
        "~",
        "con",
        "a\\..\\b",
        "%2e%2e",
        "\x00",
        "é" * 512,
    ],
)
def test_no_name_leaves_the_stores_folder(gcs: RunningGcs, bucket: storage.Bucket, name: str) -> None:
    before = {path.relative_to(gcs.root.parent).parts[0] for path in gcs.root.parent.rglob("*")}
    bucket.blob(name).upload_from_string(name)
    assert bucket.blob(name).download_as_bytes() == name.encode()
    assert [blob.name for blob in bucket.list_blobs()] == [name]
    assert {path.relative_to(gcs.root.parent).parts[0] for path in gcs.root.parent.rglob("*")} == before
    assert len(blob_files(gcs.root)) == 1


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "a\rb", "é" * 513, ".well-known/acme-challenge/x"])
def test_invalid_names_are_refused(gcs: RunningGcs, http: requests.Session, name: str) -> None:
    answer = http.post(f"{gcs.url}/upload/storage/v1/b/{BUCKET}/o", params={"name": name}, data=b"x")
    assert answer.status_code == 400
    assert answer.json()["error"]["errors"][0]["reason"] in ("invalid", "required")


LONG = ".".join(["a" * 63] * 3)


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("a.b", True), ("abc", True), ("a-b_c.1", True), ("0ab", True), ("ab", False), ("a", False),
        ("", False), ("-ab", False), ("ab-", False), ("_ab", False), ("ab.", False), (".ab", False),
        ("Abc", False), ("a b", False), ("abc\n", False), ("a..b", False), ("a" * 63, True),
        ("a" * 64, False), (LONG, True), (f"{LONG}.{'b' * 30}", True), (f"{LONG}.{'b' * 31}", False),
        ("a." + "b" * 63, True), ("a." + "b" * 64, False),
        ("192.168.5.4", False), ("192.168.5", True), ("192.168.5.4a", True), ("goog-a", False),
        ("my-goog", True), ("my-google-bucket", False), (7, False), (None, False),
    ],
)  # fmt: skip
def test_names_of_buckets(name: object, valid: bool) -> None:
    """https://cloud.google.com/storage/docs/buckets#naming"""
    if valid:
        assert check_bucket_name(name) == name
        return
    with pytest.raises(GcsError) as raised:
        check_bucket_name(name)
    assert (raised.value.status, raised.value.xml_code) == (400, "InvalidBucketName")


@pytest.mark.parametrize(
    "name", ["a" * 1024, "é" * 512, "...", "a/./b", ".well-known", "a/.well-known/acme-challenge/", " "]
)
def test_valid_names_are_returned(name: str) -> None:
    assert check_object_name(name) == name


@pytest.mark.parametrize(
    ("name", "reason", "message"),
    [
        ("a" * 1025, "invalid", "The maximum object length is 1024 characters, but got a name with 1025."),
        ("\ud800", "invalid", "Object names must be valid UTF-8."),
        (None, "required", "Required parameter: name"),
        (5, "required", "Required parameter: name"),
        ("..", "invalid", "Disallowed object name: '..'"),
    ],
)
def test_an_invalid_name_is_explained(name: object, reason: str, message: str) -> None:
    with pytest.raises(GcsError) as raised:
        check_object_name(name)
    assert (raised.value.status, raised.value.reason, raised.value.message) == (400, reason, message)


def test_segments_of_paths_are_utf_8() -> None:
    assert decode_segment("a%2Fb%20%C3%A9") == "a/b é"
    with pytest.raises(GcsError, match="not valid UTF-8"):
        decode_segment("%ff")
