"""Invalid requests from a seeded generator: no traceback, no success for nonsense, no harm."""

from __future__ import annotations

import http.client
import json
import random
import re
import socket
from urllib.parse import quote

import pytest

from tests.sim.gcs.running_server import BUCKET, PROJECT, RunningGcs
from tpuctl.sim.gcs.json_api.routes import PREFIX
from tpuctl.sim.gcs.json_api.routes import ROUTES as JSON_ROUTES
from tpuctl.sim.gcs.xml_api.routes import ROUTES as XML_ROUTES

KINDS = ("media", "multipart", "resumable")
REQUESTS = 1500
METHODS = ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "BREW")
XML_PATHS = {"service": "/", "bucket": "/{bucket}", "object": "/{bucket}/{object}"}
UPLOAD = "/upload/storage/v1/b/{bucket}/o"
CALLS = (
    *((method, f"{PREFIX}{path}") for method, path, _ in JSON_ROUTES),
    *((method, f"{XML_PATHS[kind]}?{sub}=a" if sub else XML_PATHS[kind]) for kind, method, sub in XML_ROUTES),
    *((method, f"{UPLOAD}?uploadType={kind}") for method in ("PUT", "POST") for kind in KINDS),
    ("GET", "/download/storage/v1/b/{bucket}/o/{object}"),
    ("POST", "/batch/storage/v1"),
)
"""Methods and paths that the server has, so that the nonsense reaches its operations."""

PARAMETERS = (
    "alt", "fields", "projection", "prefix", "delimiter", "maxResults", "pageToken", "versions",
    "softDeleted", "generation", "ifGenerationMatch", "ifGenerationNotMatch", "ifMetagenerationMatch",
    "ifSourceGenerationMatch", "uploadType", "upload_id", "name", "project", "predefinedAcl",
    "rewriteToken", "maxBytesRewrittenPerCall", "uploads", "uploadId", "partNumber", "compose", "marker",
    "max-keys", "continuation-token", "list-type", "matchGlob", "startOffset", "endOffset",
    "X-Goog-Signature", "X-Goog-Date", "X-Goog-Expires", "Expires", "GoogleAccessId", "Signature",
    "userProject",
)  # fmt: skip
HEADERS = (
    "Range", "Content-Range", "Content-Type", "Content-Encoding", "Content-MD5", "X-Goog-Hash", "If-Match",
    "If-None-Match", "x-goog-if-generation-match", "x-goog-copy-source", "x-goog-resumable",
    "x-goog-project-id", "Accept-Encoding", "x-goog-meta-a", "X-Upload-Content-Length",
    "x-goog-copy-source-generation",
)  # fmt: skip
VALUES = (
    "", "0", "1", "-1", "9" * 30, "1e5", "NaN", "true", "media", "resumable", "multipart", "full", "*", "/",
    "..", "a", BUCKET, f"/{BUCKET}/a", "é", "\U0001f600", "%", "%ff", "\x00", "items(", "a,b(c)", "[z-a]",
    "{a,b", "[[]", "bytes=0-", "bytes=5-1", "bytes=-5", "bytes 0-4/5", "bytes */*", "bytes 0-0/*",
    "bytes 9-1/3", "gzip", "start", "crc32c=AAAAAA==", "md5=x", "multipart/related; boundary=b",
    "multipart/mixed; boundary=b", "application/json", "publicRead", "WyJhIiwgMCwgIiJd", "bnVsbA==",
    "20200101T000000Z", "a" * 2000,
)  # fmt: skip
JSONS = (
    None, True, -1, 1.5, "x", [], {}, [1], {"a": None}, "\ud800", [{"name": "a"}], {"enabled": True},
    {"rule": [{}]}, "acme-new", [{"entity": "allUsers", "role": "READER"}], {"k": "v"}, {"mode": "Locked"},
)  # fmt: skip
FIELDS = (
    "name", "labels", "lifecycle", "versioning", "softDeletePolicy", "retentionPolicy", "acl",
    "iamConfiguration", "metadata", "contentType", "temporaryHold", "retention", "sourceObjects",
    "destination", "bindings", "etag", "cors", "storageClass", "location", "customTime", "crc32c",
    "md5Hash", "generation", "defaultObjectAcl",
)  # fmt: skip
BODIES = (
    b"", b"{", b"[]", b"null", b"\xff\xfe", b"x" * 100_000, b"<a/>", b"<CompleteMultipartUpload/>",
    b"--b\r\n\r\n{}\r\n--b\r\n\r\ndata\r\n--b--",
    b"--b\r\nContent-Type: application/http\r\n\r\nGET / HTTP/1.1\r\n\r\n--b--",
    b"<ComposeRequest><Component><Name>a</Name></Component></ComposeRequest>", b"[" * 50_000,
)  # fmt: skip


