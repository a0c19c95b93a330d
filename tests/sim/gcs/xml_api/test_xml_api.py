"""The XML API over raw HTTP and signed URLs: listings, copies, compose, multipart and resumable uploads."""

from __future__ import annotations

import hashlib
import os
import re
from datetime import timedelta
from xml.etree import ElementTree

import pytest
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.cloud import storage
from google.oauth2 import service_account

from tests.sim.gcs.running_server import BUCKET, PROJECT, RunningGcs

MIB = 1 << 20


def texts(answer: requests.Response, name: str) -> list[str]:
    """Return the texts of all elements of a name, namespaces aside."""
    assert answer.status_code == 200, answer.text
    return [
        one.text or ""
        for one in ElementTree.fromstring(answer.content).iter()
        if one.tag.endswith(f"}}{name}")
    ]


@pytest.fixture
def names(bucket: storage.Bucket) -> list[str]:
    made = ["a", "b/1", "b/2", "c&<>", "d/x/1", "é"]
    for name in made:
        bucket.blob(name).upload_from_string(name)
    return made


@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize("version", ["1", "2"])
def test_a_listing_goes_on_where_its_page_ended(
    gcs: RunningGcs, http: requests.Session, names: list[str], size: int, version: str
) -> None:
    for delimiter in ("", "/"):
        query = {"max-keys": str(size), "delimiter": delimiter, "list-type": version}
        keys, prefixes = [], []
        for _ in range(20):
            page = http.get(f"{gcs.url}/{BUCKET}", params=query)
            keys += texts(page, "Key")
            prefixes += [text for text in texts(page, "Prefix") if text]
            if texts(page, "IsTruncated") == ["false"]:
                break
            if version == "2":
                query["continuation-token"] = texts(page, "NextContinuationToken")[0]
            else:
                query["marker"] = texts(page, "NextMarker")[0]
        expected = names if not delimiter else ["a", "c&<>", "é"]
        assert (keys, prefixes) == (expected, ["b/", "d/"] if delimiter else [])


def test_listings_tell_versions_and_encode_if_asked(
    gcs: RunningGcs, http: requests.Session, names: list[str]
) -> None:
    versions = http.get(f"{gcs.url}/{BUCKET}?versions&prefix=b/")
    assert texts(versions, "Key") == ["b/1", "b/2"]
    assert all(int(number) for number in texts(versions, "Generation"))
    assert "c%26%3C%3E" in texts(http.get(f"{gcs.url}/{BUCKET}?encoding-type=url"), "Key")
    assert texts(http.get(f"{gcs.url}/{BUCKET}?start-after=c&list-type=2"), "Key") == names[3:]


def test_buckets_by_the_xml_api(gcs: RunningGcs, http: requests.Session) -> None:
    project = {"x-goog-project-id": PROJECT}
    body = (
        "<CreateBucketConfiguration><LocationConstraint>EU</LocationConstraint></CreateBucketConfiguration>"
    )
    assert http.put(f"{gcs.url}/acme-xml", data=body, headers=project).status_code == 200
    assert texts(http.get(gcs.url, headers=project), "Name") == [BUCKET, "acme-xml"]
    assert http.get(f"{gcs.url}/acme-xml?location").text.endswith(">EU</LocationConstraint>")
    assert http.head(f"{gcs.url}/acme-xml").status_code == 200
    http.put(f"{gcs.url}/acme-xml/a", data=b"")
    full = http.delete(f"{gcs.url}/acme-xml")
    assert (full.status_code, "<Code>BucketNotEmpty</Code>" in full.text) == (409, True)
    http.delete(f"{gcs.url}/acme-xml/a")
    assert http.delete(f"{gcs.url}/acme-xml").status_code == 204
    assert http.head(f"{gcs.url}/acme-xml").status_code == 404


def test_copies_keep_or_replace_the_metadata(gcs: RunningGcs, http: requests.Session) -> None:
    source = f"{gcs.url}/{BUCKET}/dir/größe"
    http.put(source, data=b"data", headers={"Content-Type": "text/x", "x-goog-meta-k": "v"})
    generation = http.head(source).headers["x-goog-generation"]
    origin = {"x-goog-copy-source": f"/{BUCKET}/dir/gr%C3%B6%C3%9Fe"}
    answer = http.put(f"{gcs.url}/{BUCKET}/copy", headers=origin)
    assert texts(answer, "ETag") == [f'"{hashlib.md5(b"data").hexdigest()}"']
    assert http.get(f"{gcs.url}/{BUCKET}/copy").headers["x-goog-meta-k"] == "v"
    replacing = {**origin, "x-goog-metadata-directive": "REPLACE", "Content-Type": "text/y"}
    assert http.put(f"{gcs.url}/{BUCKET}/copy", headers=replacing).status_code == 200
    copied = http.get(f"{gcs.url}/{BUCKET}/copy")
    assert (copied.content, copied.headers["Content-Type"]) == (b"data", "text/y")
    assert "x-goog-meta-k" not in copied.headers
    for name, value, status in [
        ("x-goog-copy-source-generation", generation, 200),
        ("x-goog-copy-source-generation", "1", 404),
        ("x-goog-copy-source-if-generation-match", "1", 412),
        ("x-goog-if-generation-match", "0", 412),
    ]:
        assert http.put(f"{gcs.url}/{BUCKET}/copy", headers={**origin, name: value}).status_code == status


