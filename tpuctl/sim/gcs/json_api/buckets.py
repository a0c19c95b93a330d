"""The JSON API's operations on buckets."""

from __future__ import annotations

import base64
from typing import Any

from tpuctl.sim.accounts import project_number
from tpuctl.sim.gcs.errors import invalid, required
from tpuctl.sim.gcs.json_api.projection import shown_bucket
from tpuctl.sim.gcs.json_api.request import Call
from tpuctl.sim.gcs.json_api.resources import location_type
from tpuctl.sim.gcs.rules.preconditions import parse_number
from tpuctl.sim.gcs.storage.acl import predefined
from tpuctl.sim.gcs.storage.buckets import Bucket
from tpuctl.sim.gcs.storage.listing import LARGEST_PAGE, Position

PREDEFINED_LISTS = {"predefinedAcl": "acl", "predefinedDefaultObjectAcl": "defaultObjectAcl"}
"""Query parameter -> the field that it sets."""

LEGACY_BINDINGS = (
    ("roles/storage.legacyBucketOwner", ("projectEditor", "projectOwner")),
    ("roles/storage.legacyBucketReader", ("projectViewer",)),
)
"""Role -> the project's groups that hold it on a new bucket."""


async def create_bucket(call: Call) -> dict[str, Any]:
    """buckets.insert"""
    name, project = call.body.get("name"), call.query.get("project")
    if not project:
        raise required("project")
    if not isinstance(name, str):
        raise required("name")
    call.refuse_if_asked("storage.buckets.create", name)
    return shown_bucket(call, call.store.buckets.create(name, project, _with_predefined(call)))


async def list_buckets(call: Call) -> dict[str, Any]:
    """buckets.list"""
    project = call.query.get("project")
    if not project:
        raise required("project")
    call.refuse_if_asked("storage.buckets.list", project)
    limit = parse_number("maxResults", call.query.get("maxResults") or LARGEST_PAGE) or LARGEST_PAGE
    token = call.query.get("pageToken")
    after = Position.of_token(token).name if token else ""
    found = call.store.buckets.of_project(project, call.query.get("prefix", ""), after)
    page = found[: min(limit, LARGEST_PAGE)]
    answer = {"kind": "storage#buckets", "items": [shown_bucket(call, bucket) for bucket in page]}
    return answer | ({"nextPageToken": Position(page[-1].name).to_token()} if len(page) < len(found) else {})


async def get_bucket(call: Call) -> dict[str, Any]:
    """buckets.get"""
    call.refuse_if_asked("storage.buckets.get", call.bucket)
    bucket = call.store.buckets.get(call.bucket)
    call.conditions().check(0, bucket.metageneration, reading=True)
    return shown_bucket(call, bucket)


async def patch_bucket(call: Call) -> dict[str, Any]:
    """buckets.patch"""
    return _change(call, replace=False)


async def update_bucket(call: Call) -> dict[str, Any]:
    """buckets.update"""
    return _change(call, replace=True)


async def delete_bucket(call: Call) -> None:
    """buckets.delete"""
    call.refuse_if_asked("storage.buckets.delete", call.bucket)
    call.store.delete_bucket(call.bucket, call.conditions())


async def get_policy(call: Call) -> dict[str, Any]:
    """buckets.getIamPolicy"""
    call.refuse_if_asked("storage.getIamPermissions", call.bucket)
    return _policy(call)


async def set_policy(call: Call) -> dict[str, Any]:
    """buckets.setIamPolicy: kept, not enforced; raises 412 when the etag is not the present one."""
    call.refuse_if_asked("storage.setIamPermissions", call.bucket)
    if not isinstance(call.body.get("bindings", []), list):
        raise invalid("Invalid value for field: bindings")
    now = _policy(call)
    kept = {
        "version": call.body.get("version", 1),
        "bindings": call.body.get("bindings", []),
        "etag": _next_etag(now["etag"]),
    }
    call.store.buckets.set_policy(call.bucket, kept, call.body.get("etag"), now["etag"])
    return _policy(call)


async def probe_permissions(call: Call) -> dict[str, Any]:
    """buckets.testIamPermissions: the caller owns the simulator and holds them all."""
    call.refuse_if_asked("storage.buckets.testIamPermissions", call.bucket)
    call.store.buckets.get(call.bucket)
    answer: dict[str, Any] = {"kind": "storage#testIamPermissionsResponse"}
    return answer | {"permissions": call.query.getall("permissions", [])}


async def lock_retention(call: Call) -> dict[str, Any]:
    """buckets.lockRetentionPolicy"""
    call.refuse_if_asked("storage.buckets.update", call.bucket)
    if "ifMetagenerationMatch" not in call.query:
        raise required("ifMetagenerationMatch")
    return shown_bucket(call, call.store.buckets.lock_retention(call.bucket, call.conditions()))


async def get_storage_layout(call: Call) -> dict[str, Any]:
    """buckets.getStorageLayout: flat, always."""
    call.refuse_if_asked("storage.buckets.getStorageLayout", call.bucket)
    location = call.store.buckets.get(call.bucket).fields.get("location", "US").upper()
    return {
        "kind": "storage#storageLayout",
        "bucket": call.bucket,
        "location": location,
        "locationType": location_type(location),
        "hierarchicalNamespace": {"enabled": False},
    }


async def list_managed_folders(call: Call) -> dict[str, Any]:
    """managedFolders.list: there are none, but `gcloud storage rm -r` asks."""
    call.refuse_if_asked("storage.managedFolders.list", call.bucket)
    call.store.buckets.get(call.bucket)
    return {"kind": "storage#managedFolders"}


async def get_service_account(call: Call) -> dict[str, Any]:
    """projects.serviceAccount.get"""
    project = call.names["project"]
    address = f"service-{project_number(project)}@gs-project-accounts.iam.gserviceaccount.com"
    return {"kind": "storage#serviceAccount", "email_address": address}


def _change(call: Call, *, replace: bool) -> dict[str, Any]:
    call.refuse_if_asked("storage.buckets.update", call.bucket)
    bucket = call.store.buckets.patch(call.bucket, _with_predefined(call), call.conditions(), replace=replace)
    return shown_bucket(call, bucket)


def _with_predefined(call: Call) -> dict[str, Any]:
    """Return the body with the lists that the query names."""
    project = call.query.get("project", "")
    bucket = call.store.buckets.find(call.names.get("bucket", "")) or Bucket("", project, "", "", 0, {})
    lists = {
        field: predefined(call.query[parameter], bucket)
        for parameter, field in PREDEFINED_LISTS.items()
        if parameter in call.query
    }
    return {**call.body, **lists}


def _policy(call: Call) -> dict[str, Any]:
    kept = call.store.buckets.policy(call.bucket) or _first_policy(call)
    return {"kind": "storage#policy", "resourceId": f"projects/_/buckets/{call.bucket}", **kept}


def _first_policy(call: Call) -> dict[str, Any]:
    project = call.store.buckets.get(call.bucket).project
    bindings = [
        {"role": role, "members": [f"{group}:{project}" for group in groups]}
        for role, groups in LEGACY_BINDINGS
    ]
    return {"version": 1, "bindings": bindings, "etag": "CAE="}


def _next_etag(etag: str) -> str:
    number = int.from_bytes(base64.b64decode(etag)[1:], "big") + 1
    return base64.b64encode(b"\x08" + number.to_bytes((number.bit_length() + 7) // 8, "big")).decode()
