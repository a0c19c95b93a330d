"""The JSON API's operations: projections, ACLs, rewrites in steps, pages, moves, etags."""

from __future__ import annotations

import base64
import json

import requests
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, PROJECT, RunningGcs

MIB = 1 << 20


def test_a_rewrite_continues_by_its_token(
    gcs: RunningGcs, http: requests.Session, bucket: storage.Bucket
) -> None:
    data = bytes(range(256)) * (5 * MIB // 512)
    bucket.blob("a").upload_from_string(data)
    url = f"{gcs.url}/storage/v1/b/{BUCKET}/o/a/rewriteTo/b/{BUCKET}/o/copy"
    sizes, query = [], {"maxBytesRewrittenPerCall": str(MIB)}
    while True:
        answer = http.post(url, params=query).json()
        sizes.append(int(answer["totalBytesRewritten"]))
        if answer["done"]:
            break
        assert not bucket.blob("copy").exists()
        query["rewriteToken"] = answer["rewriteToken"]
    assert sizes == [MIB, 2 * MIB, len(data)]
    assert bucket.blob("copy").download_as_bytes() == data
    for wrong in ({"maxBytesRewrittenPerCall": "5"}, {"rewriteToken": "x"}):
        assert http.post(url, params=wrong).status_code == 400
    other = url.replace("/o/copy", "/o/other")
    assert http.post(other, params=query).status_code == 400
    bucket.blob("a").upload_from_string(b"new")
    assert http.post(url, params=query).status_code == 404


def test_null_is_a_resource_that_is_left_out_as_by_clients_in_go(
    gcs: RunningGcs, http: requests.Session, bucket: storage.Bucket
) -> None:
    bucket.blob("a").upload_from_string(b"data", content_type="text/x")
    for method in ("rewriteTo", "copyTo"):
        url = f"{gcs.url}/storage/v1/b/{BUCKET}/o/a/{method}/b/{BUCKET}/o/{method}"
        assert http.post(url, data=b"null\n", headers={"Content-Type": "application/json"}).status_code == 200
        assert bucket.get_blob(method).content_type == "text/x"


def test_buckets_come_in_pages(client: storage.Client) -> None:
    names = sorted(["acme-data", *(f"acme-{number}" for number in range(5))])
    for name in names[:-1]:
        client.create_bucket(name)
    for size in (1, 2, 1000):
        listing = client.list_buckets(page_size=size)
        pages = [[bucket.name for bucket in page] for page in listing.pages]
        assert [name for page in pages for name in page] == names
        assert max(len(page) for page in pages) <= size
    assert [bucket.name for bucket in client.list_buckets(prefix="acme-d", page_size=1)] == ["acme-data"]


def test_a_move_deletes_the_source_unless_a_condition_fails(
    gcs: RunningGcs, http: requests.Session, bucket: storage.Bucket
) -> None:
    bucket.blob("a").upload_from_string(b"1")
    bucket.blob("b").upload_from_string(b"2")
    url = f"{gcs.url}/storage/v1/b/{BUCKET}/o/a/moveTo/o/b"
    for condition in ("ifGenerationMatch=0", "ifSourceGenerationMatch=1", "ifSourceMetagenerationMatch=9"):
        assert http.post(f"{url}?{condition}").status_code == 412
    assert http.post(url).status_code == 200
    assert [(blob.name, blob.size) for blob in bucket.list_blobs()] == [("b", 1)]
    assert bucket.blob("b").download_as_bytes() == b"1"


def test_a_project_has_a_service_account(client: storage.Client) -> None:
    assert client.get_service_account_email(project=PROJECT).endswith(".iam.gserviceaccount.com")


def test_entity_tags_are_those_of_the_real_service(bucket: storage.Bucket) -> None:
    bucket.blob("a").upload_from_string(b"")
    tag = base64.b64decode(bucket.get_blob("a").etag)
    assert (tag[:1], tag[-2:]) == (b"\x08", b"\x10\x01")
    assert json.loads(json.dumps(bucket.get_blob("a")._properties))["metageneration"] == "1"
