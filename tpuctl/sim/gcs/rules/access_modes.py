"""Checks changes of ACLs and policies against a bucket's uniform access and public access prevention."""

from __future__ import annotations

from collections.abc import Mapping

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.json_values import JsonValue, object_at, objects_at

PUBLIC = frozenset({"allUsers", "allAuthenticatedUsers"})
PREVENTION = ("enforced", "inherited", "unspecified")
"""Values of `publicAccessPrevention`."""
ACLS = ("acl", "defaultObjectAcl")
READ_MORE = "Read more at https://cloud.google.com/storage/docs/uniform-bucket-level-access"
CONDITIONS_VERSION = 3


def has_uniform_access(fields: Mapping[str, JsonValue]) -> bool:
    """Return whether uniform bucket-level access has switched the ACLs of a bucket off."""
    configuration = object_at(fields, "iamConfiguration")
    return bool(object_at(configuration, "uniformBucketLevelAccess").get("enabled"))


def check_acl_change(bucket: Mapping[str, JsonValue], changes: Mapping[str, JsonValue]) -> None:
    """Raise 400 for a new ACL where ACLs are off, 412 for a public one where that is prevented.

    `bucket` are the fields of the bucket after the change.
    """
    for name in ACLS:
        entries = objects_at(changes, name)
        if entries and has_uniform_access(bucket):
            raise GcsError(
                400,
                "Cannot use ACL API to update bucket policy when uniform bucket-level access is enabled. "
                + READ_MORE,
            )
        check_not_public(bucket, [str(entry.get("entity")) for entry in entries])


def check_policy(bucket: Mapping[str, JsonValue], policy: Mapping[str, JsonValue]) -> None:
    """Raise 412 or 400 for bindings that the bucket or the policy's version does not allow.

    That 412 asks for uniform access and 400 for version 3 is certain, the rest of the texts is made up.
    """
    bindings = objects_at(policy, "bindings")
    members = [member for binding in bindings for member in _texts(binding.get("members"))]
    check_not_public(bucket, members)
    if not any(binding.get("condition") for binding in bindings):
        return
    if not has_uniform_access(bucket):
        raise GcsError(
            412, "To set conditions in IAM policies, enable uniform bucket-level access on the bucket."
        )
    version = policy.get("version")
    if not isinstance(version, int) or version < CONDITIONS_VERSION:
        raise GcsError(400, "The version of a policy with conditions must be at least 3.")


def check_not_public(bucket: Mapping[str, JsonValue], members: list[str]) -> None:
    """Raise 412 for a public member where public access prevention is enforced."""
    prevention = object_at(bucket, "iamConfiguration").get("publicAccessPrevention")
    if prevention == "enforced" and PUBLIC & set(members):
        raise GcsError(
            412,
            "The member bindings allUsers and allAuthenticatedUsers are not allowed since public access "
            "prevention is enforced.",
        )


def _texts(value: JsonValue) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
