"""Batches: each call in one request has its own status."""

from __future__ import annotations

import json
from email import message_from_bytes
from email.message import Message

import pytest
import requests
from google.api_core import exceptions
from google.cloud import storage

from tests.sim.gcs.running_server import RunningGcs


def test_a_failed_call_in_a_batch_does_not_stop_the_others(
    client: storage.Client, bucket: storage.Bucket
) -> None:
    for number in range(5):
        bucket.blob(f"a{number}").upload_from_string(b"x")
    with client.batch():
        for number in range(3):
            blob = bucket.blob(f"a{number}")
            blob.metadata = {"größe": "\U0001f600"}
            blob.patch()
    assert bucket.get_blob("a1").metadata == {"größe": "\U0001f600"}
    batch = client.batch()
    client._push_batch(batch)
    for name in ("a0", "nothing", "a1"):
        bucket.delete_blob(name)
    client._pop_batch()
    with pytest.raises(exceptions.NotFound):
        batch.finish()
    assert [blob.name for blob in bucket.list_blobs()] == ["a2", "a3", "a4"]


@pytest.mark.parametrize(
    ("call", "status"),
    [
        ("GET /storage/v1/b/acme-data HTTP/1.1", 200),
        ("GET http://other.example/storage/v1/b/acme-data HTTP/1.1", 200),
        ("GET /storage/v1/b/no-such-bucket HTTP/1.1", 404),
        ("DELETE /storage/v1/b HTTP/1.1", 405),
        ("GET /storage/v1/b/acme-data/o/a?alt=media HTTP/1.1", 400),
        ("POST /upload/storage/v1/b/acme-data/o?name=a HTTP/1.1", 400),
        ("nonsense", 400),
        ("", 400),
        ("GET http://[ HTTP/1.1", 400),
        ("GET /storage/v1/b/%ff HTTP/1.1", 400),
        ("GET /storage/v1/b/acme-data?ifMetagenerationMatch=9 HTTP/1.1", 412),
    ],
)
def test_each_call_in_a_batch_has_its_own_status(
    gcs: RunningGcs, http: requests.Session, call: str, status: int
) -> None:
    body = f"--b\r\nContent-Type: application/http\r\nContent-ID: <x+1>\r\n\r\n{call}\r\n\r\n\r\n--b--"
    headers = {"Content-Type": "multipart/mixed; boundary=b"}
    answer = http.post(f"{gcs.url}/batch/storage/v1", data=body.encode(), headers=headers)
    assert answer.status_code == 200
    assert f"HTTP/1.1 {status} " in answer.text
    assert "Content-ID: <response-x+1>" in answer.text


def responses(gcs: RunningGcs, http: requests.Session, *calls: str) -> list[Message]:
    """Send calls in one batch and return the HTTP responses in its answer, as the clients parse them."""
    parts = [f"--b\r\nContent-Type: application/http\r\n\r\n{call} HTTP/1.1\r\n\r\n" for call in calls]
    headers = {"Content-Type": "multipart/mixed; boundary=b"}
    answer = http.post(f"{gcs.url}/batch/storage/v1", data="\r\n".join([*parts, "--b--"]), headers=headers)
    whole = message_from_bytes(
        b"Content-Type: %s\r\n\r\n" % answer.headers["Content-Type"].encode() + answer.content
    )
    texts = [part.get_payload(decode=True) for part in whole.get_payload()]
    return [message_from_bytes(text.partition(b"\r\n")[2]) for text in texts]


def test_an_error_in_a_batch_has_its_document(gcs: RunningGcs, http: requests.Session) -> None:
    (missing,) = responses(gcs, http, "GET /storage/v1/b/no-such-bucket")
    alone = http.get(f"{gcs.url}/storage/v1/b/no-such-bucket")
    assert missing.get_content_type() == "application/json"
    assert json.loads(missing.get_payload()) == alone.json()
    assert alone.json()["error"]["code"] == 404


def test_not_modified_and_no_content_have_no_body_in_a_batch(
    gcs: RunningGcs, http: requests.Session, bucket: storage.Bucket
) -> None:
    bucket.blob("a").upload_from_string(b"x")
    a = "/storage/v1/b/acme-data/o/a"
    unmodified = f"GET {a}?ifGenerationNotMatch={bucket.get_blob('a').generation}"
    for response in responses(gcs, http, unmodified, f"DELETE {a}"):
        assert (response["Content-Length"], response["Content-Type"]) == ("0", None)
        assert response.get_payload().strip() == ""


