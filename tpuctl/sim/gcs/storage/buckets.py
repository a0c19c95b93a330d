"""Buckets: their rows, their rules, their IAM policies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpuctl.sim.gcs.errors import GcsError, condition_not_met, invalid, no_such_bucket
from tpuctl.sim.gcs.rules.bucket_fields import (
    SETTABLE,
    SETTABLE_ONCE,
    check_policy_change,
    checked_bucket_fields,
)
from tpuctl.sim.gcs.rules.merge_patch import patched
from tpuctl.sim.gcs.rules.names import check_bucket_name
from tpuctl.sim.gcs.rules.preconditions import Preconditions
from tpuctl.sim.gcs.storage.database import Database
from tpuctl.sim.gcs.timestamps import timestamp


@dataclass(frozen=True)
class Bucket:
    """One bucket."""

    name: str
    project: str
    created: str
    updated: str
    metageneration: int
    fields: dict[str, Any]

    @property
    def versioned(self) -> bool:
        """Whether overwritten and deleted objects stay as noncurrent generations."""
        return bool(self.fields.get("versioning", {}).get("enabled"))

    @property
    def soft_delete_seconds(self) -> int:
        """How long deleted objects can be restored; 0, the default here, for not at all."""
        return int(self.fields.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0))

    @property
    def uniform(self) -> bool:
        """Whether ACLs are off."""
        uniform = self.fields.get("iamConfiguration", {}).get("uniformBucketLevelAccess", {})
        return bool(isinstance(uniform, dict) and uniform.get("enabled"))


class Buckets:
    """The table of buckets."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, name: str, project: str, fields: Mapping[str, Any]) -> Bucket:
        """Make a bucket; raises 409 when the name is taken."""
        check_bucket_name(name)
        now = timestamp()
        with self._database.transaction():
            taken = self.find(name)
            if taken is not None:
                raise _taken(taken, project)
            wanted = patched({}, fields, SETTABLE | SETTABLE_ONCE)
            bucket = Bucket(name, project, now, now, 1, checked_bucket_fields(wanted))
            self._database.execute(
                "insert into buckets values (?, ?, ?, ?, ?, ?, null)",
                (name, project, now, now, 1, json.dumps(bucket.fields)),
            )
        return bucket

    def find(self, name: str) -> Bucket | None:
        """Return a bucket, or None."""
        query = "select name, project, created, updated, metageneration, fields from buckets where name = ?"
        return self._database.row(_of_row, query, (name,))

    def get(self, name: str) -> Bucket:
        """Return a bucket; raises 404."""
        bucket = self.find(name)
        if bucket is None:
            raise no_such_bucket()
        return bucket

    def all(self) -> list[Bucket]:
        """Return every bucket."""
        query = "select name, project, created, updated, metageneration, fields from buckets"
        return list(self._database.rows(_of_row, query))

    def of_project(self, project: str, prefix: str = "", after: str = "") -> list[Bucket]:
        """Return the buckets of a project by name: those that begin with `prefix` and come after `after`."""
        rows = self._database.rows(
            _of_row,
            "select name, project, created, updated, metageneration, fields from buckets "
            "where project = ? and name > ? order by name",
            (project, after),
        )
        return [bucket for bucket in rows if bucket.name.startswith(prefix)]

    def patch(
        self, name: str, changes: Mapping[str, Any], conditions: Preconditions, *, replace: bool = False
    ) -> Bucket:
        """Lay changes over a bucket's fields; with `replace`, over nothing but what is fixed at creation."""
        with self._database.transaction():
            old = self.get(name)
            conditions.check(0, old.metageneration)
            kept = SETTABLE_ONCE if replace else SETTABLE | SETTABLE_ONCE
            base = {field: value for field, value in old.fields.items() if field in kept}
            fields = checked_bucket_fields(patched(base, changes, SETTABLE))
            check_policy_change(old.fields, fields)
            bucket = Bucket(name, old.project, old.created, timestamp(), old.metageneration + 1, fields)
            self._database.execute(
                "update buckets set updated = ?, metageneration = ?, fields = ? where name = ?",
                (bucket.updated, bucket.metageneration, json.dumps(fields), name),
            )
        return bucket

    def delete(self, name: str, conditions: Preconditions) -> None:
        """Remove an empty bucket; raises 409 while it holds objects, noncurrent ones included."""
        with self._database.transaction():
            bucket = self.get(name)
            conditions.check(0, bucket.metageneration)
            if self._database.row(int, "select 1 from objects where bucket = ? limit 1", (name,)):
                raise GcsError(409, "The bucket you tried to delete is not empty.", xml_code="BucketNotEmpty")
            self._database.execute("delete from buckets where name = ?", (name,))

    def lock_retention(self, name: str, conditions: Preconditions) -> Bucket:
        """Make a bucket's retention policy one that can only grow; raises 400 when it has none."""
        with self._database.transaction():
            policy = self.get(name).fields.get("retentionPolicy")
            if not policy:
                raise invalid("Bucket has no retention policy to lock.")
            return self.patch(name, {"retentionPolicy": {**policy, "isLocked": True}}, conditions)

    def policy(self, name: str) -> dict[str, Any] | None:
        """Return the IAM policy that was set, or None."""
        self.get(name)
        query = "select policy from buckets where name = ? and policy is not null"
        return self._database.row(json.loads, query, (name,))

    def set_policy(self, name: str, policy: dict[str, Any], expected_etag: str | None, etag: str) -> None:
        """Keep an IAM policy; raises 412 when `expected_etag` is not the `etag` now in force."""
        with self._database.transaction():
            self.get(name)
            if expected_etag not in (None, etag):
                raise condition_not_met()
            self._database.execute("update buckets set policy = ? where name = ?", (json.dumps(policy), name))


def _of_row(name: str, project: str, created: str, updated: str, metageneration: int, fields: str) -> Bucket:
    return Bucket(name, project, created, updated, metageneration, json.loads(fields))


def _taken(bucket: Bucket, project: str) -> GcsError:
    if bucket.project == project:
        message = "Your previous request to create the named bucket succeeded and you already own it."
        return GcsError(409, message, xml_code="BucketAlreadyOwnedByYou")
    message = (
        "The requested bucket name is not available. The bucket namespace is shared by all users of the "
        "system. Please select a different name and try again."
    )
    return GcsError(409, message, xml_code="BucketAlreadyExists")
