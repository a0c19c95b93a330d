"""Downloads over raw HTTP through both APIs.

Which bytes a Range selects, which headers describe them, gzip, conditions.
"""

from __future__ import annotations

import gzip
import http.client
import io
import json
import os
import socket
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, RunningGcs
from tpuctl.sim.gcs.downloads import PIECE, ByteRange, object_headers, parse_range
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.storage.stored_object import StoredObject

DATA = bytes(range(256)) * 1024
SIZE = len(DATA)
PATHS = {
    "xml": f"/{BUCKET}/a",
    "json": f"/storage/v1/b/{BUCKET}/o/a?alt=media",
    "download": f"/download/storage/v1/b/{BUCKET}/o/a?alt=media",
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-99", 5, 100),
        ("bytes=1000-", 1000, SIZE),
        ("bytes=-7", SIZE - 7, SIZE),
        (f"bytes=-{SIZE * 2}", 0, SIZE),
        (f"bytes=10-{SIZE * 2}", 10, SIZE),
    ],
)
def test_a_range_returns_just_its_bytes(
    gcs: RunningGcs, http: requests.Session, path: str, header: str, start: int, end: int
) -> None:
    http.put(f"{gcs.url}/{BUCKET}/a", data=DATA)
    answer = http.get(gcs.url + path, headers={"Range": header})
    assert (answer.status_code, answer.content) == (206, DATA[start:end])
    assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/{SIZE}"


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_range_beyond_the_end_is_refused(gcs: RunningGcs, http: requests.Session, path: str) -> None:
    http.put(f"{gcs.url}/{BUCKET}/a", data=DATA)
    for header in (f"bytes={SIZE}-", f"bytes={SIZE + 5}-{SIZE + 9}", "bytes=-0", "bytes=9-3"):
        assert http.get(gcs.url + path, headers={"Range": header}).status_code == 416
    for whole in ("bytes=-", "lines=1-2", "bytes=0-1,5-6"):
        assert http.get(gcs.url + path, headers={"Range": whole}).content == DATA


def test_head_returns_all_headers_and_no_bytes(gcs: RunningGcs, http: requests.Session) -> None:
    http.put(
        f"{gcs.url}/{BUCKET}/a",
        data=DATA,
        headers={"Content-Type": "text/x", "x-goog-meta-Color": "red", "Cache-Control": "no-store"},
    )
    answer = http.head(f"{gcs.url}/{BUCKET}/a")
    assert (answer.status_code, answer.content) == (200, b"")
    expected = {
        "Content-Length": str(SIZE),
        "Content-Type": "text/x",
        "Cache-Control": "no-store",
        "x-goog-meta-color": "red",
        "x-goog-stored-content-length": str(SIZE),
        "x-goog-metageneration": "1",
    }
    assert {name: answer.headers[name] for name in expected} == expected
    assert answer.headers["x-goog-hash"] == http.get(f"{gcs.url}/{BUCKET}/a").headers["x-goog-hash"]
    assert answer.headers["x-goog-hash"].startswith("crc32c=")


def test_gzip_is_decompressed_for_clients_that_do_not_accept_it(
    gcs: RunningGcs, http: requests.Session
) -> None:
    packed = gzip.compress(DATA) + gzip.compress(b"second member")
    url = f"{gcs.url}/{BUCKET}/a"
    http.put(url, data=packed, headers={"Content-Encoding": "gzip"})
    plain = http.get(url, headers={"Accept-Encoding": "identity"})
    assert plain.content == DATA + b"second member"
    assert "Content-Encoding" not in plain.headers
    raw = http.get(url, headers={"Accept-Encoding": "gzip"}, stream=True)
    assert raw.raw.read(decode_content=False) == packed
    http.put(url, data=packed, headers={"Content-Encoding": "gzip", "Cache-Control": "no-transform"})
    unchanged = http.get(url, headers={"Accept-Encoding": "identity"}, stream=True)
    assert unchanged.raw.read(decode_content=False) == packed
    http.put(url, data=b"no gzip", headers={"Content-Encoding": "gzip"})
    assert http.get(url, headers={"Accept-Encoding": "identity"}).status_code == 503


