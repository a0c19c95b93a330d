"""The XML API over raw HTTP: buckets, listings, copies, multipart uploads, and the methods of a request."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping
from contextlib import closing
from contextvars import copy_context
from pathlib import Path
from xml.etree import ElementTree

import pytest
import requests
from aiohttp.test_utils import make_mocked_request
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, PROJECT, RunningGcs
from tpuctl.sim.events import Events
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.uploads import ResumableUploads
from tpuctl.sim.gcs.xml_api.routes import XmlApi
from tpuctl.sim.iam.callers import Access, Caller, set_caller
from tpuctl.sim.iam.enforcement import Policies


def texts(answer: requests.Response, name: str) -> list[str]:
    """Return the texts of all elements of a name, namespaces aside."""
    assert answer.status_code == 200, answer.text
    return [
        element.text or ""
        for element in ElementTree.fromstring(answer.content).iter()
        if element.tag.endswith(f"}}{name}")
    ]


@pytest.mark.parametrize("verb", ["GET", "HEAD", "DELETE"])
def test_a_generation_in_the_query_is_the_object_or_none(
    gcs: RunningGcs, http: requests.Session, bucket: storage.Bucket, verb: str
) -> None:
    bucket.blob("a").upload_from_string("data")
    place = f"{gcs.url}/{BUCKET}/a?generation="
    generation = http.head(f"{gcs.url}/{BUCKET}/a").headers["x-goog-generation"]
    refused = http.request(verb, f"{place}latest")
    assert refused.status_code == 400
    assert verb == "HEAD" or "Invalid value for parameter generation: latest" in refused.text
    assert http.request(verb, f"{place}1").status_code == 404
    assert http.request(verb, f"{place}{generation}").status_code in (200, 204)


@pytest.fixture
def names(bucket: storage.Bucket) -> list[str]:
    names = ["a", "b/1", "b/2", "c&<>", "d/x/1", "é"]
    for name in names:
        bucket.blob(name).upload_from_string(name)
    return names


@pytest.mark.daily
@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize("version", ["1", "2"])
def test_a_listing_continues_where_its_page_ended(
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


def test_listings_include_versions_and_encode_names(
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


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp037"])
def test_a_document_type_is_refused_in_every_encoding(
    gcs: RunningGcs, http: requests.Session, encoding: str
) -> None:
    """Its entities could grow without bounds; the same document without one is composed."""
    http.put(f"{gcs.url}/{BUCKET}/a", data="a")
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    rest = "<ComposeRequest><Component><Name>{}</Name></Component></ComposeRequest>"
    entity = '<!DOCTYPE x [<!ENTITY a "a">]>' + rest.format("&a;")

    def status(text: str) -> int:
        in_encoding = encoding != "utf-16"
        body = head.encode() + text.encode(encoding) if in_encoding else (head + text).encode(encoding)
        return http.put(f"{gcs.url}/{BUCKET}/whole?compose", data=body).status_code

    assert status(entity) == 400
    if encoding != "cp037":  # of which Google need not know
        assert status(rest.format("a")) == 200


def test_a_session_can_be_started_by_xml(gcs: RunningGcs, http: requests.Session) -> None:
    url = f"{gcs.url}/{BUCKET}/dir/a b"
    begun = http.post(url, headers={"x-goog-resumable": "start", "Content-Type": "text/x"})
    assert begun.status_code == 201
    uri = begun.headers["Location"]
    half = 256 << 10
    first = http.put(uri, data=b"x" * half, headers={"Content-Range": f"bytes 0-{half - 1}/*"})
    assert (first.status_code, first.headers["Range"]) == (308, f"bytes=0-{half - 1}")
    last = http.put(uri, data=b"y", headers={"Content-Range": f"bytes {half}-{half}/{half + 1}"})
    assert (last.status_code, last.content) == (200, b"")
    whole = http.get(url)
    assert (whole.content, whole.headers["Content-Type"]) == (b"x" * half + b"y", "text/x")


MIB = 1 << 20


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


@pytest.mark.daily
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


OTHER = "acme-other"
COPY = {"x-goog-copy-source": f"/{OTHER}/from/there"}
PROJECT_HEADER = {"x-goog-project-id": PROJECT}
Headers = Mapping[str, str]
Call = tuple[str, str]


@pytest.fixture
def upload(gcs: RunningGcs, http: requests.Session) -> str:
    """The id of a multipart upload of `a`; the source of a copy is there."""
    gcs.server.store.ensure_bucket(OTHER, PROJECT)
    http.put(f"{gcs.url}/{OTHER}/from/there", data=b"data")
    http.put(f"{gcs.url}/{BUCKET}/a", data=b"data")
    started = http.post(f"{gcs.url}/{BUCKET}/a?uploads").text
    return started.partition("<UploadId>")[2].partition("<")[0]


@pytest.mark.parametrize(
    ("verb", "path", "headers", "calls"),
    [
        ("GET", "", PROJECT_HEADER, [("buckets.list", PROJECT)]),
        ("PUT", "acme-new", PROJECT_HEADER, [("buckets.create", "acme-new")]),
        ("HEAD", OTHER, {}, [("buckets.get", OTHER)]),
        ("DELETE", OTHER, {}, [("buckets.delete", OTHER)]),
        ("GET", BUCKET, {}, [("objects.list", BUCKET)]),
        ("GET", f"{BUCKET}?versions", {}, [("objects.list", BUCKET)]),
        ("GET", f"{BUCKET}?uploads", {}, [("multipartUploads.list", BUCKET)]),
        ("GET", f"{BUCKET}/a", {}, [("objects.get", f"{BUCKET}/a")]),
        ("HEAD", f"{BUCKET}/a", {}, [("objects.get", f"{BUCKET}/a")]),
        ("PUT", f"{BUCKET}/b", {}, [("objects.create", f"{BUCKET}/b")]),
        ("PUT", f"{BUCKET}/b", COPY, [
            ("objects.get", f"{OTHER}/from/there"), ("objects.create", f"{BUCKET}/b"),
        ]),
        ("PUT", f"{BUCKET}/b?compose", {}, [("objects.create", f"{BUCKET}/b")]),
        ("POST", f"{BUCKET}/b", {"x-goog-resumable": "start"}, [("objects.create", f"{BUCKET}/b")]),
        ("DELETE", f"{BUCKET}/a", {}, [("objects.delete", f"{BUCKET}/a")]),
        ("POST", f"{BUCKET}/b?uploads", {}, [("multipartUploads.create", f"{BUCKET}/b")]),
        ("PUT", f"{BUCKET}/a?partNumber=1&uploadId=ID", {}, [("objects.create", f"{BUCKET}/a")]),
        ("POST", f"{BUCKET}/a?uploadId=ID", {}, [("objects.create", f"{BUCKET}/a")]),
        ("GET", f"{BUCKET}/a?uploadId=ID", {}, [("multipartUploads.listParts", f"{BUCKET}/a")]),
        ("DELETE", f"{BUCKET}/a?uploadId=ID", {}, [("multipartUploads.abort", f"{BUCKET}/a")]),
    ],
)  # fmt: skip
def test_a_request_is_recorded_as_methods_on_resources(
    gcs: RunningGcs, http: requests.Session, upload: str, verb: str, path: str, headers: Headers,
    calls: list[Call],
) -> None:  # fmt: skip
    gcs.faults.events = events = Events()
    body = b"" if verb in ("PUT", "POST") else None
    http.request(verb, f"{gcs.url}/{path.replace('ID', upload)}", headers=headers, data=body)
    assert [(event.what, event.resource) for event in events.find(kind="request")] == calls


@pytest.mark.parametrize(
    "name",
    ["acl", "billing", "cors", "encryption", "lifecycle", "logging", "policy", "retention", "storageClass",
     "tagging", "website"],
)  # fmt: skip
@pytest.mark.parametrize("path", [BUCKET, f"{BUCKET}/a"])
def test_what_the_simulator_has_not_is_said_and_changes_nothing(
    gcs: RunningGcs, http: requests.Session, upload: str, path: str, name: str
) -> None:
    """A request for the ACL of an object is not one for its bytes, nor does it replace them."""
    for verb in ("GET", "PUT", "DELETE"):
        answer = http.request(verb, f"{gcs.url}/{path}?{name}", data=b"other" if verb == "PUT" else None)
        assert (answer.status_code, "use the JSON API" in answer.text) == (501, True)
    assert http.get(f"{gcs.url}/{BUCKET}/a").content == b"data"


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("PUT", f"{BUCKET}?versions"), ("DELETE", f"{BUCKET}?uploads"), ("PUT", f"{BUCKET}?location"),
        ("PUT", f"{BUCKET}?versioning"), ("GET", f"{BUCKET}/a?compose"), ("GET", f"{BUCKET}/a?uploads"),
        ("POST", f"{BUCKET}/a"), ("POST", BUCKET), ("DELETE", ""),
    ],
)  # fmt: skip
def test_a_verb_that_a_resource_does_not_have_is_refused_and_changes_nothing(
    gcs: RunningGcs, http: requests.Session, upload: str, verb: str, path: str
) -> None:
    assert http.request(verb, f"{gcs.url}/{path}").status_code == 405
    assert http.get(f"{gcs.url}/{BUCKET}/a").content == b"data"


@pytest.mark.parametrize("name", ["location", "versioning"])
def test_who_may_not_see_a_bucket_does_not_see_its_settings(tmp_path: Path, name: str) -> None:
    """https://cloud.google.com/storage/docs/access-control/iam-xml"""
    faults = FaultRegistry()
    with closing(Store(tmp_path)) as store:
        store.create_bucket(BUCKET, PROJECT)
        api = XmlApi(store, faults, ResumableUploads(store, faults), None)
        access = Access(Policies(), lambda bucket: (PROJECT, {}))

        def ask(caller: Caller | None) -> int:
            set_caller(caller)
            request = make_mocked_request("GET", f"/{BUCKET}?{name}")
            return asyncio.run(api.handle(request)).status

        assert copy_context().run(ask, None) == 200
        with pytest.raises(GcsError, match=r"does not have storage\.buckets\.get access") as raised:
            copy_context().run(ask, Caller("user:ada@example.com", access))
    assert raised.value.status == 403
