"""Uploads in one request: what begins one, multipart bodies to the byte, failures midway, and full disks."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.sim.gcs.raw_http import cut_short, fetch
from tests.sim.gcs.running_server import BUCKET, RunningGcs, blob_files, client_of, gcs_process
from tpuctl.sim.events import Events
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.uploads import MultipartRelated, boundary_of

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


MIB = 1 << 20


def test_an_upload_that_fails_midway_leaves_nothing(gcs: RunningGcs, http: requests.Session) -> None:
    http.put(f"{gcs.url}/{BUCKET}/a", data=b"old")
    cut_short(f"{gcs.url}/{BUCKET}/a", "", 1000, b"x" * 500)
    multipart = (
        b"--b\r\n\r\n{}\r\n--b\r\n\r\n" + b"x" * 500  # no closing boundary
    )
    answer = http.post(
        f"{gcs.url}/upload/storage/v1/b/{BUCKET}/o?uploadType=multipart&name=a",
        data=multipart,
        headers={"Content-Type": "multipart/related; boundary=b"},
    )
    assert answer.status_code == 400
    assert fetch(http, gcs.url, "a") == b"old"
    assert len(blob_files(gcs.root)) == 1


@pytest.mark.parametrize("newline", [b"\r\n", b"\n"])
@pytest.mark.parametrize("content", [b"", b"\r", b"\r\n", b"\n--", b"\r\n--boun", b"x\r\n--boundary"[:-1]])
def test_multipart_content_is_stored_to_the_byte(
    gcs: RunningGcs, http: requests.Session, newline: bytes, content: bytes
) -> None:
    lines = [
        b"--boundary",
        b"Content-Type: application/json",
        b"",
        json.dumps({"name": "a"}).encode(),
        b"--boundary",
        b"Content-Type: text/y",
        b"",
        content,
        b"--boundary--",
        b"",
    ]

    def dripping():
        for byte in newline.join(lines):
            yield bytes([byte])

    answer = http.post(
        f"{gcs.url}/upload/storage/v1/b/{BUCKET}/o?uploadType=multipart",
        data=dripping(),
        headers={"Content-Type": 'multipart/related; boundary="boundary"'},
    )
    assert (answer.status_code, answer.json().get("contentType")) == (200, "text/y")
    assert fetch(http, gcs.url, "a") == content


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: Path, http: requests.Session) -> None:
    with gcs_process(tmp_path, str(2 * MIB)) as (_, url):
        with client_of(url) as client:
            client.create_bucket(BUCKET)
        old = os.urandom(MIB)
        assert http.put(f"{url}/{BUCKET}/a", data=old).status_code == 200
        for path in (f"/{BUCKET}/a", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=a"):
            method = http.put if path.startswith(f"/{BUCKET}") else http.post
            assert method(f"{url}{path}", data=os.urandom(4 * MIB)).status_code == 507
        assert fetch(http, url, "a") == old
        assert len(blob_files(tmp_path)) == 1
        statuses = {
            http.put(f"{url}/{BUCKET}/n{i}", data=b"", headers={"x-goog-meta-k": "v" * 7000}).status_code
            for i in range(400)
        }
        assert len(statuses) > 1
        assert statuses <= {200, 507}
    with closing(RunningGcs(tmp_path)) as again:
        assert fetch(http, again.url, "a") == old


LARGEST = 1 << 20


def body(newline: bytes = b"\r\n", content: bytes = b"data", metadata: bytes = b"{}") -> bytes:
    lines = (
        b"--B", b"Content-Type: application/json", b"", metadata,
        b"--B", b"Content-Type:  text/x ", b"X-Other:a:b", b"", content, b"--B--", b"epilogue",
    )  # fmt: skip
    return newline.join(lines)


def read(sent: bytes, size: int) -> tuple[bytes, dict[str, str], bytes]:
    """Return metadata, headers and content of a body that arrives in pieces of a size."""

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(sent), size):
            yield sent[start : start + size]

    async def run() -> tuple[bytes, dict[str, str], bytes]:
        related = MultipartRelated(pieces(), b"B")
        metadata, headers = await related.metadata(), await related.content_headers()
        return metadata, headers, b"".join([piece async for piece in related.content()])

    return asyncio.run(run())


@pytest.mark.parametrize("newline", [b"\r\n", b"\n"])
@pytest.mark.parametrize("size", [1, 2, 7, 1 << 20])
@pytest.mark.parametrize("content", [b"", b"data", b"\r\n--", b"\r\n\r\n-B\n--A" * 9])
def test_a_body_has_metadata_headers_and_content(newline: bytes, size: int, content: bytes) -> None:
    headers = {"content-type": "text/x", "x-other": "a:b"}
    assert read(body(newline, content, b'{"name": "a"}'), size) == (b'{"name": "a"}', headers, content)


@pytest.mark.parametrize("end", [0, 5, 40, 60, 80, -len("--B--\r\nepilogue")])
def test_a_body_that_ends_early_is_refused(end: int) -> None:
    with pytest.raises(GcsError, match="ends without its closing boundary") as raised:
        read(body()[:end], 16)
    assert raised.value.status == 400


@pytest.mark.parametrize(("size", "refused"), [(LARGEST - (1 << 15), False), (LARGEST + (1 << 15), True)])
def test_metadata_has_a_largest_size(size: int, refused: bool) -> None:
    sent = body(metadata=b"x" * size)
    if not refused:
        assert len(read(sent, 1 << 14)[0]) == size
        return
    with pytest.raises(GcsError, match="is too large") as raised:
        read(sent, 1 << 14)
    assert raised.value.status == 413


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/related; boundary=b", b"b"),
        ('multipart/related; BOUNDARY="a b"; type=x', b"a b"),
        ("multipart/related; boundary='a b'", b"a b"),
        ("multipart/related; boundary=b; type=x", b"b"),
    ],
)
def test_a_boundary_is_in_the_content_type(content_type: str, boundary: bytes) -> None:
    assert boundary_of(content_type) == boundary


@pytest.mark.parametrize("content_type", ["", "multipart/related", "multipart/related; boundary="])
def test_a_type_without_a_boundary_is_refused(content_type: str) -> None:
    with pytest.raises(GcsError, match="has no boundary") as raised:
        boundary_of(content_type)
    assert raised.value.status == 400
