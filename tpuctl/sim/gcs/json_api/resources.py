"""The resources of buckets and objects in responses of the JSON API, and their etags.

- Partial responses: the `fields` parameter,
  https://cloud.google.com/storage/docs/json_api#partial-response.
- The `projection` of a response: a bucket or object alone, or with `full` also its ACLs and owner.
- The JSON API's operations on ACLs: of buckets, of their new objects (the default), of objects.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import quote

from tpuctl.sim import token_server
from tpuctl.sim.gcs.authorization import require
from tpuctl.sim.gcs.errors import GcsError, invalid, timestamp
from tpuctl.sim.gcs.json_api.request import JsonRequest
from tpuctl.sim.gcs.rules import AclEntry, Preconditions, checked_entry
from tpuctl.sim.gcs.storage.buckets import Bucket
from tpuctl.sim.gcs.storage.objects import retained_until
from tpuctl.sim.gcs.storage.stored_object import (
    StoredObject,
    bucket_acl,
    check_acls_are_on,
    object_acl,
    with_entry,
)
from tpuctl.sim.json_values import JsonObject, JsonValue, object_at
from tpuctl.sim.token_server import project_number

Selection: TypeAlias = "dict[str, Selection]"
"""Name of a field -> the selection below it; an empty one selects everything. `*` is any field."""

DEEPEST = 20
"""Levels of a selection."""

_TOKEN = re.compile(r"[,/()]|[^,/()]+")


def select(resource: Mapping[str, JsonValue], fields: str) -> JsonObject:
    """Return the fields of a resource that `fields` selects; raises 400 for an invalid selection."""
    return _select_fields(resource, parse_fields(fields))


def parse_fields(fields: str) -> Selection:
    """Parse a selection such as `nextPageToken,items(name,acl/role)`; raises 400."""
    tokens = _TOKEN.findall(fields)
    selection, end = _parse_list(tokens, 0, 0)
    if end != len(tokens):
        raise _invalid(fields)
    return selection


def _parse_list(tokens: list[str], at: int, depth: int) -> tuple[Selection, int]:
    selection: Selection = {}
    while True:
        at = _parse_path(tokens, at, depth, selection)
        if at >= len(tokens) or tokens[at] != ",":
            return selection, at
        at += 1


def _parse_path(tokens: list[str], at: int, depth: int, into: Selection) -> int:
    """Parse `name`, `name/path` or `name(list)` at `at` into a selection; return where it ends."""
    name = tokens[at].strip() if at < len(tokens) else ""
    if not name or name in ",/()" or depth > DEEPEST:
        raise _invalid("".join(tokens))
    below: Selection = {}
    following = tokens[at + 1] if at + 1 < len(tokens) else ""
    if following == "/":
        at = _parse_path(tokens, at + 2, depth + 1, below)
    elif following == "(":
        below, at = _parse_list(tokens, at + 2, depth + 1)
        if at >= len(tokens) or tokens[at] != ")":
            raise _invalid("".join(tokens))
        at += 1
    else:
        at += 1
    into[name] = _union(into[name], below) if name in into else below
    return at


def _union(one: Selection, other: Selection) -> Selection:
    """Return what selects all that either selects, at every level."""
    if not one or not other:
        return {}
    shared = {name: _union(one[name], other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **shared}


def _select(value: JsonValue, selection: Selection) -> JsonValue:
    if not selection:
        return value
    if isinstance(value, list):
        return [_select(item, selection) for item in value]
    return _select_fields(value, selection) if isinstance(value, Mapping) else value


def _select_fields(resource: Mapping[str, JsonValue], selection: Selection) -> JsonObject:
    selected: JsonObject = {}
    for name, value in resource.items():
        below = [selection[key] for key in (name, "*") if key in selection]
        if below:
            selected[name] = _select(value, _union(below[0], below[-1]))
    return selected


def _invalid(fields: str) -> GcsError:
    return GcsError(400, f"Invalid field selection {fields}", reason="invalidParameter")


def projected_bucket(request: JsonRequest, bucket: Bucket) -> JsonObject:
    """Return the resource of a bucket in the projection of a request; raises 400 for an unknown one."""
    resource = bucket_resource(bucket, request.base_url)
    if not is_full(request.query) or bucket.has_uniform_access:
        return resource
    return {
        **resource,
        "acl": _acl("bucketAccessControl", {"bucket": bucket.name}, bucket_acl(bucket)),
        "defaultObjectAcl": _acl("objectAccessControl", {}, bucket_acl(bucket, "defaultObjectAcl")),
        "owner": {"entity": f"project-owners-{project_number(bucket.project)}"},
    }


def projected_object(request: JsonRequest, stored: StoredObject, bucket: Bucket | None = None) -> JsonObject:
    """Return the resource of an object in the projection of a request; raises 400 for an unknown one.

    `bucket` is the object's, for a caller that has it.
    """
    bucket = bucket or request.store.buckets.get(stored.bucket)
    resource = object_resource(stored, request.base_url)
    if bucket.retention_seconds and not stored.fields.get("eventBasedHold"):
        resource["retentionExpirationTime"] = timestamp(retained_until(stored, bucket))
    if not is_full(request.query) or bucket.has_uniform_access:
        return resource
    names = {"bucket": stored.bucket, "object": stored.name, "generation": str(stored.generation)}
    return {
        **resource,
        "acl": _acl("objectAccessControl", names, object_acl(bucket, stored)),
        "owner": {"entity": f"project-owners-{project_number(bucket.project)}"},
    }


def is_full(query: Mapping[str, str]) -> bool:
    """Whether a query has `projection=full`; raises 400 for an unknown projection."""
    projection = query.get("projection", "noAcl")
    if projection.lower() not in ("full", "noacl"):
        raise invalid(f"Invalid value for parameter projection: {projection}")
    return projection.lower() == "full"


def _acl(kind: str, names: dict[str, str], acl: list[AclEntry]) -> list[dict[str, str]]:
    return [{"kind": f"storage#{kind}", **names, **entry, "etag": "CAE="} for entry in acl]


MULTI_REGIONS = frozenset({"US", "EU", "ASIA"})
DUAL_REGIONS = frozenset({"NAM4", "EUR4", "EUR5", "EUR7", "EUR8", "ASIA1"})

HIDDEN = frozenset({"acl", "defaultObjectAcl", "eventBasedHoldReleased"})
"""Fields that a resource has only in another projection, or never."""

DEFAULT_IAM_CONFIGURATION: JsonObject = {
    "bucketPolicyOnly": {"enabled": False},
    "uniformBucketLevelAccess": {"enabled": False},
    "publicAccessPrevention": "inherited",
}


def bucket_resource(bucket: Bucket, base_url: str) -> JsonObject:
    """Return the resource of a bucket; `base_url` is the scheme and host that the client used."""
    kind = "dual-region" if "customPlacementConfig" in bucket.fields else location_type(bucket.location)
    return {
        "kind": "storage#bucket",
        "selfLink": f"{base_url}/storage/v1/b/{bucket.name}",
        "id": bucket.name,
        "name": bucket.name,
        "projectNumber": str(token_server.project_number(bucket.project)),
        "metageneration": str(bucket.metageneration),
        "storageClass": "STANDARD",
        "etag": etag(0, bucket.metageneration),
        "timeCreated": bucket.created,
        "updated": bucket.updated,
        **({} if kind == "region" else {"rpo": "DEFAULT"}),
        **{name: value for name, value in bucket.fields.items() if name not in HIDDEN},
        "iamConfiguration": {**DEFAULT_IAM_CONFIGURATION, **object_at(bucket.fields, "iamConfiguration")},
        "location": bucket.location,
        "locationType": kind,
    }


def object_resource(stored: StoredObject, base_url: str) -> JsonObject:
    """Return the resource of an object; `base_url` is the scheme and host that the client used."""
    path = f"/storage/v1/b/{stored.bucket}/o/{quote(stored.name, safe='')}"
    resource: JsonObject = {
        "kind": "storage#object",
        "id": f"{stored.bucket}/{stored.name}/{stored.generation}",
        "selfLink": f"{base_url}{path}",
        "mediaLink": f"{base_url}/download{path}?generation={stored.generation}&alt=media",
        "name": stored.name,
        "bucket": stored.bucket,
        "generation": str(stored.generation),
        "metageneration": str(stored.metageneration),
        "storageClass": "STANDARD",
        "size": str(stored.size),
        "md5Hash": stored.md5,
        "crc32c": stored.crc32c,
        "componentCount": stored.components,
        "etag": etag(stored.generation, stored.metageneration),
        "timeCreated": stored.created,
        "updated": stored.updated,
        "timeStorageClassUpdated": stored.created,
        "timeFinalized": stored.created,
        "timeDeleted": stored.deleted,
        **stored.fields,
    }
    return {name: value for name, value in resource.items() if value is not None and name not in HIDDEN}


def etag(generation: int, metageneration: int) -> str:
    """Return the entity tag: a base64 protobuf of both numbers, as Cloud Storage's (`CAE=`, `CJ...EAE=`)."""
    first = b"\x08" + _varint(generation) + b"\x10" if generation else b"\x08"
    return base64.b64encode(first + _varint(metageneration)).decode()


def location_type(location: str) -> str:
    """Return `region`, `dual-region` or `multi-region`."""
    if location in MULTI_REGIONS:
        return "multi-region"
    return "dual-region" if location in DUAL_REGIONS else "region"


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


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
