"""Buckets as rows of the database, with IAM policies; json_api/ and xml_api/ have the operations.

- The IAM policies of buckets: that of a new bucket, and what Terraform applied to it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpuctl.sim.gcs.errors import (
    GcsError,
    condition_not_met,
    invalid,
    invalid_field,
    no_such_bucket,
    parse_timestamp,
    timestamp,
)
from tpuctl.sim.gcs.rules import (
    PREVENTION,
    Preconditions,
    check_acl_change,
    check_bucket_name,
    checked_acl,
    has_uniform_access,
    merge_patch,
    refuse_default_key,
)
from tpuctl.sim.gcs.storage.blobs import Database
from tpuctl.sim.json_values import JsonObject, JsonValue, object_at, objects_at, text_at

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


ACTIONS = frozenset({"Delete", "SetStorageClass", "AbortIncompleteMultipartUpload"})
SETTABLE = frozenset(
    {
        "acl",
        "autoclass",
        "billing",
        "cors",
        "defaultEventBasedHold",
        "defaultObjectAcl",
        "encryption",
        "iamConfiguration",
        "labels",
        "lifecycle",
        "logging",
        "retentionPolicy",
        "rpo",
        "softDeletePolicy",
        "storageClass",
        "versioning",
        "website",
    }
)
"""Fields that are stored; versioning, lifecycle, soft delete, holds, retention, requester pays and ACLs have
effect."""

SETTABLE_ONCE = frozenset({"location", "customPlacementConfig", "hierarchicalNamespace", "objectRetention"})
"""Fields that only the creation of the bucket may set."""

UNSUPPORTED = ("hierarchicalNamespace", "ipFilter")
"""Fields that are refused where they are switched on."""

AUTOCLASS_TIMES = (
    ("enabled", "toggleTime"),
    ("terminalStorageClass", "terminalStorageClassUpdateTime"),
)
"""Field of `autoclass` -> the field with the time of its last change."""

OBJECTS = (
    "autoclass",
    "billing",
    "encryption",
    "hierarchicalNamespace",
    "iamConfiguration",
    "labels",
    "lifecycle",
    "logging",
    "retentionPolicy",
    "softDeletePolicy",
    "versioning",
    "website",
)
TEXTS = ("location", "rpo", "storageClass")
LISTS = ("acl", "cors", "defaultObjectAcl")
ACLS = {"acl", "defaultObjectAcl"}

LONGEST_RETENTION = 3_155_760_000
"""Seconds: a hundred years."""

SOFT_DELETE_PERIODS = range(7 * 86400, 90 * 86400 + 1)
"""Seconds; 0 switches soft delete off."""

_TYPES: tuple[tuple[tuple[str, ...], type], ...] = ((OBJECTS, dict), (TEXTS, str), (LISTS, list))


def checked_bucket_fields(fields: JsonObject) -> JsonObject:
    """Return the fields with policies and ACLs in their stored form; raises 400 for an invalid value."""
    for names, kind in _TYPES:
        for name in names:
            if name in fields and not isinstance(fields[name], kind):
                raise invalid_field(name)
    if not all(isinstance(label, str) for label in object_at(fields, "labels").values()):
        raise invalid_field("labels")
    refuse_default_key(object_at(fields, "encryption"))
    _check_access(object_at(fields, "iamConfiguration"))
    if "retentionPolicy" in fields:
        fields["retentionPolicy"] = _retention_policy(object_at(fields, "retentionPolicy"))
    if "softDeletePolicy" in fields:
        fields["softDeletePolicy"] = _soft_delete_policy(object_at(fields, "softDeletePolicy"))
    for name in ACLS & set(fields):
        fields[name] = checked_acl(fields[name])
    check_lifecycle(object_at(fields, "lifecycle"))
    return fields


def check_retention_change(old: Mapping[str, JsonValue], new: Mapping[str, JsonValue]) -> None:
    """Raise 403 when new fields of a bucket remove or shorten its locked retention policy."""
    policy = object_at(old, "retentionPolicy")
    period = text_at(object_at(new, "retentionPolicy"), "retentionPeriod", "0")
    if policy.get("isLocked") and int(period) < int(text_at(policy, "retentionPeriod", "0")):
        raise GcsError(403, "Cannot reduce retention duration of a locked Retention Policy for bucket.")


def _check_access(configuration: JsonObject) -> None:
    if configuration.get("publicAccessPrevention", "inherited") not in PREVENTION:
        raise invalid_field("iamConfiguration.publicAccessPrevention")


def with_autoclass_times(fields: JsonObject, old: Mapping[str, JsonValue]) -> JsonObject:
    """Return fields in which Autoclass has its default class, and the times of what differs from `old`."""
    if "autoclass" not in fields:
        return fields
    before, autoclass = object_at(old, "autoclass"), dict(object_at(fields, "autoclass"))
    if autoclass.get("enabled"):
        autoclass.setdefault("terminalStorageClass", "NEARLINE")
    for name, time in AUTOCLASS_TIMES:
        if autoclass.get(name) != before.get(name):
            autoclass[time] = timestamp()
    return {**fields, "autoclass": autoclass}


def refuse_unsupported(changes: Mapping[str, JsonValue]) -> None:
    """Raise 501 for fields that would have no effect, so that no caller relies on them."""
    for name in UNSUPPORTED:
        if object_at(changes, name).get("enabled") or object_at(changes, name).get("mode"):
            raise GcsError(501, f"The simulator has no {name} of buckets; see docs/simulator.md.")


def _retention_policy(policy: JsonObject) -> JsonObject:
    period = _seconds(policy, "retentionPeriod", "retentionPolicy")
    if not 0 < period <= LONGEST_RETENTION:
        raise invalid_field("retentionPolicy.retentionPeriod")
    effective = policy.get("effectiveTime") or timestamp()
    locked = bool(policy.get("isLocked"))
    return {"retentionPeriod": str(period), "effectiveTime": effective, "isLocked": locked}


def _soft_delete_policy(policy: JsonObject) -> JsonObject:
    seconds = _seconds(policy, "retentionDurationSeconds", "softDeletePolicy")
    if seconds and seconds not in SOFT_DELETE_PERIODS:
        raise invalid_field("softDeletePolicy.retentionDurationSeconds")
    effective = policy.get("effectiveTime") or timestamp()
    return {"retentionDurationSeconds": str(seconds), "effectiveTime": effective}


def _seconds(policy: JsonObject, name: str, field: str) -> int:
    text = str(policy.get(name, ""))
    if not text.isdecimal() or len(text) > 12:
        raise invalid_field(f"{field}.{name}")
    return int(text)


# Checks a bucket's lifecycle rules, https://cloud.google.com/storage/docs/lifecycle.


def check_lifecycle(lifecycle: JsonObject) -> None:
    """Raise 400 unless every rule has an action and at least one condition, all of them valid."""
    rules = lifecycle.get("rule", [])
    if not isinstance(rules, list):
        raise invalid_field("lifecycle.rule")
    for rule in rules:
        _check_rule(rule if isinstance(rule, dict) else {})


def _check_rule(rule: JsonObject) -> None:
    action, condition = rule.get("action"), rule.get("condition")
    if not isinstance(action, dict) or action.get("type") not in ACTIONS:
        raise invalid_field("lifecycle.rule.action")
    if not isinstance(condition, dict) or not condition:
        raise invalid("A lifecycle rule must have at least one condition.")
    for name, value in condition.items():
        is_valid = CONDITIONS.get(name)
        if is_valid is None or not is_valid(value):
            raise invalid_field(f"lifecycle.rule.condition.{name}")


def _is_count(value: JsonValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_date(value: JsonValue) -> bool:
    try:
        parse_timestamp(f"{value}T00:00:00Z")
    except ValueError:
        return False
    return True


def _is_flag(value: JsonValue) -> bool:
    return isinstance(value, bool)


def _is_list_of_texts(value: JsonValue) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


CONDITIONS = {
    "age": _is_count,
    "createdBefore": _is_date,
    "customTimeBefore": _is_date,
    "daysSinceCustomTime": _is_count,
    "daysSinceNoncurrentTime": _is_count,
    "isLive": _is_flag,
    "matchesPrefix": _is_list_of_texts,
    "matchesStorageClass": _is_list_of_texts,
    "matchesSuffix": _is_list_of_texts,
    "noncurrentTimeBefore": _is_date,
    "numNewerVersions": _is_count,
}
"""Condition -> whether a value of it is valid."""


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
