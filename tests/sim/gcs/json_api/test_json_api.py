"""The JSON API's finer points: partial responses, projections, ACLs, batches, rewrites in steps, pages."""

from __future__ import annotations

import base64
import json

import pytest
import requests
from google.api_core import exceptions
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, PROJECT, RunningGcs
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.json_api.fields_mask import select

MIB = 1 << 20
RESOURCE = {
    "kind": "k",
    "next": "n",
    "items": [{"name": "a", "acl": [{"role": "R", "entity": "e"}]}, {"name": "b"}],
}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("kind", {"kind": "k"}),
        ("kind,next", {"kind": "k", "next": "n"}),
        ("items/name", {"items": [{"name": "a"}, {"name": "b"}]}),
        ("items(name)", {"items": [{"name": "a"}, {"name": "b"}]}),
        ("items(name,acl/role),next", {
            "next": "n", "items": [{"name": "a", "acl": [{"role": "R"}]}, {"name": "b"}],
        }),
        ("items(acl(entity))", {"items": [{"acl": [{"entity": "e"}]}, {}]}),
        ("items/*", RESOURCE | {}),
        ("*", RESOURCE),
        ("items/name,items", {"items": RESOURCE["items"]}),
        ("nothing", {}),
        ("kind/below", {"kind": "k"}),
    ],
)  # fmt: skip
def test_a_selection_picks_just_that(fields: str, expected: dict[str, object]) -> None:
    expected = {"items": RESOURCE["items"]} if fields == "items/*" else expected
    assert select(RESOURCE, fields) == expected


@pytest.mark.parametrize(
    "fields", ["", ",", "a,", "a(", "a(b", "a)", "a/", "a(b))", "()", "(" * 5000, "a/" * 5000]
)
def test_a_selection_that_cannot_be_read_is_refused(fields: str) -> None:
    with pytest.raises(GcsError, match="Invalid field selection"):
        select(RESOURCE, fields)


def test_fields_hold_for_every_answer(gcs: RunningGcs, http: requests.Session) -> None:
    base = f"{gcs.url}/storage/v1/b/{BUCKET}/o"
    upload = f"{gcs.url}/upload/storage/v1/b/{BUCKET}/o"
    made = http.post(upload, params={"name": "a", "uploadType": "media", "fields": "name,size"}, data=b"1")
    assert made.json() == {"name": "a", "size": "1"}
    assert http.get(f"{base}/a", params={"fields": "name"}).json() == {"name": "a"}
    for name in ("b", "c/d"):
        http.post(upload, params={"name": name}, data=b"")
    listed = http.get(base, params={"fields": "items(name),nextPageToken", "maxResults": 1}).json()
    assert (listed["items"], set(listed)) == ([{"name": "a"}], {"items", "nextPageToken"})
    refused = http.get(base, params={"fields": "items("})
    assert (refused.status_code, refused.json()["error"]["errors"][0]["reason"]) == (400, "invalidParameter")


def test_the_client_lists_with_fields(client: storage.Client, bucket: storage.Bucket) -> None:
    for number in range(3):
        bucket.blob(f"a/{number}").upload_from_string(b"x")
    listing = bucket.list_blobs(fields="items(name,size),nextPageToken,prefixes", page_size=2)
    assert [(blob.name, blob.size, blob.generation) for blob in listing] == [
        (f"a/{number}", 1, None) for number in range(3)
    ]


def test_a_full_projection_shows_lists_and_owners(client: storage.Client, bucket: storage.Bucket) -> None:
    bucket.blob("a").upload_from_string(b"")
    assert "acl" not in bucket.get_blob("a")._properties
    bucket.reload(projection="full")
    assert {entry["role"] for entry in bucket._properties["acl"]} == {"OWNER", "READER"}
    (shown,) = list(bucket.list_blobs(projection="full"))
    assert shown._properties["owner"]["entity"].startswith("project-owners-")
    with pytest.raises(exceptions.BadRequest, match="projection"):
        bucket.reload(projection="most")


def test_access_control_lists_are_kept(client: storage.Client, bucket: storage.Bucket) -> None:
    blob = bucket.blob("a")
    blob.upload_from_string(b"", predefined_acl="publicRead")
    blob.acl.reload()
    assert blob.acl.all().get_roles() == {"READER"}
    blob.acl.user("ann@example.com").grant_owner()
    blob.acl.save()
    blob.acl.reload()
    assert {"entity": "user-ann@example.com", "role": "OWNER"} in list(blob.acl)
    bucket.default_object_acl.reload()
    bucket.default_object_acl.group("team@example.com").grant_read()
    bucket.default_object_acl.save()
    bucket.blob("b").upload_from_string(b"")
    entities = {entry["entity"] for entry in bucket.blob("b").acl}
    assert "group-team@example.com" in entities
    bucket.iam_configuration.uniform_bucket_level_access_enabled = True
    bucket.patch()
    with pytest.raises(exceptions.BadRequest, match="uniform bucket-level access"):
        blob.acl.reload()