class Nonsense:
    """Makes up requests, the same ones every time."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def request(self) -> tuple[str, str, bytes, dict[str, str]]:
        chance = self._chance
        bucket = chance.choice([*[BUCKET] * 7, "no-such-bucket", "é", "%"])
        names = {"bucket": bucket, "object": self._name(), "project": bucket, "entity": "user-ann"}
        method, template = chance.choice(CALLS)
        if chance.random() < 0.1:
            method = chance.choice(METHODS)
        path = re.sub(r"\{(\w+)\}", lambda match: quote(names[match[1].split("_")[-1]], safe=""), template)
        chosen = chance.sample(PARAMETERS, chance.randrange(4))
        query = "&".join(f"{name}={quote(chance.choice(VALUES))}" for name in chosen)
        headers = {name: self._header() for name in chance.sample(HEADERS, chance.randrange(3))}
        joint = "&" if "?" in path else "?"
        return method, f"{path}{joint}{query}" if query else path, self._body(), headers

    def _name(self) -> str:
        return self._chance.choice(
            [*["a"] * 6, "b/c", "nothing", "..", "é" * 600, "\x00", "\n", "\U0001f600"]
        )

    def _header(self) -> str:
        return self._chance.choice([value for value in VALUES if value.isascii() and value.isprintable()])

    def _body(self) -> bytes:
        if self._chance.random() < 0.5:
            return self._chance.choice(BODIES)
        fields = self._chance.sample(FIELDS, self._chance.randrange(1, 4))
        return json.dumps({name: self._chance.choice(JSONS) for name in fields}).encode()


def ask(port: int, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers.get("Content-Type", "")
    finally:
        connection.close()


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))]
)
def test_nonsense_never_breaks_the_server(
    gcs: RunningGcs, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], seed: int
) -> None:
    nonsense = Nonsense(seed)
    for number in range(REQUESTS):
        if number % 20 == 0:
            gcs.server.store.ensure_bucket(BUCKET, PROJECT)
            ask(gcs.port, "PUT", f"/{BUCKET}/a", b"data", {})
        request = nonsense.request()
        status, body, kind = ask(gcs.port, *request)
        assert status < 500 or status in (501, 503), (request, body)
        assert b"Traceback" not in body
        if kind.startswith("application/json") and request[0] != "HEAD":
            document = json.loads(body)
            assert status < 300 or document["error"]["code"] == status, request
    assert caplog.records == []
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"\x00" * 1000 + b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PUT /acme-data/a HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"PUT /acme-data/a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        b"PUT /acme-data/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
    ],
)
def test_invalid_http_is_never_a_success(
    gcs: RunningGcs, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], sent: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", gcs.port), timeout=60) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while data := connection.recv(65536):
            received += data
    assert not received.startswith(b"HTTP/1.1 2")
    assert gcs.server.store.objects.find(BUCKET, "a") is None
    assert caplog.records == []
    assert "Traceback" not in capfd.readouterr().err
