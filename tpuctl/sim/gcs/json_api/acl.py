"""The JSON API's operations on access control lists: of buckets, of their new objects, of objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.json_api.request import Call
from tpuctl.sim.gcs.rules.preconditions import Preconditions
from tpuctl.sim.gcs.storage.acl import (
    Entry,
    bucket_acl,
    check_acls_are_on,
    checked_entry,
    laid_over,
    object_acl,
)


@dataclass(frozen=True)
class Acl:
    """One kind of list: the field that keeps it, what the API calls an entry, and what the list is on."""

    field: str
    kind: str
    on_object: bool = False

    def read(self, call: Call) -> list[Entry]:
        """Return the list; raises 400 where ACLs are off."""
        bucket = call.store.buckets.get(call.bucket)
        check_acls_are_on(bucket)
        if self.on_object:
            stored = call.store.objects.get(call.bucket, call.object, call.generation())
            return object_acl(bucket, stored)
        return bucket_acl(bucket, self.field)

    def write(self, call: Call, entries: list[Entry]) -> None:
        """Keep a changed list; it counts as a change of the metadata."""
        if self.on_object:
            stored = call.store.objects.get(call.bucket, call.object, call.generation())
            call.store.objects.patch(stored, {"acl": entries}, Preconditions())
        else:
            call.store.buckets.patch(call.bucket, {self.field: entries}, Preconditions())

    def resource(self, call: Call, entry: Entry) -> dict[str, Any]:
        """Return an entry as the API shows it."""
        where = {"bucket": call.bucket} | ({"object": call.object} if self.on_object else {})
        identity = "/".join([*where.values(), entry["entity"]])
        return {"kind": f"storage#{self.kind}", "id": identity, **where, **entry, "etag": "CAE="}

    async def list(self, call: Call) -> dict[str, Any]:
        """list"""
        items = [self.resource(call, entry) for entry in self.read(call)]
        return {"kind": f"storage#{self.kind}s", "items": items}

    async def insert(self, call: Call) -> dict[str, Any]:
        """insert"""
        entry = self._checked(call.body)
        self.write(call, laid_over(self.read(call), entry))
        return self.resource(call, entry)

    async def get(self, call: Call) -> dict[str, Any]:
        """get"""
        return self.resource(call, self._find(call))

    async def update(self, call: Call) -> dict[str, Any]:
        """update and patch"""
        entry = self._checked({**call.body, "entity": call.names["entity"]})
        self._find(call)
        self.write(call, laid_over(self.read(call), entry))
        return self.resource(call, entry)

    async def delete(self, call: Call) -> None:
        """delete"""
        gone = self._find(call)
        self.write(call, [entry for entry in self.read(call) if entry != gone])

    def _checked(self, body: dict[str, Any]) -> Entry:
        return checked_entry(body, "defaultObjectAcl" if self.on_object else self.field)

    def _find(self, call: Call) -> Entry:
        for entry in self.read(call):
            if entry["entity"] == call.names["entity"]:
                return entry
        raise GcsError(404, "The specified access control list entry does not exist.")


ACLS = (
    ("b/{bucket}/acl", Acl("acl", "bucketAccessControl")),
    ("b/{bucket}/defaultObjectAcl", Acl("defaultObjectAcl", "objectAccessControl")),
    ("b/{bucket}/o/{object}/acl", Acl("acl", "objectAccessControl", on_object=True)),
)
"""Path -> the list there."""

ROUTES = tuple(
    route
    for path, acl in ACLS
    for route in (
        ("GET", path, acl.list),
        ("POST", path, acl.insert),
        ("GET", path + "/{entity}", acl.get),
        ("PUT", path + "/{entity}", acl.update),
        ("PATCH", path + "/{entity}", acl.update),
        ("DELETE", path + "/{entity}", acl.delete),
    )
)
"""Method, path below the JSON API's prefix, operation."""