def test_entries_of_a_list_come_and_go_one_by_one(gcs: RunningGcs, http: requests.Session) -> None:
    for path in (f"b/{BUCKET}/acl", f"b/{BUCKET}/defaultObjectAcl", f"b/{BUCKET}/o/a/acl"):
        url = f"{gcs.url}/storage/v1/{path}"
        http.put(f"{gcs.url}/{BUCKET}/a", data=b"")
        entry = {"entity": "user-ann", "role": "READER"}
        assert entry.items() <= http.post(url, json=entry).json().items()
        assert http.patch(f"{url}/user-ann", json={"role": "OWNER"}).json()["role"] == "OWNER"
        assert http.get(f"{url}/user-ann").json()["role"] == "OWNER"
        assert len(http.get(url).json()["items"]) == 4
        assert http.delete(f"{url}/user-ann").status_code == 204
        assert http.get(f"{url}/user-ann").status_code == 404
        for nonsense in (
            {"role": "READER"},
            {"entity": "user-x", "role": "KING"},
            {"entity": 5, "role": "OWNER"},
        ):
            assert http.post(url, json=nonsense).status_code == 400


def test_a_batch_does_each_call_for_itself(client: storage.Client, bucket: storage.Bucket) -> None:
    for number in range(5):
        bucket.blob(f"a{number}").upload_from_string(b"x")
    with client.batch():
        for number in range(3):
            blob = bucket.blob(f"a{number}")
            blob.metadata = {"größe": "\U0001f600"}
            blob.patch()
    assert bucket.get_blob("a1").metadata == {"größe": "\U0001f600"}
    batch = client.batch()
    client._push_batch(batch)
    for name in ("a0", "nothing", "a1"):
        bucket.delete_blob(name)
    client._pop_batch()
    with pytest.raises(exceptions.NotFound):
        batch.finish()
    assert [blob.name for blob in bucket.list_blobs()] == ["a2", "a3", "a4"]


@pytest.mark.parametrize(
    ("call", "status"),
    [
        ("GET /storage/v1/b/acme-data HTTP/1.1", 200),
        ("GET http://other.example/storage/v1/b/acme-data HTTP/1.1", 200),
        ("GET /storage/v1/b/no-such-bucket HTTP/1.1", 404),
        ("DELETE /storage/v1/b HTTP/1.1", 405),
        ("GET /storage/v1/b/acme-data/o/a?alt=media HTTP/1.1", 400),
        ("POST /upload/storage/v1/b/acme-data/o?name=a HTTP/1.1", 400),
        ("nonsense", 400),
        ("", 400),
        ("GET http://[ HTTP/1.1", 400),
        ("GET /storage/v1/b/%ff HTTP/1.1", 400),
    ],
)
def test_a_call_in_a_batch_gets_its_own_status(
    gcs: RunningGcs, http: requests.Session, call: str, status: int
) -> None:
    body = f"--b\r\nContent-Type: application/http\r\nContent-ID: <x+1>\r\n\r\n{call}\r\n\r\n\r\n--b--"
    headers = {"Content-Type": "multipart/mixed; boundary=b"}
    answer = http.post(f"{gcs.url}/batch/storage/v1", data=body.encode(), headers=headers)
    assert answer.status_code == 200
    assert f"HTTP/1.1 {status} " in answer.text
    assert "Content-ID: <response-x+1>" in answer.text


def test_a_batch_that_cannot_be_read_is_refused(gcs: RunningGcs, http: requests.Session) -> None:
    url, mixed = f"{gcs.url}/batch/storage/v1", {"Content-Type": "multipart/mixed; boundary=b"}
    part = "--b\r\nContent-Type: application/http\r\n\r\nGET /storage/v1/b/acme-data HTTP/1.1\r\n\r\n"
    assert http.post(url, data="x").status_code == 400
    assert http.post(url, data="x", headers=mixed).status_code == 400
    assert http.post(url, data=part * 101 + "--b--", headers=mixed).status_code == 400
    assert http.get(url).status_code == 405


def test_a_rewrite_goes_on_by_its_token(
    gcs: RunningGcs, http: requests.Session, bucket: storage.Bucket
) -> None:
    data = bytes(range(256)) * (5 * MIB // 512)
    bucket.blob("a").upload_from_string(data)
    url = f"{gcs.url}/storage/v1/b/{BUCKET}/o/a/rewriteTo/b/{BUCKET}/o/copy"
    done, query = [], {"maxBytesRewrittenPerCall": str(MIB)}
    while True:
        answer = http.post(url, params=query).json()
        done.append(int(answer["totalBytesRewritten"]))
        if answer["done"]:
            break
        assert not bucket.blob("copy").exists()
        query["rewriteToken"] = answer["rewriteToken"]
    assert done == [MIB, 2 * MIB, len(data)]
    assert bucket.blob("copy").download_as_bytes() == data
    for wrong in ({"maxBytesRewrittenPerCall": "5"}, {"rewriteToken": "x"}):
        assert http.post(url, params=wrong).status_code == 400
    other = url.replace("/o/copy", "/o/other")
    assert http.post(other, params=query).status_code == 400
    bucket.blob("a").upload_from_string(b"new")
    assert http.post(url, params=query).status_code == 404


def test_buckets_come_in_pages(client: storage.Client) -> None:
    names = sorted(["acme-data", *(f"acme-{number}" for number in range(5))])
    for name in names[:-1]:
        client.create_bucket(name)
    for size in (1, 2, 1000):
        listing = client.list_buckets(page_size=size)
        pages = [[found.name for found in page] for page in listing.pages]
        assert [name for page in pages for name in page] == names
        assert max(len(page) for page in pages) <= size
    assert [found.name for found in client.list_buckets(prefix="acme-d", page_size=1)] == ["acme-data"]


def test_a_moved_object_is_gone_from_its_old_place_unless_a_condition_fails(
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
