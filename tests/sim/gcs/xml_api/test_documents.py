"""The XML documents and headers of each operation, whole: as Google's reference of the XML API has them."""

from __future__ import annotations

import hashlib
import re
from typing import Any
from xml.etree import ElementTree

import pytest
import requests

from tests.sim.gcs.running_server import BUCKET, PROJECT, RunningGcs
from tpuctl.sim.token_server import project_number

GCS = "http://doc.s3.amazonaws.com/2006-03-01"
S3 = "http://s3.amazonaws.com/doc/2006-03-01/"
MD5 = hashlib.md5(b"data", usedforsecurity=False).hexdigest()
HASHES = "crc32c=rth90Q==,md5=jXd/OF09/siBXSD3SWAm3A=="
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
Tree = list[tuple[str, Any]]
SMALLEST = 5 << 20


class Xml:
    """The XML API over plain HTTP."""

    def __init__(self, gcs: RunningGcs, http: requests.Session) -> None:
        self.url, self._http = gcs.url, http

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._http.request(method, f"{self.url}/{path}", data=body, headers=named)

    def document(self, *request: Any, **headers: str) -> tuple[str, str, Tree]:
        """Return the namespace, the name and the elements of the document of an answer."""
        answer = self(*request, **headers)
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/xml; charset=utf-8")
        assert answer.text.startswith("<?xml version='1.0' encoding='UTF-8'?>")
        root = ElementTree.fromstring(answer.content)
        namespace, _, name = root.tag[1:].partition("}")
        return namespace, name, elements(root)


@pytest.fixture
def api(gcs: RunningGcs, http: requests.Session) -> Xml:
    return Xml(gcs, http)


def elements(root: ElementTree.Element) -> Tree:
    """Return the elements below one, by name; a time is `TIME`."""
    return [
        (
            child.tag.rpartition("}")[2],
            elements(child) if len(child) else TIME.sub("TIME", child.text or ""),
        )
        for child in root
    ]


def contents(name: str, generation: str) -> tuple[str, Tree]:
    return (
        "Contents",
        [
            ("Key", name),
            ("Generation", generation),
            ("MetaGeneration", "1"),
            ("LastModified", "TIME"),
            ("ETag", f'"{MD5}"'),
            ("Size", "4"),
            ("StorageClass", "STANDARD"),
        ],
    )


@pytest.fixture
def generations(api: Xml) -> dict[str, str]:
    """Some objects, each with its generation."""
    return {
        name: api("PUT", f"{BUCKET}/{name}", b"data").headers["X-Goog-Generation"]
        for name in ("a", "b b", "dir/a", "dir/b")
    }


def test_a_list_of_buckets(api: Xml) -> None:
    expected = (
        GCS,
        "ListAllMyBucketsResult",
        [
            ("Owner", [("ID", str(project_number(PROJECT)))]),
            ("Buckets", [("Bucket", [("Name", BUCKET), ("CreationDate", "TIME")])]),
        ],
    )
    assert api.document("GET", "", x_goog_project_id=PROJECT) == expected
    assert api.document("GET", f"?project={PROJECT}") == expected
    assert "<Message>Required parameter: x-goog-project-id</Message>" in api("GET", "").text


def test_a_list_of_objects(api: Xml, generations: dict[str, str]) -> None:
    every = [contents(name, generation) for name, generation in generations.items()]
    head = [("Name", BUCKET), ("Prefix", ""), ("Marker", "")]
    assert api.document("GET", BUCKET) == (
        GCS,
        "ListBucketResult",
        [*head, ("MaxKeys", "1000"), ("IsTruncated", "false"), *every],
    )
    assert api.document("GET", f"{BUCKET}?delimiter=/&max-keys=2&encoding-type=url") == (
        GCS,
        "ListBucketResult",
        [
            *head,
            ("Delimiter", "/"),
            ("MaxKeys", "2"),
            ("IsTruncated", "true"),
            ("NextMarker", "b%20b"),
            every[0],
            contents("b%20b", generations["b b"]),
        ],
    )
    assert api.document("GET", f"{BUCKET}?delimiter=/&prefix=d&marker=b") == (
        GCS,
        "ListBucketResult",
        [
            ("Name", BUCKET),
            ("Prefix", "d"),
            ("Marker", "b"),
            ("Delimiter", "/"),
            ("MaxKeys", "1000"),
            ("IsTruncated", "false"),
            ("CommonPrefixes", [("Prefix", "dir/")]),
        ],
    )


