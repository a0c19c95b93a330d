"""Multipart uploads over raw HTTP: parts in any order, wrong parts, aborts."""

from __future__ import annotations

import os
from xml.etree import ElementTree

import requests

from tests.sim.gcs.running_server import BUCKET, RunningGcs

MIB = 1 << 20


def texts(answer: requests.Response, name: str) -> list[str]:
    """Return the texts of all elements of a name, namespaces aside."""
    assert answer.status_code == 200, answer.text
    return [
        element.text or ""
        for element in ElementTree.fromstring(answer.content).iter()
        if element.tag.endswith(f"}}{name}")
    ]


class Upload:
    """A multipart upload over raw HTTP."""

    def __init__(self, gcs: RunningGcs, http: requests.Session, name: str) -> None:
        self._http = http
        self.url = f"{gcs.url}/{BUCKET}/{name}"
        begun = http.post(f"{self.url}?uploads", headers={"Content-Type": "text/x", "x-goog-meta-k": "v"})
        self.id = texts(begun, "UploadId")[0]

    def put(self, number: int, data: bytes, **headers: str) -> requests.Response:
        query = {"partNumber": str(number), "uploadId": self.id}
        return self._http.put(self.url, params=query, data=data, headers=headers)

    def complete(self, parts: list[tuple[int, str]], **headers: str) -> requests.Response:
        listed = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{tag}</ETag></Part>" for n, tag in parts)
        body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>"
        return self._http.post(self.url, params={"uploadId": self.id}, data=body, headers=headers)


def test_parts_come_together_in_any_order_and_the_last_of_a_number_counts(
    gcs: RunningGcs, http: requests.Session
) -> None:
    upload = Upload(gcs, http, "dir/a")
    parts = {number: os.urandom(5 * MIB) for number in (2, 1)} | {3: b"the end"}
    upload.put(1, b"overwritten")
    tags = [(number, upload.put(number, data).headers["ETag"]) for number, data in parts.items()]
    assert http.get(upload.url).status_code == 404
    listing = http.get(f"{upload.url}?uploadId={upload.id}")
    assert texts(listing, "Size") == [str(5 * MIB), str(5 * MIB), "7"]
    assert texts(http.get(f"{gcs.url}/{BUCKET}?uploads"), "UploadId") == [upload.id]
    assert upload.complete(sorted(tags), **{"x-goog-if-generation-match": "7"}).status_code == 412
    complete = upload.complete(sorted(tags))
    assert texts(complete, "ETag")[0].endswith('-3"')
    whole = http.get(upload.url)
    assert whole.content == parts[1] + parts[2] + parts[3]
    assert (whole.headers["Content-Type"], whole.headers["x-goog-meta-k"]) == ("text/x", "v")
    assert complete.headers["x-goog-hash"] == whole.headers["x-goog-hash"]
    assert upload.complete(sorted(tags)).status_code == 404
    assert len(gcs.blob_files()) == 1


def test_an_upload_of_one_part_is_that_part(gcs: RunningGcs, http: requests.Session) -> None:
    upload = Upload(gcs, http, "a")
    assert upload.complete([(1, upload.put(1, b"data").headers["ETag"])]).status_code == 200
    assert http.get(upload.url).content == b"data"
    assert "md5Hash" not in http.get(f"{gcs.url}/storage/v1/b/{BUCKET}/o/a").json()


def test_an_aborted_upload_leaves_nothing(gcs: RunningGcs, http: requests.Session) -> None:
    upload = Upload(gcs, http, "a")
    upload.put(1, b"data")
    assert http.delete(f"{upload.url}?uploadId={upload.id}").status_code == 204
    assert http.delete(f"{upload.url}?uploadId={upload.id}").status_code == 404
    assert upload.put(2, b"data").status_code == 404
    assert gcs.blob_files() == []


def test_parts_that_do_not_fit_are_refused(gcs: RunningGcs, http: requests.Session) -> None:
    upload = Upload(gcs, http, "a")
    tag = upload.put(1, b"small").headers["ETag"]
    last = upload.put(2, b"last").headers["ETag"]
    for parts, code in [
        ([], "MalformedXML"),
        ([(1, "wrong")], "InvalidPart"),
        ([(9, tag)], "InvalidPart"),
        ([(2, last), (1, tag)], "InvalidPartOrder"),
        ([(1, tag), (1, tag)], "InvalidPartOrder"),
        ([(1, tag), (2, last)], "EntityTooSmall"),
    ]:
        answer = upload.complete(parts)
        assert (answer.status_code, f"<Code>{code}</Code>" in answer.text) == (400, True)
    assert upload.put(0, b"").status_code == 400
    assert upload.put(10_001, b"").status_code == 400
    assert upload.put(3, b"x", **{"Content-MD5": "AAAA"}).status_code == 400