def test_composing_by_xml(gcs: RunningGcs, http: requests.Session) -> None:
    for name in "ab":
        http.put(f"{gcs.url}/{BUCKET}/{name}", data=name)
    components = "".join(f"<Component><Name>{name}</Name></Component>" for name in "aba")
    url = f"{gcs.url}/{BUCKET}/whole?compose"
    assert http.put(url, data=f"<ComposeRequest>{components}</ComposeRequest>").status_code == 200
    assert http.get(f"{gcs.url}/{BUCKET}/whole").content == b"aba"
    stale = "<Component><Name>a</Name><IfGenerationMatch>1</IfGenerationMatch></Component>"
    assert http.put(url, data=f"<ComposeRequest>{stale}</ComposeRequest>").status_code == 412
    for nonsense in (
        "",
        "<a/>",
        "<ComposeRequest/>",
        "<!DOCTYPE x><ComposeRequest/>",
        "\x00",
        "<ComposeRequest>",
    ):
        assert http.put(url, data=nonsense).status_code == 400


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
    done = upload.complete(sorted(tags))
    assert texts(done, "ETag")[0].endswith('-3"')
    whole = http.get(upload.url)
    assert whole.content == parts[1] + parts[2] + parts[3]
    assert (whole.headers["Content-Type"], whole.headers["x-goog-meta-k"]) == ("text/x", "v")
    assert done.headers["x-goog-hash"] == whole.headers["x-goog-hash"]
    assert upload.complete(sorted(tags)).status_code == 404
    assert len([path for path in (gcs.root / "blobs").rglob("*") if path.is_file()]) == 1


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
    assert [path for path in (gcs.root / "blobs").rglob("*") if path.is_file()] == []


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


def test_a_session_can_be_started_by_xml(gcs: RunningGcs, http: requests.Session) -> None:
    url = f"{gcs.url}/{BUCKET}/dir/a b"
    begun = http.post(url, headers={"x-goog-resumable": "start", "Content-Type": "text/x"})
    assert begun.status_code == 201
    uri = begun.headers["Location"]
    half = 256 << 10
    first = http.put(uri, data=b"x" * half, headers={"Content-Range": f"bytes 0-{half - 1}/*"})
    assert (first.status_code, first.headers["Range"]) == (308, f"bytes=0-{half - 1}")
    done = http.put(uri, data=b"y", headers={"Content-Range": f"bytes {half}-{half}/{half + 1}"})
    assert (done.status_code, done.content) == (200, b"")
    whole = http.get(url)
    assert (whole.content, whole.headers["Content-Type"]) == (b"x" * half + b"y", "text/x")


@pytest.fixture(scope="module")
def signer() -> service_account.Credentials:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    info = {
        "type": "service_account", "client_email": "robot@acme.iam.gserviceaccount.com",
        "private_key": pem.decode(), "token_uri": "https://oauth2.invalid/token", "project_id": PROJECT,
    }  # fmt: skip
    return service_account.Credentials.from_service_account_info(info)


@pytest.mark.parametrize("version", ["v2", "v4"])
def test_signed_urls_are_accepted_until_they_expire(
    gcs: RunningGcs,
    http: requests.Session,
    bucket: storage.Bucket,
    signer: service_account.Credentials,
    version: str,
) -> None:
    blob = bucket.blob("dir/a b")

    def signed(method: str, seconds: int = 60, **more: object) -> str:
        return blob.generate_signed_url(
            version=version,
            method=method,
            expiration=timedelta(seconds=seconds),
            credentials=signer,
            api_access_endpoint=gcs.url,
            **more,
        )

    assert http.put(signed("PUT"), data=b"data").status_code == 200
    assert http.get(signed("GET")).content == b"data"
    start = signed("RESUMABLE") if version == "v4" else signed("POST", headers={"x-goog-resumable": "start"})
    begun = http.post(start, headers={"x-goog-resumable": "start"})
    assert http.put(begun.headers["Location"], data=b"more").status_code == 200
    assert http.get(signed("GET")).content == b"more"
    old, new = {"v2": (r"\bExpires=\d+", "Expires=5"), "v4": ("Date=20", "Date=19")}[version]
    answer = http.get(re.sub(old, new, signed("GET")))
    assert (answer.status_code, "<Code>ExpiredToken</Code>" in answer.text) == (400, True)
    assert http.delete(signed("DELETE")).status_code == 204