def test_a_list_of_objects_in_version_2(api: Xml, generations: dict[str, str]) -> None:
    _, name, document = api.document("GET", f"{BUCKET}?list-type=2&delimiter=/&max-keys=1")
    token = dict(document)["NextContinuationToken"]
    assert (name, document) == (
        "ListBucketResult",
        [
            ("Name", BUCKET),
            ("Prefix", ""),
            ("Delimiter", "/"),
            ("KeyCount", "1"),
            ("MaxKeys", "1"),
            ("IsTruncated", "true"),
            ("NextContinuationToken", token),
            contents("a", generations["a"]),
        ],
    )
    rest = dict(api.document("GET", f"{BUCKET}?list-type=2&delimiter=/&continuation-token={token}")[2])
    assert (rest["KeyCount"], rest["IsTruncated"], rest["CommonPrefixes"]) == (
        "2",
        "false",
        [("Prefix", "dir/")],
    )
    after = dict(api.document("GET", f"{BUCKET}?list-type=2&start-after=dir/a&marker=a")[2])
    assert (after["KeyCount"], after["Contents"]) == ("1", contents("dir/b", generations["dir/b"])[1])


@pytest.mark.parametrize(("text", "most"), [("0", "0"), ("1", "1"), ("1000", "1000"), ("1001", "1000")])
def test_a_page_has_up_to_a_thousand(api: Xml, generations: dict[str, str], text: str, most: str) -> None:
    document = api.document("GET", f"{BUCKET}?max-keys={text}")[2]
    assert dict(document)["MaxKeys"] == most
    assert sum(name == "Contents" for name, _ in document) == min(int(most), len(generations))


def test_a_list_of_versions(api: Xml) -> None:
    _, name, document = api.document("GET", f"{BUCKET}?versions")
    assert (name, document[-1]) == ("ListVersionsResult", ("IsTruncated", "false"))
    generation = api("PUT", f"{BUCKET}/a", b"data").headers["X-Goog-Generation"]
    document = api.document("GET", f"{BUCKET}?versions")[2]
    assert document[-1] == ("Version", contents("a", generation)[1])


def test_small_documents_of_a_bucket(api: Xml, gcs: RunningGcs, http: requests.Session) -> None:
    location = api("GET", f"{BUCKET}?location").text
    assert location.endswith(f"<LocationConstraint xmlns='{GCS}'>US</LocationConstraint>")
    assert api.document("GET", f"{BUCKET}?versioning") == (GCS, "VersioningConfiguration", [])
    http.patch(f"{gcs.url}/storage/v1/b/{BUCKET}", json={"versioning": {"enabled": True}})
    assert api.document("GET", f"{BUCKET}?versioning")[2] == [("Status", "Enabled")]
    assert api("HEAD", BUCKET).headers["X-Goog-Metageneration"] == "2"
    assert api("DELETE", BUCKET, x_goog_if_metageneration_match="1").status_code == 412


def test_a_bucket_is_made_with_a_place_and_a_class(api: Xml, gcs: RunningGcs, http: requests.Session) -> None:
    places = "<LocationConstraint> us-east1 </LocationConstraint><StorageClass>NEARLINE</StorageClass>"
    body = f"<CreateBucketConfiguration>{places}</CreateBucketConfiguration>"
    assert "Required parameter: x-goog-project-id" in api("PUT", "acme-new", body).text
    made = api("PUT", "acme-new", body, x_goog_project_id=PROJECT)
    assert (made.status_code, made.content) == (200, b"")
    resource = http.get(f"{gcs.url}/storage/v1/b/acme-new").json()
    assert (resource["location"], resource["storageClass"]) == ("US-EAST1", "NEARLINE")
    assert api("PUT", "acme-plain", x_goog_project_id=PROJECT).status_code == 200
    wrong = api("PUT", "acme-x", "<Other/>", x_goog_project_id=PROJECT)
    assert (wrong.status_code, "CreateBucketConfiguration was expected." in wrong.text) == (400, True)


UPLOADED = {
    "Content-Type": "text/x",
    "Content-Encoding": "identity",
    "Content-Disposition": "inline",
    "Content-Language": "en",
    "Cache-Control": "no-store",
    "X-Goog-Storage-Class": "COLDLINE",
    "X-Goog-Custom-Time": "2024-01-01T00:00:00Z",
    "X-Goog-Meta-Colour": "red",
}


