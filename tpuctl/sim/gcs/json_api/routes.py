"""The routes of the JSON API: method and path -> operation."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from multidict import MultiMapping

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.errors import GcsError, invalid, method_not_allowed, no_such_path
from tpuctl.sim.gcs.json_api import acl as acl
from tpuctl.sim.gcs.json_api import buckets as buckets
from tpuctl.sim.gcs.json_api import objects as objects
from tpuctl.sim.gcs.json_api.fields_mask import select
from tpuctl.sim.gcs.json_api.request import JsonRequest
from tpuctl.sim.gcs.rules.encryption import refuse_keys
from tpuctl.sim.gcs.rules.names import decode_segment
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.json_values import JsonObject, JsonValue

Operation = Callable[[JsonRequest], Awaitable[JsonObject | None]]

PREFIX = "/storage/v1/"

ROUTES: tuple[tuple[str, str, Operation], ...] = (
    ("GET", "b", buckets.list_buckets),
    ("POST", "b", buckets.create_bucket),
    ("GET", "b/{bucket}", buckets.get_bucket),
    ("PATCH", "b/{bucket}", buckets.patch_bucket),
    ("PUT", "b/{bucket}", buckets.update_bucket),
    ("DELETE", "b/{bucket}", buckets.delete_bucket),
    ("GET", "b/{bucket}/iam", buckets.get_policy),
    ("PUT", "b/{bucket}/iam", buckets.set_policy),
    ("GET", "b/{bucket}/iam/testPermissions", buckets.probe_permissions),
    ("POST", "b/{bucket}/lockRetentionPolicy", buckets.lock_retention),
    ("GET", "b/{bucket}/storageLayout", buckets.get_storage_layout),
    ("GET", "b/{bucket}/managedFolders", buckets.list_managed_folders),
    ("GET", "projects/{project}/serviceAccount", buckets.get_service_account),
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
