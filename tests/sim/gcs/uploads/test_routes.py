"""The requests that begin an upload: what each takes from its parameters, headers and body."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import requests

from tests.sim.gcs.running_server import BUCKET, RunningGcs
from tpuctl.sim.events import Events

RELATED = "multipart/related; boundary=b"
UNMET = "At least one of the pre-conditions you specified did not hold."


class Uploads:
    """Requests to the upload API of one bucket."""

    def __init__(self, gcs: RunningGcs, http: requests.Session) -> None:
        self.gcs, self.url, self._http = gcs, gcs.url, http

    def __call__(
        self,
        query: str = "",
        body: bytes = b"data",
        method: str = "POST",
        path: str = f"b/{BUCKET}/o",
        **headers: str,
    ) -> requests.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._http.request(
            method, f"{self.url}/upload/storage/v1/{path}?{query}", data=body, headers=named
        )

    def put(self, url: str, body: bytes = b"data", **headers: str) -> requests.Response:
        return self._http.put(url, data=body, headers=headers)


@pytest.fixture
def upload(gcs: RunningGcs, http: requests.Session) -> Uploads:
    return Uploads(gcs, http)


def message(answer: requests.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["message"]


def test_a_media_upload_has_its_type_and_encoding_outside_of_its_body(upload: Uploads) -> None:
    made = upload("uploadType=media&name=dir/a&contentEncoding=gzip", Content_Type="text/x").json()
    assert (made["name"], made["contentType"], made["contentEncoding"], made["size"]) == (
        "dir/a",
        "text/x",
        "gzip",
        "4",
    )
    plain = upload("name=b", method="PUT").json()
    assert (plain["contentType"], "contentEncoding" in plain) == ("application/octet-stream", False)


def multipart(metadata: dict[str, Any], *headers: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in headers)
    return f"--b\r\n\r\n{json.dumps(metadata)}\r\n--b\r\n{head}\r\ndata\r\n--b--".encode()


@pytest.mark.parametrize(
    ("metadata", "headers", "content_type"),
    [
        ({"name": "a"}, ("Content-Type: text/y",), "text/y"),
        ({"name": "a", "contentType": "text/x"}, ("Content-Type: text/y",), "text/x"),
        ({"name": "a"}, (), "application/octet-stream"),
    ],
)
def test_a_multipart_upload_has_the_type_of_its_metadata_or_of_its_content(
    upload: Uploads, metadata: dict[str, Any], headers: tuple[str, ...], content_type: str
) -> None:
    body = multipart(metadata, *headers)
    made = upload("uploadType=multipart", body, Content_Type=RELATED).json()
    assert (made["name"], made["contentType"], made["size"]) == ("a", content_type, "4")
    other = upload("uploadType=multipart&name=other", body, Content_Type=RELATED).json()
    assert other["name"] == "other", "the parameter is used before the metadata"


def test_a_resumable_upload_begins_with_the_place_of_its_session(upload: Uploads) -> None:
    begun = upload("uploadType=resumable&name=dir/ü", b"{}", X_Upload_Content_Type="text/x")
    session = begun.headers["X-GUploader-UploadID"]
    assert (begun.status_code, begun.content) == (200, b"")
    assert re.fullmatch(r"[0-9a-f]{32}", session)
    place = f"{upload.url}/upload/storage/v1/b/{BUCKET}/o?uploadType=resumable&name=dir%2F%C3%BC"
    assert begun.headers["Location"] == f"{place}&upload_id={session}"
    waiting = upload.put(begun.headers["Location"], b"", **{"Content-Range": "bytes */*"})
    assert (waiting.status_code, waiting.reason) == (308, "Resume Incomplete")
    assert waiting.headers["X-GUploader-UploadID"] == session
    made = upload.put(begun.headers["Location"] + "&fields=name,contentType").json()
    assert made == {"name": "dir/ü", "contentType": "text/x"}
    again = upload(
        "uploadType=resumable", b'{"name": "b", "contentType": "text/z"}', X_Upload_Content_Type="text/x"
    )
    assert upload.put(again.headers["Location"]).json()["contentType"] == "text/z"


@pytest.mark.parametrize("kind", ["media", "multipart", "resumable"])
def test_an_upload_has_the_predefined_list_that_is_named(upload: Uploads, kind: str) -> None:
    body = multipart({}) if kind == "multipart" else b"" if kind == "resumable" else b"data"
    answer = upload(
        f"uploadType={kind}&name=a&predefinedAcl=publicRead",
        body,
        Content_Type="multipart/related; boundary=b",
    )
    if kind == "resumable":
        answer = upload.put(answer.headers["Location"])
    assert answer.status_code == 200
    stored = upload.gcs.server.store.objects.get(BUCKET, "a")
    assert stored.fields["acl"][-1] == {"entity": "allUsers", "role": "READER"}  # type: ignore[index]
    refused = upload(f"uploadType={kind}&name=a&predefinedAcl=mine", body, Content_Type=RELATED)
    assert message(refused) == (400, "Invalid predefined ACL: mine")


@pytest.mark.parametrize("kind", ["media", "multipart", "resumable"])
def test_the_beginning_of_an_upload_is_an_event_with_its_fields(upload: Uploads, kind: str) -> None:
    upload.gcs.faults.events = events = Events()
    body = multipart({"contentType": "text/x"}) if kind == "multipart" else b'{"contentType": "text/x"}'
    content_type = RELATED if kind == "multipart" else "text/x"
    upload(f"uploadType={kind}&name=a", body, Content_Type=content_type)
    (event,) = events.find(kind="request")
    assert (event.what, event.resource, event.body) == (
        "objects.create",
        f"{BUCKET}/a",
        {"contentType": "text/x"},
    )


@pytest.mark.parametrize(
    ("query", "how", "error"),
    [
        ("uploadType=other&name=a", {}, (400, "Invalid value for parameter uploadType.")),
        ("uploadType=media", {}, (400, "Required parameter: name")),
        ("uploadType=resumable", {"body": b""}, (400, "Required parameter: name")),
        ("uploadType=multipart&name=a", {}, (400, "Multipart content type has no boundary.")),
        ("name=a", {"method": "DELETE"}, (405, "Method DELETE is not allowed here.")),
        ("name=a", {"path": "b/none/o"}, (404, "The specified bucket does not exist.")),
        ("name=a", {"path": f"b/{BUCKET}/p"}, (404, "Not Found")),
        ("upload_id=none", {}, (404, "The upload session was not found; start a new one.")),
        (
            "name=a&ifGenerationMatch=1",
            {},
            (412, UNMET),
        ),
    ],
)
def test_an_upload_that_cannot_begin_is_explained(
    upload: Uploads, query: str, how: dict[str, Any], error: tuple[int, str]
) -> None:
    assert message(upload(query, **how)) == error


def test_a_session_takes_bytes_or_ends(upload: Uploads) -> None:
    place = upload("uploadType=resumable&name=a", b"").headers["Location"]
    query = place.partition("?")[2]
    assert message(upload(query, method="PATCH")) == (405, "Method PATCH is not allowed here.")
    ended = upload(query, b"", method="DELETE")
    assert (ended.status_code, ended.reason) == (499, "Client Closed Request")
    assert message(upload(query)) == (404, "The upload session was not found; start a new one.")