def test_a_reader_of_an_overwritten_object_gets_the_old_one_whole(
    gcs: RunningGcs, http: requests.Session, bucket: storage.Bucket
) -> None:
    old, new = os.urandom(32 << 20), b"new"
    bucket.blob("a").upload_from_string(old)
    with http.get(f"{gcs.url}/{BUCKET}/a", stream=True) as reading:
        start = reading.raw.read(1000)
        bucket.blob("a").upload_from_string(new)
        bucket.blob("a").delete()
        assert start + reading.raw.read() == old
    assert not bucket.blob("a").exists()


def test_entity_tags_spare_a_download(gcs: RunningGcs, http: requests.Session) -> None:
    http.put(f"{gcs.url}/{BUCKET}/a", data=DATA)
    for path in PATHS.values():
        tag = http.get(gcs.url + path).headers["ETag"]
        same = http.get(gcs.url + path, headers={"If-None-Match": tag})
        assert (same.status_code, same.content) == (304, b"")
        assert http.get(gcs.url + path, headers={"If-Match": '"other"'}).status_code == 412


def test_the_xml_api_has_its_own_conditions_and_errors(gcs: RunningGcs, http: requests.Session) -> None:
    url = f"{gcs.url}/{BUCKET}/a"
    first = http.put(url, data=b"1", headers={"x-goog-if-generation-match": "0"})
    assert first.status_code == 200
    second = http.put(url, data=b"2", headers={"x-goog-if-generation-match": "0"})
    assert (second.status_code, "<Code>PreconditionFailed</Code>" in second.text) == (412, True)
    assert http.put(url, data=b"2", headers={"Content-MD5": "AAAA"}).status_code == 400
    generation = first.headers["x-goog-generation"]
    assert http.get(url, params={"generation": generation}).content == b"1"
    assert http.delete(url, headers={"x-goog-if-generation-match": "1"}).status_code == 412
    assert http.delete(url).status_code == 204
    assert "<Code>NoSuchKey</Code>" in http.get(url).text
    assert "<Code>NoSuchBucket</Code>" in http.get(f"{gcs.url}/no-such-bucket/a").text


def test_a_bucket_can_be_named_by_the_host(gcs: RunningGcs, http: requests.Session) -> None:
    host = {"Host": f"{BUCKET}.storage.googleapis.com"}
    http.put(f"{gcs.url}/dir/a", data=b"1", headers=host)
    assert http.get(f"{gcs.url}/dir/a", headers=host).content == b"1"
    assert http.get(f"{gcs.url}/{BUCKET}/dir/a").content == b"1"


