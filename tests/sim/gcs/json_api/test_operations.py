"""The operations of the JSON API, access control lists, and which methods and permissions a call needs."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests
from google.api_core import exceptions
from google.cloud import storage
from multidict import MultiDict

from tests.sim.gcs.running_server import BUCKET, PROJECT, RunningGcs
from tpuctl.sim.events import Events
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.json_api.routes import JsonApi
from tpuctl.sim.gcs.rules import Preconditions
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.iam.callers import Access, Caller, set_caller
from tpuctl.sim.iam.enforcement import Policies, Resource

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


WEEK = 7 * 86400
DATA, OBJECT, PARENT = "projects/_/buckets/data", "projects/_/buckets/data/objects/a", "projects/p"
OTHER = "projects/_/buckets/other/objects/dir/a"
Permission = tuple[str, str]


@dataclass(frozen=True)
class Asked(Access):
    """Allows everything, and notes which permissions are asked for, on what."""

    noted: list[Permission] = field(default_factory=list)

    def allows(self, member: str, permission: str, resource: Resource) -> bool:
        self.noted.append((permission.removeprefix("storage."), resource.name))
        return True


class Api:
    """The JSON API without HTTP, with one bucket, `data`, that has an object, `a`, live and soft-deleted."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.faults = FaultRegistry()
        self.store.create_bucket("data", "p", softDeletePolicy={"retentionDurationSeconds": WEEK})
        self.store.create_bucket("other", "p")
        self.deleted, _ = self._put(), self._put()

    def _put(self) -> int:
        with self.store.blobs.create() as writer:
            return self.store.objects.create("data", "a", writer.finish(), {}, Preconditions()).generation

    def call(self, line: str, body: str) -> tuple[list[tuple[str, str]], list[Permission]]:
        """Carry out one call and return its methods with their resources, and the permissions."""
        method, _, target = line.partition(" ")
        path, _, query = target.replace("DELETED", str(self.deleted)).partition("?")
        self.faults.events = events = Events()
        asked = Asked(Policies(), lambda name: ("p", {}) if self.store.buckets.find(name) else None)
        pairs = MultiDict(pair.split("=", 1) for pair in query.split("&") if pair)

        def attempt() -> None:
            set_caller(Caller("user:ada@example.com", asked))
            api = JsonApi(self.store, self.faults)
            asyncio.run(api.call(method, f"/storage/v1/{path}", pairs, {}, body.encode(), "http://h"))

        copy_context().run(attempt)
        return [(event.what, event.resource) for event in events.find(kind="request")], asked.noted


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    api = Api(tmp_path)
    with closing(api.store):
        yield api


@pytest.mark.parametrize(
    ("line", "body", "calls", "permissions"),
    [
        ("GET b?project=p", "", [("buckets.list", "p")], [("buckets.list", PARENT)]),
        ("POST b?project=p", '{"name": "new"}', [("buckets.create", "new")], [("buckets.create", PARENT)]),
        ("GET b/data", "", [("buckets.get", "data")], [("buckets.get", DATA)]),
        ("PATCH b/data", "", [("buckets.update", "data")], [("buckets.update", DATA)]),
        ("PUT b/data", "", [("buckets.update", "data")], [("buckets.update", DATA)]),
        ("DELETE b/other", "", [("buckets.delete", "other")], [
            ("buckets.delete", "projects/_/buckets/other"),
        ]),
        ("GET b/data/iam", "", [("getIamPermissions", "data")], [("buckets.getIamPolicy", DATA)]),
        ("PUT b/data/iam", "{}", [("setIamPermissions", "data")], [("buckets.setIamPolicy", DATA)]),
        ("GET b/data/iam/testPermissions?permissions=storage.buckets.get", "", [
            ("buckets.testIamPermissions", "data"),
        ], [("buckets.get", DATA)]),
        ("GET b/data/storageLayout", "", [("buckets.getStorageLayout", "data")], [("objects.list", DATA)]),
        ("GET b/data/managedFolders", "", [("managedFolders.list", "data")], [
            ("managedFolders.list", DATA),
        ]),
        ("GET b/data/acl", "", [], [("buckets.getIamPolicy", DATA)]),
        ("GET b/data/o", "", [("objects.list", "data")], [("objects.list", DATA)]),
        ("GET b/data/o/a", "", [("objects.get", "data/a")], [("objects.get", OBJECT)]),
        ("PATCH b/data/o/a", "", [("objects.update", "data/a")], [("objects.update", OBJECT)]),
        ("PUT b/data/o/a", '{"retention": null}', [("objects.update", "data/a")], [
            ("objects.update", OBJECT), ("objects.setRetention", OBJECT),
        ]),
        ("DELETE b/data/o/a", "", [("objects.delete", "data/a")], [("objects.delete", OBJECT)]),
        ("POST b/data/o/a/restore?generation=DELETED", "", [("objects.restore", "data/a")], [
            ("objects.restore", OBJECT), ("objects.create", OBJECT),
        ]),
        ("GET b/data/o/a/acl", "", [], [("objects.getIamPolicy", OBJECT)]),
        ("POST b/data/o/a/acl", '{"entity": "allUsers", "role": "READER"}', [], [
            ("objects.getIamPolicy", OBJECT), ("objects.setIamPolicy", OBJECT),
        ]),
        ("POST b/data/acl", '{"entity": "allUsers", "role": "READER"}', [], [
            ("buckets.getIamPolicy", DATA), ("buckets.setIamPolicy", DATA),
        ]),
        ("POST b/data/o/a/copyTo/b/other/o/dir%2Fa", "", [
            ("objects.get", "data/a"), ("objects.create", "other/dir/a"),
        ], [("objects.get", OBJECT), ("objects.create", OTHER)]),
        ("POST b/data/o/a/rewriteTo/b/other/o/dir%2Fa", "", [
            ("objects.get", "data/a"), ("objects.create", "other/dir/a"),
        ], [("objects.get", OBJECT), ("objects.create", OTHER)]),
        ("POST b/data/o/a/moveTo/o/c", "", [("objects.delete", "data/a"), ("objects.create", "data/c")], [
            ("objects.delete", OBJECT), ("objects.create", "projects/_/buckets/data/objects/c"),
        ]),
        ("POST b/data/o/c/compose", '{"sourceObjects": [{"name": "a"}]}', [("objects.create", "data/c")], [
            ("objects.create", "projects/_/buckets/data/objects/c"), ("objects.get", OBJECT),
        ]),
    ],
)  # fmt: skip
def test_a_call_counts_as_methods_and_needs_permissions(
    api: Api, line: str, body: str, calls: list[tuple[str, str]], permissions: list[Permission]
) -> None:
    """https://cloud.google.com/storage/docs/access-control/iam-json"""
    assert api.call(line, body) == (calls, permissions)


def test_a_full_projection_shows_lists_and_owners(client: storage.Client, bucket: storage.Bucket) -> None:
    bucket.blob("a").upload_from_string(b"")
    assert "acl" not in bucket.get_blob("a")._properties
    bucket.reload(projection="full")
    assert {entry["role"] for entry in bucket._properties["acl"]} == {"OWNER", "READER"}
    (listed,) = list(bucket.list_blobs(projection="full"))
    assert listed._properties["owner"]["entity"].startswith("project-owners-")
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


def test_entries_of_an_acl_are_added_and_deleted_one_by_one(gcs: RunningGcs, http: requests.Session) -> None:
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
