"""Resumable uploads: chunks, cuts, status queries, restarts, conditions and checksums.

What a Content-Range says of a chunk of a resumable upload, and which of its bytes are new.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from google.cloud import storage

from tests.sim.gcs.raw_http import cut_short, fetch, put, start
from tests.sim.gcs.running_server import BUCKET, RunningGcs, blob_files, client_of, gcs_process
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.uploads import ContentRange

KIB = 1 << 10


MIB = 1 << 20


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


def test_an_interrupted_upload_is_queried_and_completed(gcs: RunningGcs, http: requests.Session) -> None:
    data = os.urandom(MIB + 1000)
    uri = start(http, gcs.url, "a")
    cut_short(uri, f"bytes 0-{len(data) - 1}/{len(data)}", len(data), data[: 700 * KIB])
    status = put(http, uri, f"bytes */{len(data)}")
    assert (status.status_code, status.headers["Range"]) == (308, f"bytes=0-{512 * KIB - 1}")
    assert fetch(http, gcs.url, "a") is None
    complete = put(http, uri, f"bytes {512 * KIB}-{len(data) - 1}/{len(data)}", data[512 * KIB :])
    assert complete.status_code == 200
    assert (complete.json()["contentType"], complete.json()["metadata"]) == ("text/x", {"k": "v"})
    assert fetch(http, gcs.url, "a") == data
    again = put(http, uri, f"bytes */{len(data)}")
    assert (again.status_code, again.json()["generation"]) == (200, complete.json()["generation"])


def test_a_client_in_go_is_told_of_a_chunk_by_a_header_in_place_of_308(
    gcs: RunningGcs, http: requests.Session
) -> None:
    """A client in Go, such as rclone, asks for this: to its library, 308 is a redirect."""
    data = os.urandom(512 * KIB)
    uri = start(http, gcs.url, "a")
    for content_range, chunk in ((f"bytes 0-{256 * KIB - 1}/*", data[: 256 * KIB]), ("bytes */*", b"")):
        headers = {"Content-Range": content_range, "X-GUploader-No-308": "yes"}
        answer = http.put(uri, data=chunk, headers=headers)
        assert (answer.status_code, answer.headers["X-HTTP-Status-Code-Override"]) == (200, "308")
        assert answer.headers["Range"] == f"bytes=0-{256 * KIB - 1}"
    last = {"Content-Range": f"bytes {256 * KIB}-{len(data) - 1}/{len(data)}", "X-GUploader-No-308": "yes"}
    complete = http.put(uri, data=data[256 * KIB :], headers=last)
    assert (complete.status_code, complete.json()["size"]) == (200, str(len(data)))
    assert "X-HTTP-Status-Code-Override" not in complete.headers


def test_an_upload_whose_last_answer_was_lost_is_complete(gcs: RunningGcs, http: requests.Session) -> None:
    data = os.urandom(300 * KIB + 7)
    uri = start(http, gcs.url, "a")
    cut_short(uri, f"bytes 0-{len(data) - 1}/{len(data)}", len(data), data)
    status = put(http, uri, f"bytes */{len(data)}")
    assert (status.status_code, status.json()["size"]) == (200, str(len(data)))
    assert fetch(http, gcs.url, "a") == data


def test_an_upload_of_unknown_length_is_completed_by_its_length(
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
    complete = put(http, uri, f"bytes 0-{len(data) - 1}/{len(data)}", data)
    assert complete.status_code == 200
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
def test_an_invalid_content_range_is_refused(gcs: RunningGcs, http: requests.Session, header: str) -> None:
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


def test_a_checksum_at_the_end_of_an_upload_is_checked(gcs: RunningGcs, http: requests.Session) -> None:
    uri = start(http, gcs.url, "a")
    answer = http.put(uri, data=b"data", headers={"X-Goog-Hash": "crc32c=AAAAAA=="})
    assert answer.status_code == 400
    assert fetch(http, gcs.url, "a") is None


def test_an_upload_resumes_after_the_server_was_killed(tmp_path: Path, http: requests.Session) -> None:
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


async def in_chunks(chunks: Sequence[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def new(header: str, stored: int, *chunks: bytes) -> list[bytes]:
    """Return the pieces of a body that are new to an upload with so many stored bytes."""

    async def collect() -> list[bytes]:
        return [piece async for piece in ContentRange.parse(header).new_bytes(in_chunks(chunks), stored)]

    return asyncio.run(collect())


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes 0-0/1", ContentRange(0, 0, 1)),
        ("bytes 0-9/10", ContentRange(0, 9, 10)),
        ("bytes 5-5/*", ContentRange(5, 5, None)),
        (" bytes 5-9/10 ", ContentRange(5, 9, 10)),
        ("bytes */10", ContentRange(None, None, 10)),
        ("bytes */0", ContentRange(None, None, 0)),
        ("bytes */*", ContentRange(None, None, None)),
    ],
)
def test_a_content_range_has_its_first_and_last_byte_and_the_total(
    header: str, expected: ContentRange
) -> None:
    parsed = ContentRange.parse(header)
    assert parsed == expected
    assert parsed.is_status_query == (expected.first is None)


@pytest.mark.parametrize(
    "header",
    ["", "bytes", "bytes 5-4/10", "bytes 0-10/10", "bytes 0-11/10", "bytes -1-3/*", "bytes */", "bytes 1-/2"],
)
def test_a_content_range_that_contradicts_itself_is_refused(header: str) -> None:
    with pytest.raises(GcsError) as raised:
        ContentRange.parse(header)
    assert (raised.value.status, raised.value.message) == (
        400,
        f"Failed to parse Content-Range header: {header}",
    )


@pytest.mark.parametrize(
    ("header", "stored", "chunks", "pieces"),
    [
        ("bytes 0-5/6", 0, (b"abc", b"def"), [b"abc", b"def"]),
        ("bytes 0-5/6", 1, (b"abc", b"def"), [b"bc", b"def"]),
        ("bytes 0-5/6", 3, (b"abc", b"def"), [b"def"]),
        ("bytes 0-5/6", 4, (b"abc", b"def"), [b"ef"]),
        ("bytes 0-5/6", 6, (b"abc", b"def"), []),
        ("bytes 3-5/6", 3, (b"def",), [b"def"]),
        ("bytes 3-5/6", 5, (b"de", b"f"), [b"f"]),
        ("bytes 0-3/*", 0, (b"abc", b"def"), [b"abc", b"d"]),
        ("bytes 0-2/*", 0, (b"abc", b"def"), [b"abc"]),
        ("bytes 1-3/*", 2, (b"bc", b"def"), [b"c", b"d"]),
        ("bytes */*", 0, (b"abc", b""), [b"abc"]),
    ],
)
def test_the_bytes_behind_the_stored_ones_and_within_the_range_are_new(
    header: str, stored: int, chunks: tuple[bytes, ...], pieces: list[bytes]
) -> None:
    assert new(header, stored, *chunks) == pieces


def test_a_chunk_that_leaves_a_gap_is_refused_with_both_offsets() -> None:
    with pytest.raises(GcsError) as raised:
        new("bytes 4-5/6", 3, b"ef")
    assert (raised.value.status, raised.value.message) == (
        503,
        "Invalid request. According to the Content-Range header, the upload offset is 4 byte(s), "
        "which exceeds already uploaded size of 3 byte(s).",
    )


def test_no_more_bytes_than_the_total_are_taken() -> None:
    ContentRange(total=3).check_total(3)
    ContentRange().check_total(4)
    with pytest.raises(GcsError) as raised:
        ContentRange(total=3).check_total(4)
    assert (raised.value.status, raised.value.message) == (
        400,
        "4 bytes were received, more than the 3 announced.",
    )