def test_links_have_the_scheme_and_host_of_the_client(gcs: RunningGcs, http: requests.Session) -> None:
    http.put(f"{gcs.url}/{BUCKET}/dir/a", data=b"1")
    resource = http.get(
        f"{gcs.url}/storage/v1/b/{BUCKET}/o/dir%2Fa", headers={"Host": "gcs.example:81"}
    ).json()
    assert resource["mediaLink"].startswith(
        f"http://gcs.example:81/download/storage/v1/b/{BUCKET}/o/dir%2Fa?"
    )


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/storage/v1/nonsense", b"", 404),
        ("GET", f"/storage/v1/b/{BUCKET}/o/%ff", b"", 400),
        ("GET", f"/storage/v1/b/{BUCKET}/o?pageToken=x", b"", 400),
        ("GET", f"/storage/v1/b/{BUCKET}/o?maxResults=x", b"", 400),
        ("GET", f"/storage/v1/b/{BUCKET}/o?matchGlob=[z-a]", b"", 400),
        ("GET", f"/storage/v1/b/{BUCKET}/o/a?generation=x", b"", 400),
        ("GET", f"/storage/v1/b/{BUCKET}/o/a?ifGenerationMatch=-1", b"", 400),
        ("DELETE", f"/storage/v1/b/{BUCKET}/o", b"", 405),
        ("GET", "/storage/v1/b", b"", 400),
        ("POST", "/storage/v1/b?project=acme", b"", 400),
        ("POST", "/storage/v1/b?project=acme", b'{"name": 5}', 400),
        ("POST", "/storage/v1/b?project=acme", b'{"name": "acme-x", "labels": 5}', 400),
        ("POST", "/storage/v1/b?project=acme", b"[]", 400),
        ("POST", "/storage/v1/b?project=acme", b"{", 400),
        ("POST", "/storage/v1/b?project=acme", b"[" * 100_000, 400),
        ("PATCH", f"/storage/v1/b/{BUCKET}", b'{"versioning": true}', 400),
        ("PATCH", f"/storage/v1/b/{BUCKET}/o/a", b'{"metadata": {"k": 5}}', 400),
        ("PATCH", f"/storage/v1/b/{BUCKET}/o/a", b'{"contentType": "a\\r\\nb: c"}', 400),
        ("POST", f"/storage/v1/b/{BUCKET}/o/a/compose", b'{"sourceObjects": [5]}', 400),
        ("POST", f"/storage/v1/b/{BUCKET}/o/a/compose", b'{"sourceObjects": [{"name": "\\ud800"}]}', 400),
        ("POST", f"/storage/v1/b/{BUCKET}/o/a/compose", b"{}", 400),
        ("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=other&name=a", b"", 400),
        ("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=multipart&name=a", b"", 400),
        ("PUT", f"/upload/storage/v1/b/{BUCKET}/o?upload_id=unknown", b"", 404),
        ("POST", f"/{BUCKET}/a", b"", 405),
        ("GET", f"/{BUCKET}?cors", b"", 501),
        ("GET", "/", b"", 400),
        ("GET", "/a%0Ab/c", b"", 404),
    ],
)
def test_nonsense_is_refused_and_never_crashes(
    gcs: RunningGcs,
    http: requests.Session,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    method: str,
    path: str,
    body: bytes,
    status: int,
) -> None:
    http.put(f"{gcs.url}/{BUCKET}/a", data=b"1")
    answer = http.request(method, gcs.url + path, data=body)
    assert answer.status_code == status
    if "/storage/v1/" in path:
        error = json.loads(answer.text)["error"]
        assert (error["code"], error["errors"][0]["message"]) == (status, error["message"])
    assert caplog.records == []


def test_dots_in_a_path_stay_a_name(gcs: RunningGcs) -> None:
    parts = urlsplit(gcs.url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port)
    for path in ("/../../etc/passwd", f"/{BUCKET}/../../etc/passwd", "//etc/passwd"):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status in (400, 404)
    connection.request("PUT", f"/{BUCKET}/../x", body=b"1")
    connection.getresponse().read()
    connection.request("GET", f"/storage/v1/b/{BUCKET}/o/..%2Fx")
    assert json.loads(connection.getresponse().read())["name"] == "../x"
    connection.close()


def test_a_client_that_leaves_early_does_no_harm(gcs: RunningGcs, http: requests.Session) -> None:
    http.put(f"{gcs.url}/{BUCKET}/a", data=os.urandom(16 << 20))
    for path in PATHS.values():
        with socket.create_connection((urlsplit(gcs.url).hostname, urlsplit(gcs.url).port)) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            connection.recv(10)
    assert http.head(f"{gcs.url}/{BUCKET}/a").status_code == 200


MEDIA = (f"/storage/v1/b/{BUCKET}/o/a?alt=media", f"/download/storage/v1/b/{BUCKET}/o/a?", f"/{BUCKET}/a?")


def test_a_decompressed_download_says_so(gcs: RunningGcs, http: requests.Session) -> None:
    """https://cloud.google.com/storage/docs/transcoding#decompressive_transcoding"""
    url, packed = f"{gcs.url}/{BUCKET}/a", gzip.compress(DATA)
    http.put(url, data=packed, headers={"Content-Encoding": "gzip"})
    plain = http.get(url, headers={"Accept-Encoding": "identity"})
    names = ("Warning", "Vary", "Transfer-Encoding", "Content-Encoding", "Content-Length")
    assert [plain.headers.get(name) for name in names] == [
        "214 UploadServer gunzipped",
        "Accept-Encoding",
        "chunked",
        None,
        None,
    ]
    for method, accepted in (("GET", "br, GZIP"), ("HEAD", "identity")):
        kept = http.request(method, url, headers={"Accept-Encoding": accepted}, stream=True)
        assert [kept.headers.get(name) for name in names] == [None, None, None, "gzip", str(len(packed))]
        kept.close()
    http.put(url, data=b"no gzip", headers={"Content-Encoding": "gzip"})
    broken = http.get(url, headers={"Accept-Encoding": "identity"})
    assert broken.status_code == 503
    assert "The object says contentEncoding gzip, but its bytes are not." in broken.text