def test_an_upload_has_the_fields_of_its_headers(api: Xml, gcs: RunningGcs, http: requests.Session) -> None:
    answer = http.put(f"{gcs.url}/{BUCKET}/a", data=b"data", headers=UPLOADED)
    resource = http.get(f"{gcs.url}/storage/v1/b/{BUCKET}/o/a").json()
    fields = {
        "contentType": "text/x",
        "contentEncoding": "identity",
        "contentDisposition": "inline",
        "contentLanguage": "en",
        "cacheControl": "no-store",
        "storageClass": "COLDLINE",
        "customTime": "2024-01-01T00:00:00Z",
        "metadata": {"colour": "red"},
    }
    assert {name: resource.get(name) for name in fields} == fields
    told = {
        name.title(): value
        for name, value in answer.headers.items()
        if name.lower().startswith(("x-goog", "etag"))
    }
    described = {
        "Etag": f'"{MD5}"',
        "X-Goog-Generation": resource["generation"],
        "X-Goog-Hash": HASHES,
        "X-Goog-Meta-Colour": "red",
        "X-Goog-Metageneration": "1",
        "X-Goog-Storage-Class": "COLDLINE",
        "X-Goog-Stored-Content-Encoding": "identity",
        "X-Goog-Stored-Content-Length": "4",
    }
    assert told == described
    read = {name.title(): value for name, value in api("GET", f"{BUCKET}/a").headers.items()}
    common = ("Content-Type", "Content-Encoding", "Content-Disposition", "Content-Language", "Cache-Control")
    expected = (
        described
        | {name: UPLOADED[name] for name in common}
        | {"Accept-Ranges": "bytes", "Content-Length": "4"}
    )
    assert {name: read.get(name) for name in expected} == expected
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", read["Last-Modified"])


def test_an_object_without_headers_has_defaults(api: Xml) -> None:
    api("PUT", f"{BUCKET}/a", b"data")
    headers = api("GET", f"{BUCKET}/a").headers
    expected = {
        "Cache-Control": "private, max-age=0",
        "X-Goog-Storage-Class": "STANDARD",
        "X-Goog-Stored-Content-Encoding": "identity",
    }
    assert {name: headers.get(name) for name in expected} == expected
    assert "Content-Disposition" not in headers


def test_a_copy(api: Xml, generations: dict[str, str], gcs: RunningGcs, http: requests.Session) -> None:
    source = f"{BUCKET}/dir/a"
    http.put(f"{gcs.url}/{BUCKET}/dir/a", data=b"data", headers={"Content-Type": "text/x"})
    document = api.document("PUT", f"{BUCKET}/copy", x_goog_copy_source=source)
    assert document == (GCS, "CopyObjectResult", [("LastModified", "TIME"), ("ETag", f'"{MD5}"')])
    assert api("GET", f"{BUCKET}/copy").headers["Content-Type"] == "text/x"
    replacing = {"x_goog_copy_source": source, "x_goog_metadata_directive": "replace"}
    answer = api("PUT", f"{BUCKET}/copy", **replacing)
    read = api("GET", f"{BUCKET}/copy").headers
    assert read["Content-Type"] == "application/octet-stream"
    assert (answer.headers["X-Goog-Generation"], answer.headers["X-Goog-Metageneration"]) == (
        read["X-Goog-Generation"],
        "1",
    )


def test_composing_with_generations_and_conditions(api: Xml, generations: dict[str, str]) -> None:
    def status(component: str) -> int:
        body = f"<ComposeRequest><Component>{component}</Component></ComposeRequest>"
        return api("PUT", f"{BUCKET}/whole?compose", body, Content_Type="text/y").status_code

    generation = generations["a"]
    assert status(f"<Name>a</Name><Generation>{generation}</Generation>") == 200
    whole = api("GET", f"{BUCKET}/whole").headers
    assert (whole["Content-Type"], whole["X-Goog-Hash"]) == ("text/y", "crc32c=rth90Q==")
    assert status("<Name>a</Name><Generation>1</Generation>") == 404
    assert status(f"<Name>a</Name><IfGenerationMatch>{generation}</IfGenerationMatch>") == 200
    assert status("<Name>a</Name><IfMetagenerationMatch>1</IfMetagenerationMatch>") == 200
    assert status("<Name>a</Name><IfMetagenerationMatch>2</IfMetagenerationMatch>") == 412
    assert status("<Generation>1</Generation>") == 400


def test_the_start_of_a_resumable_upload(api: Xml) -> None:
    begun = api("POST", f"{BUCKET}/dir/a b", x_goog_resumable="START")
    session = begun.headers["X-GUploader-UploadID"]
    assert begun.status_code == 201
    assert begun.headers["Location"] == f"{api.url}/{BUCKET}/dir/a%20b?upload_id={session}"
    other = api("POST", f"{BUCKET}/a", x_goog_resumable="begin")
    assert (other.status_code, "Invalid value for header x-goog-resumable." in other.text) == (400, True)
    done = api("PUT", f"{BUCKET}/dir/a b?upload_id={session}", b"data")
    assert (done.status_code, done.content, done.headers["X-GUploader-UploadID"]) == (200, b"", session)


