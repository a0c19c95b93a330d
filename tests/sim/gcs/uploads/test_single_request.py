"""Uploads in one request: multipart bodies to the byte, requests that fail midway, full disks."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path

import pytest
import requests

from tests.sim.gcs.running_server import BUCKET, RunningGcs, blob_files, client_of, gcs_process
from tests.sim.gcs.uploads.raw_http import cut_short, fetch

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
