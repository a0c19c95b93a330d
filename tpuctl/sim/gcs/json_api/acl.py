"""The JSON API's operations on ACLs: of buckets, of their new objects (the default), of objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.http.authorization import require
from tpuctl.sim.gcs.json_api.request import JsonRequest
from tpuctl.sim.gcs.rules.acl_entries import AclEntry, checked_entry
from tpuctl.sim.gcs.rules.preconditions import Preconditions
from tpuctl.sim.gcs.storage.acl import bucket_acl, check_acls_are_on, object_acl, with_entry
from tpuctl.sim.json_values import JsonObject, JsonValue


@dataclass(frozen=True)
class Acl:
    """One kind of ACL: the field that holds it, the kind of its entries, and whether objects have it."""

    field: str
    kind: str
    on_object: bool = False

    def read(self, request: JsonRequest) -> list[AclEntry]:
        """Return the ACL; raises 400 if uniform bucket-level access is on."""
        bucket = request.store.buckets.get(request.bucket)
        self._require(request, "getIamPolicy")
        check_acls_are_on(bucket)
        if self.on_object:
            stored = request.store.objects.get(request.bucket, request.object, request.generation())
            return object_acl(bucket, stored)
        return bucket_acl(bucket, self.field)

    def write(self, request: JsonRequest, entries: list[AclEntry]) -> None:
        """Store a changed ACL, which is a change of the metadata."""
        self._require(request, "setIamPolicy")
        if self.on_object:
            stored = request.store.objects.get(request.bucket, request.object, request.generation())
            request.store.objects.patch(stored, {"acl": entries}, Preconditions())
        else:
            request.store.buckets.patch(request.bucket, {self.field: entries}, Preconditions())

    def resource(self, request: JsonRequest, entry: AclEntry) -> JsonObject:
        """Return the resource of an entry."""
        names = {"bucket": request.bucket} | ({"object": request.object} if self.on_object else {})
        identity = "/".join([*names.values(), entry["entity"]])
        return {"kind": f"storage#{self.kind}", "id": identity, **names, **entry, "etag": "CAE="}

    async def list(self, request: JsonRequest) -> JsonObject:
        """list"""
        items = [self.resource(request, entry) for entry in self.read(request)]
        return {"kind": f"storage#{self.kind}s", "items": items}

    async def insert(self, request: JsonRequest) -> JsonObject:
        """insert"""
        entry = self._checked(request.body)
        self.write(request, with_entry(self.read(request), entry))
        return self.resource(request, entry)

    async def get(self, request: JsonRequest) -> JsonObject:
        """get"""
        return self.resource(request, self._find(request))

    async def update(self, request: JsonRequest) -> JsonObject:
        """update and patch"""
        entry = self._checked({**request.body, "entity": request.names["entity"]})
        self._find(request)
        self.write(request, with_entry(self.read(request), entry))
        return self.resource(request, entry)

    async def delete(self, request: JsonRequest) -> None:
        """delete"""
        deleted = self._find(request)
        self.write(request, [entry for entry in self.read(request) if entry != deleted])

    def _require(self, request: JsonRequest, verb: str) -> None:
        if self.on_object:
            require(f"storage.objects.{verb}", request.bucket, request.object)
        else:
            require(f"storage.buckets.{verb}", request.bucket)

    def _checked(self, body: Mapping[str, JsonValue]) -> AclEntry:
        return checked_entry(body, "defaultObjectAcl" if self.on_object else self.field)

    def _find(self, request: JsonRequest) -> AclEntry:
        for entry in self.read(request):
            if entry["entity"] == request.names["entity"]:
                return entry
        raise GcsError(404, "The specified access control list entry does not exist.")


ACLS = (
    ("b/{bucket}/acl", Acl("acl", "bucketAccessControl")),
    ("b/{bucket}/defaultObjectAcl", Acl("defaultObjectAcl", "objectAccessControl")),
    ("b/{bucket}/o/{object}/acl", Acl("acl", "objectAccessControl", on_object=True)),
)
"""Path -> its ACL."""

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
