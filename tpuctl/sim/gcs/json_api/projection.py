"""What a caller gets to see of a bucket or an object: with `projection=full`, ACLs and owner too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpuctl.sim.accounts import project_number
from tpuctl.sim.gcs.errors import invalid
from tpuctl.sim.gcs.json_api.request import Call
from tpuctl.sim.gcs.json_api.resources import bucket_resource, object_resource
from tpuctl.sim.gcs.storage.acl import Entry, bucket_acl, object_acl
from tpuctl.sim.gcs.storage.buckets import Bucket
from tpuctl.sim.gcs.storage.stored_object import StoredObject


def shown_bucket(call: Call, bucket: Bucket) -> dict[str, Any]:
    """Return a bucket as this call asks to see it."""
    resource = bucket_resource(bucket, call.origin)
    if not is_full(call.query) or bucket.uniform:
        return resource
    return {
        **resource,
        "acl": _entries("bucketAccessControl", {"bucket": bucket.name}, bucket_acl(bucket)),
        "defaultObjectAcl": _entries("objectAccessControl", {}, bucket_acl(bucket, "defaultObjectAcl")),
        "owner": {"entity": f"project-owners-{project_number(bucket.project)}"},
    }


def shown_object(call: Call, stored: StoredObject) -> dict[str, Any]:
    """Return an object as this call asks to see it."""
    resource = object_resource(stored, call.origin)
    if not is_full(call.query):
        return resource
    bucket = call.store.buckets.get(stored.bucket)
    if bucket.uniform:
        return resource
    where = {"bucket": stored.bucket, "object": stored.name, "generation": str(stored.generation)}
    return {
        **resource,
        "acl": _entries("objectAccessControl", where, object_acl(bucket, stored)),
        "owner": {"entity": f"project-owners-{project_number(bucket.project)}"},
    }


def is_full(query: Mapping[str, str]) -> bool:
    """Whether ACLs are asked for; raises 400 for a projection that there is not."""
    projection = query.get("projection", "noAcl")
    if projection.lower() not in ("full", "noacl"):
        raise invalid(f"Invalid value for parameter projection: {projection}")
    return projection.lower() == "full"


def _entries(kind: str, where: dict[str, str], entries: list[Entry]) -> list[dict[str, Any]]:
    return [{"kind": f"storage#{kind}", **where, **entry, "etag": "CAE="} for entry in entries]
