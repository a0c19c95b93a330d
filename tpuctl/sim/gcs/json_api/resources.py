"""The resources of buckets and objects in responses of the JSON API, and their etags."""

from __future__ import annotations

import base64
from urllib.parse import quote

from tpuctl.sim import accounts
from tpuctl.sim.gcs.storage.buckets import Bucket
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.json_values import JsonObject, object_at

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
        "projectNumber": str(accounts.project_number(bucket.project)),
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