@pytest.mark.parametrize("path", MEDIA)
def test_a_download_is_of_a_generation_and_under_conditions(
    gcs: RunningGcs, http: requests.Session, path: str
) -> None:
    bucket = f"{gcs.url}/storage/v1/b/{BUCKET}"
    http.patch(bucket, json={"versioning": {"enabled": True}})
    old, new = (
        http.put(f"{gcs.url}/{BUCKET}/a", data=data).headers["X-Goog-Generation"] for data in (b"old", b"new")
    )
    url = f"{gcs.url}{path}"
    assert http.get(f"{url}&generation={old}").content == b"old"
    assert http.get(url).content == http.get(f"{url}&generation={new}").content == b"new"
    assert http.get(f"{url}&generation=1").status_code == 404
    assert http.get(f"{url}&generation=x").status_code == 400
    for name, value, status in (
        ("generation-match", new, 200),
        ("generation-match", old, 412),
        ("generation-not-match", new, 304),
        ("generation-not-match", old, 200),
        ("metageneration-match", "2", 412),
        ("metageneration-not-match", "1", 304),
    ):
        if path.startswith(f"/{BUCKET}"):
            answer = http.get(url, headers={f"x-goog-if-{name}": value})
        else:
            answer = http.get(f"{url}&if{name.title().replace('-', '')}={value}")
        assert answer.status_code == status, (name, value)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", f"/download/storage/v1/b/{BUCKET}/o/a"),
        ("DELETE", f"/download/storage/v1/b/{BUCKET}/o/a"),
        ("GET", f"/download/storage/v1/b/{BUCKET}/p/a"),
        ("GET", f"/download/storage/v1/b/{BUCKET}"),
    ],
)
def test_only_bytes_are_downloaded(gcs: RunningGcs, http: requests.Session, method: str, path: str) -> None:
    http.put(f"{gcs.url}/{BUCKET}/a", data=b"1")
    answer = http.request(method, gcs.url + path)
    assert (answer.status_code, answer.text) == (404, "Not Found")
    assert http.get(f"{gcs.url}/{BUCKET}/a").content == b"1"


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-8", 0, 9),
        ("bytes=0-9", 0, 10),
        ("bytes=0-10", 0, 10),
        ("bytes=9-9", 9, 10),
        ("bytes=9-99", 9, 10),
        ("bytes=3-3", 3, 4),
        ("bytes=3-", 3, 10),
        ("bytes=0-", 0, 10),
        ("bytes=-1", 9, 10),
        ("bytes=-9", 1, 10),
        ("bytes=-10", 0, 10),
        ("bytes=-11", 0, 10),
        (" bytes=2-4 ", 2, 5),
    ],
)
def test_a_range_is_a_part_even_if_it_has_all_bytes(header: str, start: int, end: int) -> None:
    selected = parse_range(header, 10)
    assert selected == ByteRange(start, end, partial=True)
    assert selected.size == end - start


@pytest.mark.parametrize(
    "header", [None, "", "bytes=-", "bytes=1", "lines=1-2", "bytes=0-1,5-6", "bytes=a-b"]
)
@pytest.mark.parametrize("size", [0, 10])
def test_without_a_range_that_can_be_understood_it_is_the_whole_object(header: str | None, size: int) -> None:
    assert parse_range(header, size) == ByteRange(0, size, partial=False)


@pytest.mark.parametrize(
    ("header", "size"),
    [
        ("bytes=10-", 10), ("bytes=10-20", 10), ("bytes=-0", 10), ("bytes=4-3", 10), ("bytes=1-0", 10),
        ("bytes=0-", 0), ("bytes=0-0", 0), ("bytes=-1", 0),
    ],
)  # fmt: skip
def test_a_range_without_a_byte_of_the_object_cannot_be_satisfied(header: str, size: int) -> None:
    with pytest.raises(GcsError) as raised:
        parse_range(header, size)
    assert (raised.value.status, raised.value.message) == (416, "The requested range cannot be satisfied.")