PART = "--b\r\nContent-Type: application/http\r\n\r\nGET /storage/v1/b/acme-data HTTP/1.1\r\n\r\n"
NO_REQUEST = "Failed to parse batch request, error: a part holds no HTTP request."
NO_MEDIA = "Batches carry calls of the JSON API without media."
MIXED = {"Content-Type": "multipart/mixed; boundary=b"}


@pytest.mark.parametrize(
    ("body", "headers", "message"),
    [
        ("x", {}, "Batch requests must have the content type multipart/mixed, not application/octet-stream."),
        (
            PART + "--b--",
            {"Content-Type": "multipart/form-data; boundary=b"},
            "Batch requests must have the content type multipart/mixed, not multipart/form-data.",
        ),
        ("x", {"Content-Type": "multipart/mixed"}, "Multipart content type has no boundary."),
        ("x", MIXED, "Failed to parse batch request, error: 0 items."),
        (PART * 101 + "--b--", MIXED, "The batch request exceeds the maximum of 100 calls: 101."),
    ],
)
def test_an_invalid_batch_is_refused(
    gcs: RunningGcs, http: requests.Session, body: str, headers: dict[str, str], message: str
) -> None:
    answer = http.post(f"{gcs.url}/batch/storage/v1", data=body.encode(), headers=headers)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, message)


def test_a_batch_has_a_hundred_calls_at_most_and_is_posted(gcs: RunningGcs, http: requests.Session) -> None:
    url = f"{gcs.url}/batch/storage/v1"
    answer = http.post(url, data=PART * 100 + "--b--", headers=MIXED)
    assert answer.text.count("HTTP/1.1 200 OK") == 100
    assert http.get(url).status_code == 405


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("nonsense", "Failed to parse batch request, error: a part holds no HTTP request."),
        (
            "GET /storage/v1/b/acme-data HTTP/1.1 x",
            "Failed to parse batch request, error: a part holds no HTTP request.",
        ),
        ("GET http://[ HTTP/1.1", "Failed to parse batch request, error: a part has no valid URL."),
        (
            "GET /storage/v1/b/acme-data/o/a?alt=media HTTP/1.1",
            "Batches carry calls of the JSON API without media.",
        ),
        ("GET /acme-data/a HTTP/1.1", "Batches carry calls of the JSON API without media."),
    ],
)
def test_a_part_that_is_no_call_is_explained(
    gcs: RunningGcs, http: requests.Session, call: str, message: str
) -> None:
    body = f"--b\r\nContent-Type: application/http\r\n\r\n{call}\r\n\r\n\r\n--b--"
    answer = http.post(f"{gcs.url}/batch/storage/v1", data=body.encode(), headers=MIXED)
    assert (
        json.loads(answer.text[answer.text.index("{") : answer.text.rindex("}") + 1])["error"]["message"]
        == message
    )


def test_a_response_in_a_batch_is_whole(gcs: RunningGcs, http: requests.Session) -> None:
    """As the clients parse it, https://cloud.google.com/storage/docs/batch#example_batch_response"""
    patch = "PATCH /storage/v1/b/acme-data?fields=labels HTTP/1.1\nContent-Type: application/json\n\n"
    parts = [
        f"--b\nContent-Type: application/http\nContent-ID: <a b>\n\n{patch}" + '{"labels": {"k": "v"}}\n',
        "--b\nContent-Type: application/http\n\nDELETE /storage/v1/b/acme-data HTTP/1.1\n\n\n",
    ]
    answer = http.post(f"{gcs.url}/batch/storage/v1", data="".join(parts) + "--b--", headers=MIXED)
    kind, _, boundary = answer.headers["Content-Type"].partition("; boundary=")
    assert kind == "multipart/mixed"
    lines = [
        f"--{boundary}", "Content-Type: application/http", "Content-ID: <response-a b>", "",
        "HTTP/1.1 200 OK", "Content-Type: application/json; charset=UTF-8", "Content-Length: 22", "",
        '{"labels": {"k": "v"}}',
        f"--{boundary}", "Content-Type: application/http", "",
        "HTTP/1.1 204 No Content", "Content-Length: 0", "", "", f"--{boundary}--", "",
    ]  # fmt: skip
    assert answer.text.split("\r\n") == lines
