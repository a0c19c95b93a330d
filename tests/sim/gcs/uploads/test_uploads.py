"""Resumable and other uploads: cuts, status queries, restarts, full disks, odd framings, hostile names."""

from __future__ import annotations

import io
import json
import os
import socket
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, RunningGcs, client_of, gcs_process

KIB = 1 << 10
MIB = 1 << 20


def start(http: requests.Session, url: str, name: str, **query: str) -> str:
    """Start a resumable session and return its URI."""
    answer = http.post(
        f"{url}/upload/storage/v1/b/{BUCKET}/o",
        params={"uploadType": "resumable", "name": name, **query},
        json={"metadata": {"k": "v"}},
        headers={"X-Upload-Content-Type": "text/x"},
    )
    assert answer.status_code == 200, answer.text
    return answer.headers["Location"]


def put(http: requests.Session, uri: str, content_range: str, data: bytes = b"") -> requests.Response:
    """Send one chunk of a session."""
    return http.put(uri, data=data, headers={"Content-Range": content_range}, allow_redirects=False)


def fetch(http: requests.Session, url: str, name: str) -> bytes | None:
    """Return an object's bytes, or None."""
    answer = http.get(f"{url}/{BUCKET}/{name}")
    return answer.content if answer.status_code == 200 else None


def cut_short(uri: str, content_range: str, length: int, data: bytes) -> None:
    """Announce `length` bytes, send `data`, and cut the connection."""
    parts = urlsplit(uri)
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        head = (
            f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Content-Range: {content_range}\r\nContent-Length: {length}\r\n\r\n"
        )
        connection.sendall(head.encode() + data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass


def test_chunks_come_together(bucket: storage.Bucket) -> None:
    data = os.urandom(3 * MIB + 5)
    blob = bucket.blob("chunked", chunk_size=512 * KIB)
    blob.upload_from_file(io.BytesIO(data), rewind=True)
    assert blob.download_as_bytes() == data


def test_a_stream_of_unknown_length_comes_together(bucket: storage.Bucket) -> None:
    for size in (0, 100, 512 * KIB, 512 * KIB + 1):
        data = os.urandom(size)
        with bucket.blob("stream").open("wb", chunk_size=256 * KIB) as file:
            file.write(data)
        assert bucket.blob("stream").download_as_bytes() == data


def test_an_upload_that_was_cut_is_asked_about_and_finished(gcs: RunningGcs, http: requests.Session) -> None:
    data = os.urandom(MIB + 1000)
    uri = start(http, gcs.url, "a")
    cut_short(uri, f"bytes 0-{len(data) - 1}/{len(data)}", len(data), data[: 700 * KIB])
    status = put(http, uri, f"bytes */{len(data)}")
    assert (status.status_code, status.headers["Range"]) == (308, f"bytes=0-{512 * KIB - 1}")
    assert fetch(http, gcs.url, "a") is None
    done = put(http, uri, f"bytes {512 * KIB}-{len(data) - 1}/{len(data)}", data[512 * KIB :])
    assert done.status_code == 200
    assert (done.json()["contentType"], done.json()["metadata"]) == ("text/x", {"k": "v"})
    assert fetch(http, gcs.url, "a") == data
    again = put(http, uri, f"bytes */{len(data)}")
    assert (again.status_code, again.json()["generation"]) == (200, done.json()["generation"])


def test_an_upload_whose_last_answer_was_lost_is_complete(gcs: RunningGcs, http: requests.Session) -> None:
    data = os.urandom(300 * KIB + 7)
    uri = start(http, gcs.url, "a")
    cut_short(uri, f"bytes 0-{len(data) - 1}/{len(data)}", len(data), data)
    status = put(http, uri, f"bytes */{len(data)}")
    assert (status.status_code, status.json()["size"]) == (200, str(len(data)))
    assert fetch(http, gcs.url, "a") == data


def test_an_upload_of_unknown_length_is_finished_by_saying_the_length(
    gcs: RunningGcs, http: requests.Session
) -> None:
    data = os.urandom(512 * KIB)
    uri = start(http, gcs.url, "a")
    assert put(http, uri, f"bytes 0-{len(data) - 1}/*", data).status_code == 308
    assert put(http, uri, f"bytes */{len(data) + 1}").status_code == 308
    assert put(http, uri, f"bytes */{len(data)}").status_code == 200
    assert fetch(http, gcs.url, "a") == data


def test_bytes_that_are_sent_twice_count_once(gcs: RunningGcs, http: requests.Session) -> None:
    data = os.urandom(512 * KIB)
    uri = start(http, gcs.url, "a")
    put(http, uri, f"bytes 0-{256 * KIB - 1}/*", data[: 256 * KIB])
    done = put(http, uri, f"bytes 0-{len(data) - 1}/{len(data)}", data)
    assert done.status_code == 200
    assert fetch(http, gcs.url, "a") == data


def test_a_chunk_that_is_no_multiple_is_kept_as_far_as_it_goes(
    gcs: RunningGcs, http: requests.Session
) -> None:
    uri = start(http, gcs.url, "a")
    answer = put(http, uri, f"bytes 0-{300 * KIB - 1}/*", b"x" * 300 * KIB)
    assert (answer.status_code, answer.headers["Range"]) == (308, f"bytes=0-{256 * KIB - 1}")
    assert "Range" not in put(http, start(http, gcs.url, "b"), "bytes */*").headers


def test_a_gap_between_chunks_is_refused(gcs: RunningGcs, http: requests.Session) -> None:
    uri = start(http, gcs.url, "a")
    answer = put(http, uri, "bytes 262144-262145/*", b"xx")
    assert answer.status_code == 503
    assert "exceeds already uploaded size of 0 byte(s)" in answer.text


@pytest.mark.parametrize("header", ["bytes 5-3/10", "bytes 0-10/5", "nonsense", "bytes */", "bytes -1-3/*"])
def test_a_content_range_that_makes_no_sense_is_refused(
    gcs: RunningGcs, http: requests.Session, header: str
) -> None:
    assert put(http, start(http, gcs.url, "a"), header, b"x").status_code == 400


def test_a_cancelled_upload_is_gone(gcs: RunningGcs, http: requests.Session) -> None:
    uri = start(http, gcs.url, "a")
    put(http, uri, f"bytes 0-{256 * KIB - 1}/*", b"x" * 256 * KIB)
    assert http.delete(uri).status_code == 499
    assert put(http, uri, "bytes */*").status_code == 404
    assert blob_files(gcs.root) == []


def test_the_conditions_of_an_upload_hold_when_it_ends(gcs: RunningGcs, http: requests.Session) -> None:
    uri = start(http, gcs.url, "a", ifGenerationMatch="0")
    http.put(f"{gcs.url}/{BUCKET}/a", data=b"first")
    assert http.put(uri, data=b"second").status_code == 412
    assert fetch(http, gcs.url, "a") == b"first"
    assert len(blob_files(gcs.root)) == 1


def test_a_claim_at_the_end_of_an_upload_is_checked(gcs: RunningGcs, http: requests.Session) -> None:
    uri = start(http, gcs.url, "a")
    answer = http.put(uri, data=b"data", headers={"X-Goog-Hash": "crc32c=AAAAAA=="})
    assert answer.status_code == 400
    assert fetch(http, gcs.url, "a") is None


def test_an_upload_goes_on_after_the_server_was_killed(tmp_path: Path, http: requests.Session) -> None:
    data = os.urandom(MIB)
    with gcs_process(tmp_path) as (_, url):
        with client_of(url) as client:
            client.create_bucket(BUCKET)
        session = urlsplit(start(http, url, "a")).query
        put(
            http,
            f"{url}/upload/storage/v1/b/{BUCKET}/o?{session}",
            f"bytes 0-{MIB // 2 - 1}/*",
            data[: MIB // 2],
        )
    with gcs_process(tmp_path) as (_, url):
        uri = f"{url}/upload/storage/v1/b/{BUCKET}/o?{session}"
        assert put(http, uri, "bytes */*").headers["Range"] == f"bytes=0-{MIB // 2 - 1}"
        assert put(http, uri, f"bytes {MIB // 2}-{MIB - 1}/{MIB}", data[MIB // 2 :]).status_code == 200
        assert fetch(http, url, "a") == data


def test_an_upload_that_breaks_off_leaves_nothing(gcs: RunningGcs, http: requests.Session) -> None:
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
def test_multipart_content_is_taken_to_the_byte(
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


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path, http: requests.Session) -> None:
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
def test_names_that_may_not_be_are_refused(gcs: RunningGcs, http: requests.Session, name: str) -> None:
    answer = http.post(f"{gcs.url}/upload/storage/v1/b/{BUCKET}/o", params={"name": name}, data=b"x")
    assert answer.status_code == 400
    assert answer.json()["error"]["errors"][0]["reason"] in ("invalid", "required")


def blob_files(root: Path) -> list[Path]:
    """Return the files that hold objects' bytes."""
    return [path for path in (root / "blobs").rglob("*") if path.is_file()]
