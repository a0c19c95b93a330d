"""Access control lists: what they are by default, and what predefined ones stand for. Kept, not enforced."""

from __future__ import annotations

from typing import Any

from tpuctl.sim.accounts import project_number
from tpuctl.sim.gcs.errors import GcsError, invalid
from tpuctl.sim.gcs.storage.buckets import Bucket
from tpuctl.sim.gcs.storage.stored_object import StoredObject

Entry = dict[str, str]

TEAMS = ("owners", "editors", "viewers")

DEFAULT_ROLES = ("OWNER", "OWNER", "READER")
"""Of the project's owners, editors and viewers."""

ROLES = {"acl": ("OWNER", "WRITER", "READER"), "defaultObjectAcl": ("OWNER", "READER")}
"""Field -> roles that an entry may have; objects have those of `defaultObjectAcl`."""

PREDEFINED: dict[str, tuple[Entry, ...]] = {
    "private": (),
    "projectPrivate": (),
    "bucketOwnerRead": (),
    "bucketOwnerFullControl": (),
    "authenticatedRead": ({"entity": "allAuthenticatedUsers", "role": "READER"},),
    "publicRead": ({"entity": "allUsers", "role": "READER"},),
    "publicReadWrite": ({"entity": "allUsers", "role": "WRITER"},),
}
"""Name of a predefined list -> its entries besides those of the project."""


def project_entries(project: str) -> list[Entry]:
    """Return the entries that a new bucket and its objects have."""
    number = project_number(project)
    return [
        {"entity": f"project-{team}-{number}", "role": role}
        for team, role in zip(TEAMS, DEFAULT_ROLES, strict=True)
    ]


def bucket_acl(bucket: Bucket, field: str = "acl") -> list[Entry]:
    """Return a bucket's own list, or with `defaultObjectAcl` that of its new objects."""
    kept = bucket.fields.get(field)
    return list(kept) if kept is not None else project_entries(bucket.project)


def object_acl(bucket: Bucket, stored: StoredObject) -> list[Entry]:
    """Return an object's list."""
    kept = stored.fields.get("acl")
    return list(kept) if kept is not None else bucket_acl(bucket, "defaultObjectAcl")


def predefined(name: str, bucket: Bucket) -> list[Entry]:
    """Return the entries of a predefined list; raises 400 for a name that there is not."""
    check_acls_are_on(bucket)
    if name not in PREDEFINED:
        raise invalid(f"Invalid predefined ACL: {name}")
    return [*project_entries(bucket.project), *PREDEFINED[name]]


def check_acls_are_on(bucket: Bucket) -> None:
    """Raise 400 where uniform bucket-level access has switched ACLs off."""
    if bucket.uniform:
        raise GcsError(
            400,
            "Cannot use ACL API to update bucket policy when uniform bucket-level access is enabled. "
            "Read more at https://cloud.google.com/storage/docs/uniform-bucket-level-access",
        )


def checked_entry(body: dict[str, Any], field: str) -> Entry:
    """Return an entry that can be meant; raise 400 if it cannot."""
    entity, role = body.get("entity"), body.get("role")
    if not isinstance(entity, str) or not entity:
        raise GcsError(400, "Required parameter: entity", reason="required")
    if role not in ROLES[field]:
        raise invalid(f"Invalid value for field: role: {role}")
    return {"entity": entity, "role": str(role)}


def laid_over(entries: list[Entry], entry: Entry) -> list[Entry]:
    """Return a list with one entry added, or put in place of the same entity's."""
    return [one for one in entries if one["entity"] != entry["entity"]] + [entry]
