"""The server of Cloud Storage: which bodies it takes, and in which form it answers that it does not.

The docstring of the package shows the way of a request by modules that exist.
"""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.sim.gcs.running_server import BUCKET, RunningGcs

LARGEST_JSON = 16 << 20
LARGEST_XML = 4 << 20
COMPOSE = b"<ComposeRequest></ComposeRequest>"


def error_of(answer: requests.Response) -> tuple[int, str, str]:
    """Return status, reason and message of an answer of the JSON API."""
    error: dict[str, Any] = answer.json()["error"]
    return answer.status_code, error["errors"][0]["reason"], error["message"]


@pytest.mark.parametrize(
    ("content_type", "error"),
    [
        (
            "application/x-www-form-urlencoded",
            (400, "badRequest", "This API does not support parsing form-encoded input."),
        ),
        (
            "multipart/form-data; boundary=b",
            (400, "badRequest", "This API does not support parsing form-encoded input."),
        ),
        ("text/plain", (400, "badContent", "Unsupported content with type: text/plain")),
    ],
)
def test_a_body_of_a_type_that_a_web_page_may_send_is_refused(
    gcs: RunningGcs, http: requests.Session, content_type: str, error: tuple[int, str, str]
) -> None:
    url, headers = f"{gcs.url}/storage/v1/b/{BUCKET}", {"Content-Type": content_type}
    assert error_of(http.patch(url, data=b'{"labels": {"a": "b"}}', headers=headers)) == error
    assert "labels" not in http.get(url).json()
    assert http.patch(url, data=b"", headers=headers).status_code == 200, "there is nothing to take"


@pytest.mark.parametrize("headers", [{"Content-Type": "application/json"}, {}])
def test_a_body_may_be_json_or_of_no_type(
    gcs: RunningGcs, http: requests.Session, headers: dict[str, str]
) -> None:
    answer = http.patch(f"{gcs.url}/storage/v1/b/{BUCKET}", data=b'{"labels": {"a": "b"}}', headers=headers)
    assert answer.json()["labels"] == {"a": "b"}


@pytest.mark.parametrize(
    ("body", "reason", "message"),
    [
        (b"{", "parseError", "Parse Error"),
        (b"[" * 100_000, "parseError", "Parse Error"),
        (b"[]", "invalid", "The body must be a JSON object."),
        (b"5", "invalid", "The body must be a JSON object."),
    ],
)
def test_a_body_that_is_no_object_is_refused(
    gcs: RunningGcs, http: requests.Session, body: bytes, reason: str, message: str
) -> None:
    answer = http.patch(f"{gcs.url}/storage/v1/b/{BUCKET}", data=body)
    assert error_of(answer) == (400, reason, message)


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 413)])
def test_a_json_document_has_16_mib_at_most(
    gcs: RunningGcs, http: requests.Session, more: int, status: int
) -> None:
    answer = http.patch(f"{gcs.url}/storage/v1/b/{BUCKET}", data=b"{}".ljust(LARGEST_JSON + more))
    assert answer.status_code == status
    if more:
        assert error_of(answer)[::2] == (413, "Request Entity Too Large")


@pytest.mark.parametrize(
    ("more", "message"),
    [(0, "You must provide at least one source component."), (1, "The XML document is too large.")],
)
def test_an_xml_document_has_4_mib_at_most(
    gcs: RunningGcs, http: requests.Session, more: int, message: str
) -> None:
    answer = http.put(f"{gcs.url}/{BUCKET}/a?compose", data=COMPOSE.ljust(LARGEST_XML + more))
    assert (answer.status_code, message in answer.text) == (400, True)


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", f"b/{BUCKET}/o/", 404, "No such object."),
        ("GET", f"b/{BUCKET}/notificationConfigs", 501, "does not have this method; see docs/simulator.md"),
        ("POST", "channels/stop", 501, "does not have this method; see docs/simulator.md"),
        ("GET", "projects/acme/hmacKeys", 501, "does not have this method; see docs/simulator.md"),
        ("POST", f"b/{BUCKET}/managedFolders", 501, "does not have this method; see docs/simulator.md"),
        ("GET", "other", 404, "Not Found"),
        ("GET", "", 404, "Not Found"),
    ],
)
def test_a_path_that_the_json_api_does_not_have_is_said(
    gcs: RunningGcs, http: requests.Session, method: str, path: str, status: int, message: str
) -> None:
    answer = http.request(method, f"{gcs.url}/storage/v1/{path}")
    assert (answer.status_code, message in answer.json()["error"]["message"]) == (status, True)


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        (f"storage/v1/b/{BUCKET}/o/none", "application/json"),
        (f"storage/v1/b/{BUCKET}/o/none?alt=media", "text/html"),
        (f"download/storage/v1/b/{BUCKET}/o/none", "text/html"),
        (f"{BUCKET}/none", "application/xml"),
    ],
)
def test_an_error_has_the_form_of_its_api(
    gcs: RunningGcs, http: requests.Session, path: str, content_type: str
) -> None:
    answer = http.get(f"{gcs.url}/{path}")
    assert (answer.status_code, answer.headers["Content-Type"].partition(";")[0]) == (404, content_type)
    if content_type == "text/html":
        assert answer.text == f"No such object: {BUCKET}/none"


def test_a_long_name_fits_into_the_request_line(gcs: RunningGcs, http: requests.Session) -> None:
    name = "%F0%9F%98%80" * 256
    assert http.put(f"{gcs.url}/{BUCKET}/{name}", data=b"data").status_code == 200
    path = f"b/{BUCKET}/o/{name}/rewriteTo/b/{BUCKET}/o/{name}"
    assert http.post(f"{gcs.url}/storage/v1/{path}").json()["done"] is True


@pytest.mark.parametrize("body", [b"\x1f\x8b plain after all", b"data"])
def test_a_body_that_says_that_it_is_compressed_is_kept_as_it_is(
    gcs: RunningGcs, http: requests.Session, body: bytes
) -> None:
    headers = {"Content-Encoding": "gzip"}
    assert http.put(f"{gcs.url}/{BUCKET}/a", data=body, headers=headers).status_code == 200
    stored = gcs.server.store.objects.get(BUCKET, "a")
    with gcs.server.store.blobs.open(stored.blob) as file:
        assert file.read() == body


def test_a_host_has_to_name_a_project_that_pays_where_requesters_pay(
    gcs: RunningGcs, http: requests.Session
) -> None:
    url, host = f"{gcs.url}/storage/v1/b/{BUCKET}", {"Authorization": "Bearer t"}
    gcs.accounts["t"] = "default@example.com"
    assert http.get(f"{url}/o", headers=host).status_code == 200
    assert http.patch(url, json={"billing": {"requesterPays": True}}).status_code == 200
    message = "Bucket is a requester pays bucket but no user project provided."
    assert error_of(http.get(f"{url}/o", headers=host)) == (400, "required", message)
    upload = f"{gcs.url}/upload/storage/v1/b/{BUCKET}/o?name=x"
    assert error_of(http.post(upload, data=b"x", headers=host)) == (400, "required", message)
    in_xml = http.get(f"{gcs.url}/{BUCKET}/x", headers=host)
    assert in_xml.status_code == 400
    assert f"<Code>UserProjectMissing</Code><Message>{message}</Message>" in in_xml.text
    for paying in ({"headers": {**host, "X-Goog-User-Project": "p"}}, {"params": {"userProject": "p"}}, {}):
        assert http.get(f"{url}/o", **{"headers": host if paying else {}, **paying}).status_code == 200
