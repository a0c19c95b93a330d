"""The access control lists that buckets and objects have by themselves, by name and entry by entry."""

from __future__ import annotations

from typing import Any

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import AclEntry
from tpuctl.sim.gcs.storage.blobs import Content
from tpuctl.sim.gcs.storage.buckets import Bucket
from tpuctl.sim.gcs.storage.stored_object import (
    StoredObject,
    bucket_acl,
    object_acl,
    predefined_acl,
    project_acl,
    with_entry,
)
from tpuctl.sim.token_server import project_number

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
