"""The XML API over raw HTTP: buckets, listings, copies, compose, the start of resumable uploads."""

from __future__ import annotations

import hashlib
from xml.etree import ElementTree

import pytest
import requests
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, PROJECT, RunningGcs


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
