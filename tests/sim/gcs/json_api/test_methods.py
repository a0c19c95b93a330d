"""Which methods a call of the JSON API counts as, and which permissions it needs of whom."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from multidict import MultiDict

from tpuctl.sim.events import Events
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.json_api.routes import JsonApi
from tpuctl.sim.gcs.rules import Preconditions
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.iam.callers import Access, Caller, set_caller
from tpuctl.sim.iam.enforcement import Policies, Resource

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
