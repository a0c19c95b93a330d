"""Buckets through the real client, their IAM policies, and access control lists of buckets and objects."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import storage

from tests.sim.gcs.running_server import refused
from tpuctl.sim.faults import grpc_fault
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import AclEntry
from tpuctl.sim.gcs.storage.blobs import Content, Database
from tpuctl.sim.gcs.storage.buckets import (
    Bucket,
    Buckets,
    apply_terraform,
    next_etag,
    policy_of,
    project_and_policy,
)
from tpuctl.sim.gcs.storage.stored_object import (
    StoredObject,
    bucket_acl,
    object_acl,
    predefined_acl,
    project_acl,
    with_entry,
)
from tpuctl.sim.json_values import JsonObject
from tpuctl.sim.token_server import project_number


def test_a_bucket_is_created_and_deleted(client: storage.Client) -> None:
    bucket = client.bucket("acme-models")
    bucket.labels = {"team": "vision"}
    bucket.create(location="us-central1")
    assert [bucket.name for bucket in client.list_buckets()] == ["acme-data", "acme-models"]
    assert [bucket.name for bucket in client.list_buckets(project="other")] == []
    again = client.get_bucket("acme-models")
    assert (again.location, again.location_type, again.labels) == (
        "US-CENTRAL1",
        "region",
        {"team": "vision"},
    )
    again.blob("a").upload_from_string(b"")
    with pytest.raises(exceptions.Conflict, match="not empty"):
        again.delete()
    again.delete(force=True)
    assert client.lookup_bucket("acme-models") is None


def test_a_name_can_be_taken_once(client: storage.Client) -> None:
    with pytest.raises(exceptions.Conflict, match="you already own it"):
        client.create_bucket("acme-data")
    with pytest.raises(exceptions.Conflict, match="Please select a different name"):
        client.create_bucket("acme-data", project="other")


@pytest.mark.parametrize(
    "name",
    ["ab", "Upper", "a" * 64, "-dash", "under_", "10.0.0.1", "google-x", "goog-x", "a..b", "a/b", "a b"],
)
def test_names_follow_the_rules(client: storage.Client, name: str) -> None:
    with pytest.raises((exceptions.BadRequest, ValueError)):
        client.create_bucket(name)


def test_settings_are_kept_and_counted(client: storage.Client, bucket: storage.Bucket) -> None:
    bucket.reload()
    bucket.labels = {"a": "1", "b": "2"}
    bucket.add_lifecycle_delete_rule(age=3)
    bucket.patch(if_metageneration_match=1)
    bucket.labels = {"a": "1"}
    bucket.patch()
    again = client.get_bucket("acme-data")
    assert again.labels == {"a": "1"}
    assert [rule["condition"] for rule in again.lifecycle_rules] == [{"age": 3}]
    assert again.metageneration == 3
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.patch(if_metageneration_match=1)


def test_a_policy_is_kept_and_guarded_by_its_etag(bucket: storage.Bucket) -> None:
    stale, policy = bucket.get_iam_policy(), bucket.get_iam_policy()
    policy.bindings.append({"role": "roles/storage.objectViewer", "members": {"user:ann@example.com"}})
    bucket.set_iam_policy(policy)
    members = {binding["role"]: binding["members"] for binding in bucket.get_iam_policy().bindings}
    assert members["roles/storage.objectViewer"] == {"user:ann@example.com"}
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.set_iam_policy(stale)
    permissions = ["storage.objects.get", "storage.objects.create"]
    assert bucket.test_iam_permissions(permissions) == permissions


def test_a_permission_that_is_denied_says_which(gcs, client: storage.Client, bucket: storage.Bucket) -> None:
    message = "ann@example.com does not have storage.objects.list access to the Google Cloud Storage bucket."
    gcs.faults.add(grpc_fault("storage.objects.list", 7, message, resource="acme-data"))
    with pytest.raises(exceptions.Forbidden, match=r"does not have storage\.objects\.list access") as caught:
        list(client.list_blobs("acme-data"))
    assert caught.value.errors[0]["reason"] == "forbidden"
    bucket.blob("a").upload_from_string(b"")


def test_an_outage_ends_when_its_count_is_used_up(gcs, bucket: storage.Bucket) -> None:
    bucket.blob("a").upload_from_string(b"data")
    gcs.faults.add(grpc_fault("storage.objects.get", 14, "Try again.", resource="acme-data/a", count=1))
    with refused(exceptions.ServiceUnavailable):
        bucket.blob("a").download_as_bytes(retry=None)
    assert bucket.blob("a").download_as_bytes() == b"data"
    gcs.faults.add(grpc_fault("storage.objects.*", 8, "Slow down.", count=1, reason="rateLimitExceeded"))
    assert bucket.get_blob("a").size == 4  # the client retries


@pytest.mark.parametrize(
    ("method", "act"),
    [
        ("storage.buckets.get", lambda bucket: bucket.reload()),
        ("storage.buckets.update", lambda bucket: bucket.patch()),
        ("storage.buckets.delete", lambda bucket: bucket.delete()),
        ("storage.buckets.create", lambda bucket: bucket.client.create_bucket("acme-new")),
        ("storage.objects.get", lambda bucket: bucket.get_blob("a")),
        ("storage.objects.get", lambda bucket: bucket.blob("a").download_as_bytes()),
        ("storage.objects.create", lambda bucket: bucket.blob("a").upload_from_string(b"")),
        ("storage.objects.create", lambda bucket: bucket.blob("a").create_resumable_upload_session()),
        ("storage.objects.create", lambda bucket: bucket.copy_blob(bucket.blob("a"), bucket, "b")),
        ("storage.objects.create", lambda bucket: bucket.blob("b").compose([bucket.blob("a")])),
        ("storage.objects.update", lambda bucket: bucket.blob("a").patch()),
        ("storage.objects.delete", lambda bucket: bucket.blob("a").delete()),
    ],
)
def test_every_operation_can_be_made_to_fail(gcs, bucket: storage.Bucket, method: str, act) -> None:
    gcs.faults.add(grpc_fault(method, 7, "no"))
    with refused(exceptions.Forbidden):
        act(bucket)


NEW: list[JsonObject] = [
    {"role": "roles/storage.legacyBucketOwner", "members": ["projectEditor:p", "projectOwner:p"]},
    {"role": "roles/storage.legacyBucketReader", "members": ["projectViewer:p"]},
]
"""The bindings of a new bucket of the project p."""
ANN: JsonObject = {"role": "roles/storage.objectViewer", "members": ["user:ann@example.com"]}


@pytest.fixture
def buckets(tmp_path: Path) -> Iterator[Buckets]:
    database = Database(tmp_path / "gcs.sqlite")
    yield Buckets(database)
    database.close()


def test_the_groups_of_its_project_hold_the_legacy_roles_on_a_new_bucket(buckets: Buckets) -> None:
    buckets.create("acme-data", "p", {})
    policy: JsonObject = {"version": 1, "bindings": NEW, "etag": "CAE="}
    assert policy_of(buckets, "acme-data") == policy
    assert project_and_policy(buckets, "acme-data") == ("p", policy)


def test_the_policy_that_was_set_takes_the_place_of_the_first(buckets: Buckets) -> None:
    buckets.create("acme-data", "p", {})
    policy: JsonObject = {"version": 3, "bindings": [ANN], "etag": "CAI="}
    buckets.set_policy("acme-data", policy, "CAE=", "CAE=")
    assert policy_of(buckets, "acme-data") == policy
    assert project_and_policy(buckets, "acme-data") == ("p", policy)


def test_a_bucket_that_is_not_there_has_no_policy(buckets: Buckets) -> None:
    assert project_and_policy(buckets, "acme-data") is None
    with pytest.raises(GcsError, match="The specified bucket does not exist"):
        policy_of(buckets, "acme-data")


@pytest.mark.parametrize(
    ("number", "following"),
    [(b"\x01", b"\x02"), (b"\xfe", b"\xff"), (b"\xff", b"\x01\x00"), (b"\xff\xff", b"\x01\x00\x00")],
)
def test_the_tag_of_a_policy_counts_its_versions(number: bytes, following: bytes) -> None:
    tag = next_etag(base64.b64encode(b"\x08" + number).decode())
    assert base64.b64decode(tag) == b"\x08" + following


def test_the_first_tags_are_those_that_google_shows() -> None:
    assert (next_etag("CAE="), next_etag("CAI=")) == ("CAI=", "CAM=")


def test_terraform_makes_the_buckets_that_are_missing_and_keeps_those_that_are_there(
    buckets: Buckets,
) -> None:
    buckets.create("acme-old", "p", {"location": "EU"})
    fields: JsonObject = {"location": "US-CENTRAL1"}
    apply_terraform(buckets, {"acme-old": ("q", fields), "acme-new": ("q", fields)}, {})
    old, new = buckets.get("acme-old"), buckets.get("acme-new")
    assert (old.project, old.location, new.project, new.location) == ("p", "EU", "q", "US-CENTRAL1")


def test_bindings_of_terraform_come_beside_those_of_a_new_bucket(buckets: Buckets) -> None:
    apply_terraform(buckets, {"acme-data": ("p", {})}, {"acme-data": [ANN]})
    assert policy_of(buckets, "acme-data") == {"version": 3, "bindings": [*NEW, ANN], "etag": "CAI="}


def test_a_bucket_has_exactly_the_bindings_of_the_last_application(buckets: Buckets) -> None:
    apply_terraform(buckets, {"acme-data": ("p", {})}, {"acme-data": [ANN]})
    apply_terraform(buckets, {"acme-data": ("p", {})}, {})
    assert policy_of(buckets, "acme-data") == {"version": 3, "bindings": NEW, "etag": "CAM="}


def test_bindings_may_be_on_a_bucket_that_terraform_did_not_make(buckets: Buckets) -> None:
    buckets.create("acme-data", "p", {})
    apply_terraform(buckets, {}, {"acme-none": [ANN], "acme-data": [ANN]})
    assert policy_of(buckets, "acme-data")["bindings"] == [*NEW, ANN]
    assert buckets.find("acme-none") is None


NUMBER = project_number("p")
PROJECT: list[AclEntry] = [
    {"entity": f"project-owners-{NUMBER}", "role": "OWNER"},
    {"entity": f"project-editors-{NUMBER}", "role": "OWNER"},
    {"entity": f"project-viewers-{NUMBER}", "role": "READER"},
]
ANN_READS: AclEntry = {"entity": "user-ann@example.com", "role": "READER"}
BOB: AclEntry = {"entity": "user-bob@example.com", "role": "OWNER"}


def bucket(**fields: Any) -> Bucket:
    return Bucket("acme-data", "p", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 1, fields)


def stored(**fields: Any) -> StoredObject:
    return StoredObject.new("acme-data", "a", 1, Content("blob", 0, "AAAAAA==", None), fields)


def test_the_teams_of_a_project_have_roles_on_what_is_new() -> None:
    assert project_acl("p") == PROJECT
    assert bucket_acl(bucket()) == bucket_acl(bucket(), "defaultObjectAcl") == PROJECT
    assert object_acl(bucket(), stored()) == PROJECT


def test_a_list_that_was_set_takes_the_place_of_the_first() -> None:
    one = bucket(acl=[ANN_READS], defaultObjectAcl=[BOB])
    assert bucket_acl(one) == [ANN_READS]
    assert bucket_acl(one, "defaultObjectAcl") == [BOB]
    assert object_acl(one, stored()) == [BOB], "new objects have the bucket's list for them"
    assert object_acl(one, stored(acl=[ANN_READS])) == [ANN_READS]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("private", []),
        ("projectPrivate", []),
        ("bucketOwnerRead", []),
        ("bucketOwnerFullControl", []),
        ("authenticatedRead", [{"entity": "allAuthenticatedUsers", "role": "READER"}]),
        ("publicRead", [{"entity": "allUsers", "role": "READER"}]),
        ("publicReadWrite", [{"entity": "allUsers", "role": "WRITER"}]),
    ],
)
def test_a_predefined_list_has_entries_besides_those_of_the_project(name: str, more: list[AclEntry]) -> None:
    """https://cloud.google.com/storage/docs/access-control/lists#predefined-acl"""
    assert predefined_acl(name, bucket()) == [*PROJECT, *more]


def test_there_is_no_other_predefined_list() -> None:
    with pytest.raises(GcsError) as raised:
        predefined_acl("public", bucket())
    assert (raised.value.status, raised.value.message) == (400, "Invalid predefined ACL: public")


def test_a_bucket_with_uniform_access_takes_no_list() -> None:
    uniform = bucket(iamConfiguration={"uniformBucketLevelAccess": {"enabled": True}})
    with pytest.raises(GcsError) as raised:
        predefined_acl("private", uniform)
    assert (raised.value.status, raised.value.message) == (
        400,
        "Cannot use ACL API to update bucket policy when uniform bucket-level access is enabled. "
        "Read more at https://cloud.google.com/storage/docs/uniform-bucket-level-access",
    )


def test_an_entry_takes_the_place_of_that_of_the_same_entity() -> None:
    owner: AclEntry = {"entity": ANN_READS["entity"], "role": "OWNER"}
    assert with_entry([ANN_READS, BOB], owner) == [BOB, owner]
    assert with_entry([BOB], ANN_READS) == [BOB, ANN_READS]
    assert with_entry([], ANN_READS) == [ANN_READS]