@pytest.mark.daily
@pytest.mark.parametrize(
    ("start", "end", "sizes"),
    [
        (0, 0, []),
        (3, 3, []),
        (3, 7, [4]),
        (0, PIECE, [PIECE]),
        (1, PIECE + 1, [PIECE]),
        (0, PIECE + 1, [PIECE, 1]),
        (5, 2 * PIECE + 7, [PIECE, PIECE, 2]),
    ],
)
def test_a_range_is_read_in_pieces(start: int, end: int, sizes: list[int]) -> None:
    data = bytes(number % 251 for number in range(2 * PIECE + 100))
    pieces = list(ByteRange(start, end).read(io.BytesIO(data)))
    assert [len(piece) for piece in pieces] == sizes
    assert b"".join(pieces) == data[start:end]


def test_a_file_that_is_shorter_than_its_range_ends_the_reading() -> None:
    assert list(ByteRange(2, 9).read(io.BytesIO(b"abcd"))) == [b"cd"]


PLAIN = StoredObject(
    bucket="acme-data",
    name="a",
    generation=1234,
    live=True,
    metageneration=5,
    blob="blob",
    size=67,
    crc32c="AAAAAA==",
    md5="1B2M2Y8AsgTpgAmY7PhCfg==",
    components=None,
    created="2026-01-01T00:00:00.000Z",
    updated="2026-01-02T03:04:05.678Z",
    deleted=None,
    fields={},
)


def headers(**fields: Any) -> dict[str, str]:
    return object_headers(replace(PLAIN, fields=fields), '"tag"')


def test_an_object_without_fields_is_described_by_what_it_is() -> None:
    assert headers() == {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, max-age=0",
        "ETag": '"tag"',
        "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT",
        "X-Goog-Generation": "1234",
        "X-Goog-Hash": "crc32c=AAAAAA==,md5=1B2M2Y8AsgTpgAmY7PhCfg==",
        "X-Goog-Metageneration": "5",
        "X-Goog-Storage-Class": "STANDARD",
        "X-Goog-Stored-Content-Encoding": "identity",
        "X-Goog-Stored-Content-Length": "67",
    }


def test_a_composed_object_has_no_md5() -> None:
    assert object_headers(replace(PLAIN, md5=None), "t")["X-Goog-Hash"] == "crc32c=AAAAAA=="


@pytest.mark.parametrize(
    ("field", "header", "value"),
    [
        ("contentType", "Content-Type", "text/plain"),
        ("contentEncoding", "Content-Encoding", "gzip"),
        ("contentDisposition", "Content-Disposition", "attachment"),
        ("contentLanguage", "Content-Language", "de"),
        ("cacheControl", "Cache-Control", "no-store"),
    ],
)
def test_a_field_of_an_object_has_its_header(field: str, header: str, value: str) -> None:
    changed = {
        name: value for name, value in headers(**{field: value}).items() if headers().get(name) != value
    }
    encoding = {"X-Goog-Stored-Content-Encoding": "gzip"} if field == "contentEncoding" else {}
    assert changed == {header: value, **encoding}
    assert headers(**{field: ""}) == headers()


def test_the_storage_class_is_that_of_the_object() -> None:
    assert headers(storageClass="NEARLINE")["X-Goog-Storage-Class"] == "NEARLINE"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("color", "red", True),
        ("a-b_c1", "", True),
        ("a-b_c1", "deep vision", True),
        ("a b", "red", False),
        ("a:b", "red", False),
        ("größe", "red", False),
        ("-", "red", False),
        ("color", "red\nX-Evil: 1", False),
    ],
)
def test_metadata_of_the_callers_own_is_shown_where_it_can_be_a_header(
    name: str, value: str, shown: bool
) -> None:
    described = headers(metadata={name: value, "kept": "1"})
    assert described["X-Goog-Meta-kept"] == "1"
    assert described.get(f"X-Goog-Meta-{name}") == (value if shown else None)
    assert len(described) == len(headers()) + 1 + shown
