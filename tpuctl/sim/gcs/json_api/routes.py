"""The routes of the JSON API: method and path -> operation."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from multidict import MultiMapping

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.authorization import authorize_in_project, check_bindings, granted
from tpuctl.sim.gcs.errors import GcsError, invalid, invalid_field, method_not_allowed, no_such_path, required
from tpuctl.sim.gcs.json_api import objects as objects
from tpuctl.sim.gcs.json_api import resources as acl
from tpuctl.sim.gcs.json_api.request import JsonRequest
from tpuctl.sim.gcs.json_api.resources import location_type, projected_bucket, select
from tpuctl.sim.gcs.rules import (
    LARGEST_PAGE,
    Position,
    check_policy,
    decode_segment,
    parse_number,
    refuse_keys,
)
from tpuctl.sim.gcs.storage.buckets import Bucket, next_etag, policy_of
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import predefined_acl
from tpuctl.sim.json_values import JsonObject, JsonValue, text_at
from tpuctl.sim.token_server import project_number

# The JSON API's operations on buckets; storage/buckets.py has the buckets themselves.
PREDEFINED_ACLS = {"predefinedAcl": "acl", "predefinedDefaultObjectAcl": "defaultObjectAcl"}
"""Query parameter -> the field of the ACL that it sets."""


async def create_bucket(request: JsonRequest) -> JsonObject:
    """buckets.insert"""
    name, project = request.body.get("name"), request.query.get("project")
    if not project:
        raise required("project")
    if not isinstance(name, str):
        raise required("name")
    request.begin("storage.buckets.create", name)
    authorize_in_project("storage.buckets.create", project)
    return projected_bucket(
        request, request.store.buckets.create(name, project, _with_predefined_acls(request))
    )


async def list_buckets(request: JsonRequest) -> JsonObject:
    """buckets.list"""
    project = request.query.get("project")
    if not project:
        raise required("project")
    request.begin("storage.buckets.list", project)
    authorize_in_project("storage.buckets.list", project)
    limit = parse_number("maxResults", request.query.get("maxResults") or LARGEST_PAGE) or LARGEST_PAGE
    token = request.query.get("pageToken")
    after = Position.of_token(token).name if token else ""
    buckets = request.store.buckets.of_project(project, request.query.get("prefix", ""), after)
    page = buckets[: min(limit, LARGEST_PAGE)]
    response: JsonObject = {
        "kind": "storage#buckets",
        "items": [projected_bucket(request, bucket) for bucket in page],
    }
    if len(page) < len(buckets):
        response["nextPageToken"] = Position(page[-1].name).to_token()
    return response


async def get_bucket(request: JsonRequest) -> JsonObject:
    """buckets.get"""
    request.begin("storage.buckets.get", request.bucket)
    bucket = request.store.buckets.get(request.bucket)
    request.conditions().check(0, bucket.metageneration, reading=True)
    return projected_bucket(request, bucket)


async def patch_bucket(request: JsonRequest) -> JsonObject:
    """buckets.patch"""
    return _change(request, replace=False)


async def update_bucket(request: JsonRequest) -> JsonObject:
    """buckets.update"""
    return _change(request, replace=True)


async def delete_bucket(request: JsonRequest) -> None:
    """buckets.delete"""
    request.begin("storage.buckets.delete", request.bucket)
    request.store.delete_bucket(request.bucket, request.conditions())


async def get_policy(request: JsonRequest) -> JsonObject:
    """buckets.getIamPolicy"""
    request.begin("storage.getIamPermissions", request.bucket)
    return _policy(request)


async def set_policy(request: JsonRequest) -> JsonObject:
    """buckets.setIamPolicy: enforced if `sim start` says so; raises 412 for another etag than the current."""
    request.begin("storage.setIamPermissions", request.bucket)
    if not isinstance(request.body.get("bindings", []), list):
        raise invalid_field("bindings")
    check_bindings(request.body)
    check_policy(request.store.buckets.get(request.bucket).fields, request.body)
    etag = text_at(_policy(request), "etag")
    policy: JsonObject = {
        "version": request.body.get("version", 1),
        "bindings": request.body.get("bindings", []),
        "etag": next_etag(etag),
    }
    request.store.buckets.set_policy(request.bucket, policy, request.body.get("etag"), etag)
    return _policy(request)


async def probe_permissions(request: JsonRequest) -> JsonObject:
    """buckets.testIamPermissions: every caller has all permissions, unless roles are enforced."""
    request.begin("storage.buckets.testIamPermissions", request.bucket)
    request.store.buckets.get(request.bucket)
    permissions = granted(request.query.getall("permissions", []), request.bucket)
    return {"kind": "storage#testIamPermissionsResponse", "permissions": permissions}


async def lock_retention(request: JsonRequest) -> JsonObject:
    """buckets.lockRetentionPolicy"""
    request.begin("storage.buckets.update", request.bucket)
    if "ifMetagenerationMatch" not in request.query:
        raise required("ifMetagenerationMatch")
    return projected_bucket(
        request, request.store.buckets.lock_retention(request.bucket, request.conditions())
    )


async def get_storage_layout(request: JsonRequest) -> JsonObject:
    """buckets.getStorageLayout: always flat."""
    request.begin("storage.buckets.getStorageLayout", request.bucket)
    location = request.store.buckets.get(request.bucket).location
    return {
        "kind": "storage#storageLayout",
        "bucket": request.bucket,
        "location": location,
        "locationType": location_type(location),
        "hierarchicalNamespace": {"enabled": False},
    }


async def list_managed_folders(request: JsonRequest) -> JsonObject:
    """managedFolders.list: always empty; `gcloud storage rm -r` calls it."""
    request.begin("storage.managedFolders.list", request.bucket)
    request.store.buckets.get(request.bucket)
    return {"kind": "storage#managedFolders"}


async def get_service_account(request: JsonRequest) -> JsonObject:
    """projects.serviceAccount.get"""
    project = request.names["project"]
    address = f"service-{project_number(project)}@gs-project-accounts.iam.gserviceaccount.com"
    return {"kind": "storage#serviceAccount", "email_address": address}


def _change(request: JsonRequest, *, replace: bool) -> JsonObject:
    request.begin("storage.buckets.update", request.bucket)
    bucket = request.store.buckets.patch(
        request.bucket, _with_predefined_acls(request), request.conditions(), replace=replace
    )
    return projected_bucket(request, bucket)


def _with_predefined_acls(request: JsonRequest) -> JsonObject:
    """Return the body with the predefined ACLs that the query names."""
    project = request.query.get("project", "")
    bucket = request.store.buckets.find(request.names.get("bucket", "")) or Bucket("", project, "", "", 0, {})
    acls = {
        field: predefined_acl(request.query[parameter], bucket)
        for parameter, field in PREDEFINED_ACLS.items()
        if parameter in request.query
    }
    retention: JsonObject = {"objectRetention": {"mode": "Enabled"}} if _enables_retention(request) else {}
    return {**request.body, **acls, **retention}


def _enables_retention(request: JsonRequest) -> bool:
    return request.query.get("enableObjectRetention", "").lower() == "true"


def _policy(request: JsonRequest) -> JsonObject:
    policy = policy_of(request.store.buckets, request.bucket)
    return {"kind": "storage#policy", "resourceId": f"projects/_/buckets/{request.bucket}", **policy}


Operation = Callable[[JsonRequest], Awaitable[JsonObject | None]]

PREFIX = "/storage/v1/"

ROUTES: tuple[tuple[str, str, Operation], ...] = (
    ("GET", "b", list_buckets),
    ("POST", "b", create_bucket),
    ("GET", "b/{bucket}", get_bucket),
    ("PATCH", "b/{bucket}", patch_bucket),
    ("PUT", "b/{bucket}", update_bucket),
    ("DELETE", "b/{bucket}", delete_bucket),
    ("GET", "b/{bucket}/iam", get_policy),
    ("PUT", "b/{bucket}/iam", set_policy),
    ("GET", "b/{bucket}/iam/testPermissions", probe_permissions),
    ("POST", "b/{bucket}/lockRetentionPolicy", lock_retention),
    ("GET", "b/{bucket}/storageLayout", get_storage_layout),
    ("GET", "b/{bucket}/managedFolders", list_managed_folders),
    ("GET", "projects/{project}/serviceAccount", get_service_account),
    ("GET", "b/{bucket}/o", objects.list_objects),
    ("GET", "b/{bucket}/o/{object}", objects.get_object),
    ("PATCH", "b/{bucket}/o/{object}", objects.patch_object),
    ("PUT", "b/{bucket}/o/{object}", objects.update_object),
    ("DELETE", "b/{bucket}/o/{object}", objects.delete_object),
    ("POST", "b/{bucket}/o/{object}/compose", objects.compose_object),
    ("POST", "b/{bucket}/o/{object}/restore", objects.restore_object),
    ("POST", "b/{bucket}/o/{object}/copyTo/b/{to_bucket}/o/{to_object}", objects.copy_object),
    ("POST", "b/{bucket}/o/{object}/rewriteTo/b/{to_bucket}/o/{to_object}", objects.rewrite_object),
    ("POST", "b/{bucket}/o/{object}/moveTo/o/{to_object}", objects.move_object),
    *acl.ROUTES,
)
"""Method, path below `PREFIX`, operation."""

OBJECT_WITHOUT_NAME = re.compile(r"/storage/v1/b/[^/]+/o/")
"""What pyarrow asks for before it deletes a bucket; a list of objects would be an object to it."""

NOT_BUILT = (("POST", "b/{bucket}/managedFolders"),)
"""Methods that Cloud Storage has at paths of the table above, and the simulator has not."""

RESOURCES = ("b", "channels", "projects")
"""How the paths of all methods begin, including those that the simulator does not have."""


@dataclass(frozen=True)
class JsonApi:
    """Carries out calls of the JSON API, alone or in a batch."""

    store: Store
    faults: FaultRegistry

    async def call(
        self,
        method: str,
        path: str,
        query: MultiMapping[str],
        headers: Mapping[str, str],
        body: bytes,
        base_url: str,
    ) -> JsonObject | None:
        """Carry out one call and return the resource, None for 204. `path` is percent-encoded.

        Raises GcsError.
        """
        refuse_keys(headers, query)  # those of a call in a batch, too
        operation, names = _route(method, path)
        request = JsonRequest(self.store, self.faults, names, query, headers, parse_body(body), base_url)
        resource = await operation(request)
        return resource if resource is None or "fields" not in query else select(resource, query["fields"])


def parse_body(body: bytes) -> JsonObject:
    """Return the JSON object of a body, an empty one for an empty body and for null; raises 400 for others.

    Clients in Go, such as rclone, send null for a resource that they leave out.
    """
    if not body.strip():
        return {}
    try:
        parsed: JsonValue = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise GcsError(400, "Parse Error", reason="parseError") from error
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        raise invalid("The body must be a JSON object.")
    return parsed


def match_path(template: str, path: str) -> dict[str, str] | None:
    """Return the values of the names in braces if a percent-encoded path matches the template."""
    parts, segments = template.split("/"), path.split("/")
    if len(parts) != len(segments):
        return None
    names = {}
    for part, segment in zip(parts, segments, strict=True):
        if part.startswith("{"):
            names[part[1:-1]] = decode_segment(segment)
        elif part != segment:
            return None
    return names if all(names.values()) else None


def _route(method: str, path: str) -> tuple[Operation, dict[str, str]]:
    if OBJECT_WITHOUT_NAME.fullmatch(path):
        raise GcsError(404, "No such object.")
    below = path.removeprefix(PREFIX).rstrip("/")
    has_other_methods = False
    for verb, template, operation in ROUTES:
        names = match_path(template, below)
        if names is not None:
            if verb == method:
                return operation, names
            has_other_methods = True
    missing = any(verb == method and match_path(path, below) is not None for verb, path in NOT_BUILT)
    if has_other_methods and not missing:
        raise method_not_allowed(method)
    if below.partition("/")[0] in RESOURCES:
        raise GcsError(501, "The simulator's JSON API does not have this method; see docs/simulator.md.")
    raise no_such_path()
