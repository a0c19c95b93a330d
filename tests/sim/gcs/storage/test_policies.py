"""The IAM policies of buckets: that of a new one, its tag, and what Terraform makes of them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.storage.blobs import Database
from tpuctl.sim.gcs.storage.buckets import Buckets, apply_terraform, next_etag, policy_of, project_and_policy
from tpuctl.sim.json_values import JsonObject

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