def part(number: int, size: int, tag: str) -> tuple[str, Tree]:
    return (
        "Part",
        [("PartNumber", str(number)), ("LastModified", "TIME"), ("ETag", tag), ("Size", str(size))],
    )


def test_a_multipart_upload(api: Xml) -> None:
    place = f"{BUCKET}/dir/a b"
    namespace, name, document = api.document("POST", f"{place}?uploads")
    upload = dict(document)["UploadId"]
    assert (namespace, name, document) == (
        S3,
        "InitiateMultipartUploadResult",
        [("Bucket", BUCKET), ("Key", "dir/a b"), ("UploadId", upload)],
    )
    assert api.document("GET", f"{BUCKET}?uploads") == (
        S3,
        "ListMultipartUploadsResult",
        [
            ("Bucket", BUCKET),
            ("IsTruncated", "false"),
            ("Upload", [("Key", "dir/a b"), ("UploadId", upload), ("Initiated", "TIME")]),
        ],
    )
    assert len(api.document("GET", f"{BUCKET}?uploads&prefix=dir/")[2]) == 3
    assert len(api.document("GET", f"{BUCKET}?uploads&prefix=x")[2]) == 2
    bodies = {1: bytes(SMALLEST), 2: b"data"}
    sent = {
        number: api("PUT", f"{place}?partNumber={number}&uploadId={upload}", body)
        for number, body in bodies.items()
    }
    tags = {number: answer.headers["ETag"] for number, answer in sent.items()}
    assert (tags[2], sent[2].headers["X-Goog-Hash"]) == (f'"{MD5}"', HASHES)
    head = [("Bucket", BUCKET), ("Key", "dir/a b"), ("UploadId", upload)]
    assert api.document("GET", f"{place}?uploadId={upload}&max-parts=1") == (
        S3,
        "ListPartsResult",
        [
            *head,
            ("PartNumberMarker", "0"),
            ("NextPartNumberMarker", "1"),
            ("MaxParts", "1"),
            ("IsTruncated", "true"),
            part(1, SMALLEST, tags[1]),
        ],
    )
    assert api.document("GET", f"{place}?uploadId={upload}&part-number-marker=1&max-parts=1001")[2] == [
        *head,
        ("PartNumberMarker", "1"),
        ("NextPartNumberMarker", "2"),
        ("MaxParts", "1000"),
        ("IsTruncated", "false"),
        part(2, 4, tags[2]),
    ]
    beyond = dict(api.document("GET", f"{place}?uploadId={upload}&part-number-marker=2")[2])
    assert (beyond["NextPartNumberMarker"], beyond["MaxParts"]) == ("2", "1000")
    listed = "".join(
        f"<Part><PartNumber>{n}</PartNumber><ETag>{tag}</ETag></Part>" for n, tag in tags.items()
    )
    body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>"
    digests = b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in bodies.values())
    answer = api("POST", f"{place}?uploadId={upload}", body)
    root = ElementTree.fromstring(answer.content)
    assert (root.tag, elements(root)) == (
        f"{{{S3}}}CompleteMultipartUploadResult",
        [
            ("Location", f"{api.url}/{BUCKET}/dir/a%20b"),
            ("Bucket", BUCKET),
            ("Key", "dir/a b"),
            ("ETag", f'"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-2"'),
        ],
    )
    read = api("HEAD", place).headers
    assert (answer.headers["X-Goog-Generation"], answer.headers["X-Goog-Hash"]) == (
        read["X-Goog-Generation"],
        read["X-Goog-Hash"],
    )


@pytest.mark.parametrize(
    ("number", "status"), [("0", 400), ("1", 200), ("10000", 200), ("10001", 400), ("x", 400)]
)
def test_parts_are_numbered_from_1_to_10000(api: Xml, number: str, status: int) -> None:
    upload = dict(api.document("POST", f"{BUCKET}/a?uploads")[2])["UploadId"]
    assert api("PUT", f"{BUCKET}/a?partNumber={number}&uploadId={upload}", b"").status_code == status


def test_every_part_but_the_last_has_five_mebibytes(api: Xml) -> None:
    upload = dict(api.document("POST", f"{BUCKET}/a?uploads")[2])["UploadId"]
    place = f"{BUCKET}/a?uploadId={upload}"
    tags = [
        api("PUT", f"{place}&partNumber={n}", bytes(size)).headers["ETag"]
        for n, size in ((1, SMALLEST - 1), (2, 1))
    ]
    listed = "".join(
        f"<Part><PartNumber>{n}</PartNumber><ETag>{tag}</ETag></Part>" for n, tag in enumerate(tags, 1)
    )
    body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>"
    assert "<Code>EntityTooSmall</Code>" in api("POST", place, body).text
