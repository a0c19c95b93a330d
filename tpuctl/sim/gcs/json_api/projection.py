"""The `projection` of a response: a bucket or object alone, or with `full` also its ACLs and owner."""

from __future__ import annotations

from collections.abc import Mapping

from tpuctl.sim.accounts import project_number
from tpuctl.sim.gcs.errors import invalid
from tpuctl.sim.gcs.json_api.request import JsonRequest
from tpuctl.sim.gcs.json_api.resources import bucket_resource, object_resource
from tpuctl.sim.gcs.rules.acl_entries import AclEntry
from tpuctl.sim.gcs.storage.acl import bucket_acl, object_acl
from tpuctl.sim.gcs.storage.buckets import Bucket
from tpuctl.sim.gcs.storage.retention import retained_until
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.gcs.timestamps import timestamp
from tpuctl.sim.json_values import JsonObject


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
