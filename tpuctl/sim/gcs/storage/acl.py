"""Access control lists, stored but not enforced: defaults, predefined ACLs, changes of an entry."""

from __future__ import annotations

from tpuctl.sim.accounts import project_number
from tpuctl.sim.gcs.errors import GcsError, invalid
from tpuctl.sim.gcs.rules.acl_entries import AclEntry, checked_acl
from tpuctl.sim.gcs.storage.buckets import Bucket
from tpuctl.sim.gcs.storage.stored_object import StoredObject

TEAMS = ("owners", "editors", "viewers")

DEFAULT_ROLES = ("OWNER", "OWNER", "READER")
"""Of the project's owners, editors and viewers."""

PREDEFINED: dict[str, tuple[AclEntry, ...]] = {
    "private": (),
    "projectPrivate": (),
    "bucketOwnerRead": (),
    "bucketOwnerFullControl": (),
    "authenticatedRead": ({"entity": "allAuthenticatedUsers", "role": "READER"},),
    "publicRead": ({"entity": "allUsers", "role": "READER"},),
    "publicReadWrite": ({"entity": "allUsers", "role": "WRITER"},),
}
"""Name of a predefined ACL -> its entries besides those of the project."""


def project_acl(project: str) -> list[AclEntry]:
    """Return the entries that a new bucket and its objects have."""
    number = project_number(project)
    return [
        {"entity": f"project-{team}-{number}", "role": role}
        for team, role in zip(TEAMS, DEFAULT_ROLES, strict=True)
    ]


def bucket_acl(bucket: Bucket, field: str = "acl") -> list[AclEntry]:
    """Return a bucket's own ACL, or with `defaultObjectAcl` that of its new objects."""
    return checked_acl(bucket.fields[field]) if field in bucket.fields else project_acl(bucket.project)


def object_acl(bucket: Bucket, stored: StoredObject) -> list[AclEntry]:
    """Return an object's ACL."""
    if "acl" in stored.fields:
        return checked_acl(stored.fields["acl"])
    return bucket_acl(bucket, "defaultObjectAcl")


def predefined_acl(name: str, bucket: Bucket) -> list[AclEntry]:
    """Return the entries of a predefined ACL; raises 400 for an unknown name."""
    check_acls_are_on(bucket)
    if name not in PREDEFINED:
        raise invalid(f"Invalid predefined ACL: {name}")
    return [*project_acl(bucket.project), *PREDEFINED[name]]


def check_acls_are_on(bucket: Bucket) -> None:
    """Raise 400 if uniform bucket-level access has switched ACLs off."""
    if bucket.has_uniform_access:
        raise GcsError(
            400,
            "Cannot use ACL API to update bucket policy when uniform bucket-level access is enabled. "
            "Read more at https://cloud.google.com/storage/docs/uniform-bucket-level-access",
        )


def with_entry(acl: list[AclEntry], entry: AclEntry) -> list[AclEntry]:
    """Return an ACL with one entry added, or in place of the same entity's."""
    return [other for other in acl if other["entity"] != entry["entity"]] + [entry]
