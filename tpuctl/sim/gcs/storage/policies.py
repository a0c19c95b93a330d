"""The IAM policies of buckets: that of a new bucket, and what Terraform applied to it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from tpuctl.sim.gcs.storage.buckets import Buckets
from tpuctl.sim.json_values import JsonObject, objects_at, text_at

FIRST_ETAG = "CAE="
LEGACY_BINDINGS = (
    ("roles/storage.legacyBucketOwner", ("projectEditor", "projectOwner")),
    ("roles/storage.legacyBucketReader", ("projectViewer",)),
)
"""Role -> the project's groups that hold it on a new bucket."""


def policy_of(buckets: Buckets, bucket: str) -> JsonObject:
    """Return a bucket's policy, that of a new bucket if none was set; raises 404."""
    return buckets.policy(bucket) or _initial_policy(buckets.get(bucket).project)


def project_and_policy(buckets: Buckets, bucket: str) -> tuple[str, JsonObject] | None:
    """Return a bucket's project and its policy; None for a bucket that does not exist."""
    stored = buckets.find(bucket)
    return (stored.project, policy_of(buckets, bucket)) if stored else None


def apply_terraform(
    buckets: Buckets,
    applied: Mapping[str, tuple[str, JsonObject]],
    bindings: Mapping[str, Sequence[JsonObject]],
) -> None:
    """Create the buckets that Terraform made, and give every bucket that it names exactly its bindings.

    `applied` maps a bucket to its project and fields. Bindings come beside those of a new bucket, as
    Terraform's are additive; objects of a bucket that exists stay.
    """
    for name, (project, fields) in applied.items():
        if buckets.find(name) is None:
            buckets.create(name, project, fields)
    for name in {*applied, *bindings}:
        stored = buckets.find(name)
        if stored is None:
            continue
        policy = policy_of(buckets, name)
        listed = [*objects_at(_initial_policy(stored.project), "bindings"), *bindings.get(name, ())]
        changed: JsonObject = {"version": 3, "bindings": listed, "etag": next_etag(text_at(policy, "etag"))}
        buckets.set_policy(name, changed, None, "")


def next_etag(etag: str) -> str:
    """Return the tag of a policy that replaces one with this tag."""
    number = int.from_bytes(base64.b64decode(etag)[1:], "big") + 1
    return base64.b64encode(b"\x08" + number.to_bytes((number.bit_length() + 7) // 8, "big")).decode()


def _initial_policy(project: str) -> JsonObject:
    bindings = [
        {"role": role, "members": [f"{group}:{project}" for group in groups]}
        for role, groups in LEGACY_BINDINGS
    ]
    return {"version": 1, "bindings": bindings, "etag": FIRST_ETAG}
