"""Buckets as rows of the database, with IAM policies; json_api/ and xml_api/ have the operations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tpuctl.sim.gcs.errors import GcsError, condition_not_met, invalid, no_such_bucket
from tpuctl.sim.gcs.rules.access_modes import check_acl_change, has_uniform_access
from tpuctl.sim.gcs.rules.bucket_fields import (
    SETTABLE,
    SETTABLE_ONCE,
    check_retention_change,
    checked_bucket_fields,
    refuse_unsupported,
    with_autoclass_times,
)
from tpuctl.sim.gcs.rules.merge_patch import merge_patch
from tpuctl.sim.gcs.rules.names import check_bucket_name
from tpuctl.sim.gcs.rules.preconditions import Preconditions
from tpuctl.sim.gcs.storage.database import Database
from tpuctl.sim.gcs.timestamps import timestamp
from tpuctl.sim.json_values import JsonObject, JsonValue, object_at, objects_at, text_at


@dataclass(frozen=True)
class Bucket:
    """One bucket."""

    name: str
    project: str
    created: str
    updated: str
    metageneration: int
    fields: JsonObject

    @property
    def versioned(self) -> bool:
        """Whether overwritten and deleted objects become noncurrent generations."""
        return bool(object_at(self.fields, "versioning").get("enabled"))

    @property
    def soft_delete_seconds(self) -> int:
        """How long deleted objects can be restored; 0, the simulator's default, for not at all."""
        return int(text_at(object_at(self.fields, "softDeletePolicy"), "retentionDurationSeconds", "0"))

    @property
    def retention_seconds(self) -> int:
        """The period of the retention policy; 0 without one."""
        return int(text_at(object_at(self.fields, "retentionPolicy"), "retentionPeriod", "0"))

    @property
    def is_requester_pays(self) -> bool:
        """Whether those who use it have to name a project that pays."""
        return bool(object_at(self.fields, "billing").get("requesterPays"))

    @property
    def has_uniform_access(self) -> bool:
        """Whether uniform bucket-level access has switched ACLs off."""
        return has_uniform_access(self.fields)

    @property
    def location(self) -> str:
        return text_at(self.fields, "location", "US").upper()

    @property
    def lifecycle_rules(self) -> list[JsonObject]:
        return objects_at(object_at(self.fields, "lifecycle"), "rule")


class Buckets:
    """The table of buckets."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, name: str, project: str, fields: Mapping[str, JsonValue]) -> Bucket:
        """Create a bucket; raises 409 when the name is in use."""
        check_bucket_name(name)
        now = timestamp()
        with self._database.transaction():
            existing = self.find(name)
            if existing is not None:
                raise _name_in_use(existing, project)
            refuse_unsupported(fields)
            settable = checked_bucket_fields(merge_patch({}, fields, SETTABLE | SETTABLE_ONCE))
            bucket = Bucket(name, project, now, now, 1, with_autoclass_times(settable, {}))
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
        """Return a project's buckets by name, those that begin with `prefix` and sort after `after`."""
        rows = self._database.rows(
            _of_row,
            "select name, project, created, updated, metageneration, fields from buckets "
            "where project = ? and name > ? order by name",
            (project, after),
        )
        return [bucket for bucket in rows if bucket.name.startswith(prefix)]

    def patch(
        self, name: str, changes: Mapping[str, JsonValue], conditions: Preconditions, *, replace: bool = False
    ) -> Bucket:
        """Change a bucket's fields; `replace` drops all other fields that are not fixed at creation."""
        with self._database.transaction():
            old = self.get(name)
            conditions.check(0, old.metageneration)
            retained = SETTABLE_ONCE if replace else SETTABLE | SETTABLE_ONCE
            base = {field: value for field, value in old.fields.items() if field in retained}
            refuse_unsupported(changes)
            changed = checked_bucket_fields(merge_patch(base, changes, SETTABLE))
            fields = with_autoclass_times(changed, old.fields)
            check_retention_change(old.fields, fields)
            check_acl_change(fields, changes)
            bucket = Bucket(name, old.project, old.created, timestamp(), old.metageneration + 1, fields)
            self._database.execute(
                "update buckets set updated = ?, metageneration = ?, fields = ? where name = ?",
                (bucket.updated, bucket.metageneration, json.dumps(fields), name),
            )
        return bucket

    def delete(self, name: str, conditions: Preconditions) -> None:
        """Delete an empty bucket; raises 409 while it has objects, noncurrent ones included."""
        with self._database.transaction():
            bucket = self.get(name)
            conditions.check(0, bucket.metageneration)
            if self._database.row(int, "select 1 from objects where bucket = ? limit 1", (name,)):
                raise GcsError(409, "The bucket you tried to delete is not empty.", xml_code="BucketNotEmpty")
            self._database.execute("delete from buckets where name = ?", (name,))

    def lock_retention(self, name: str, conditions: Preconditions) -> Bucket:
        """Lock a bucket's retention policy: it can only be extended then. Raises 400 without a policy."""
        with self._database.transaction():
            policy = object_at(self.get(name).fields, "retentionPolicy")
            if not policy:
                raise invalid("Bucket has no retention policy to lock.")
            return self.patch(name, {"retentionPolicy": {**policy, "isLocked": True}}, conditions)

    def policy(self, name: str) -> JsonObject | None:
        """Return the IAM policy, or None if it was never set."""
        self.get(name)
        query = "select policy from buckets where name = ? and policy is not null"
        return self._database.row(json.loads, query, (name,))

    def set_policy(self, name: str, policy: JsonObject, expected_etag: JsonValue, etag: str) -> None:
        """Store an IAM policy; raises 412 when `expected_etag` is not the current `etag`."""
        with self._database.transaction():
            if expected_etag not in (None, etag):
                raise condition_not_met()
            self._database.execute("update buckets set policy = ? where name = ?", (json.dumps(policy), name))


def _of_row(name: str, project: str, created: str, updated: str, metageneration: int, fields: str) -> Bucket:
    return Bucket(name, project, created, updated, metageneration, json.loads(fields))


def _name_in_use(bucket: Bucket, project: str) -> GcsError:
    if bucket.project == project:
        message = "Your previous request to create the named bucket succeeded and you already own it."
        return GcsError(409, message, xml_code="BucketAlreadyOwnedByYou")
    message = (
        "The requested bucket name is not available. The bucket namespace is shared by all users of the "
        "system. Please select a different name and try again."
    )
    return GcsError(409, message, xml_code="BucketAlreadyExists")
