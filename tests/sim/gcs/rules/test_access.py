"""What uniform access and public access prevention refuse; fields that google-cloud-storage tests itself.

The entries of access control lists: https://cloud.google.com/storage/docs/access-control/lists.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import requests
from google.api_core import exceptions
from google.cloud import storage
from google.cloud.storage.constants import (
    DUAL_REGION_LOCATION_TYPE,
    NEARLINE_STORAGE_CLASS,
    PUBLIC_ACCESS_PREVENTION_ENFORCED,
    RPO_DEFAULT,
)

from tests.sim.gcs.running_server import RunningGcs
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import (
    check_acl_change,
    check_policy,
    checked_acl,
    checked_entry,
    has_uniform_access,
)

VIEWER = "roles/storage.objectViewer"
CONDITION = {"title": "always", "expression": "true"}


def conditional(bucket: storage.Bucket) -> storage.bucket.Policy:
    """Return the bucket's policy with a conditional binding more."""
    policy = bucket.get_iam_policy(requested_policy_version=3)
    policy.bindings.append({"role": VIEWER, "members": {"user:ada@example.com"}, "condition": CONDITION})
    return policy


def test_acls_cannot_be_saved_where_access_is_uniform(bucket: storage.Bucket) -> None:
    bucket.iam_configuration.uniform_bucket_level_access_enabled = True
    bucket.patch()
    blob = bucket.blob("a")
    blob.upload_from_string(b"data")
    for acl in (bucket.acl, bucket.default_object_acl, blob.acl):
        acl.loaded = True
        acl.group("readers@example.com").grant_read()
        with pytest.raises(exceptions.BadRequest, match="uniform bucket-level access is enabled"):
            acl.save()


def test_nothing_is_made_public_where_that_is_prevented(bucket: storage.Bucket) -> None:
    blob = bucket.blob("a")
    blob.upload_from_string(b"data")
    blob.make_public()
    bucket.iam_configuration.public_access_prevention = PUBLIC_ACCESS_PREVENTION_ENFORCED
    bucket.patch()
    for target in (bucket, blob):
        with pytest.raises(exceptions.PreconditionFailed, match="public access prevention is enforced"):
            target.make_public()
    policy = bucket.get_iam_policy(requested_policy_version=3)
    policy.bindings.append({"role": VIEWER, "members": {"allUsers"}})
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.set_iam_policy(policy)
    bucket.iam_configuration.public_access_prevention = "unexpected"
    with pytest.raises(exceptions.BadRequest):
        bucket.patch()


def test_conditions_need_uniform_access_and_version_3(bucket: storage.Bucket) -> None:
    with pytest.raises(exceptions.PreconditionFailed, match="enable uniform bucket-level access"):
        bucket.set_iam_policy(conditional(bucket))
    bucket.iam_configuration.uniform_bucket_level_access_enabled = True
    bucket.patch()
    policy = conditional(bucket)
    with pytest.raises(exceptions.BadRequest, match="at least 3"):
        bucket.set_iam_policy(policy)
    policy.version = 3
    assert bucket.set_iam_policy(policy).bindings == policy.bindings


def test_autoclass_has_a_class_and_the_time_of_its_last_change(bucket: storage.Bucket) -> None:
    bucket.autoclass_enabled = True
    bucket.patch()
    enabled = bucket.autoclass_toggle_time
    assert bucket.autoclass_terminal_storage_class == NEARLINE_STORAGE_CLASS
    bucket.labels = {"team": "vision"}
    bucket.patch()
    assert bucket.autoclass_toggle_time == enabled
    bucket.autoclass_enabled = False
    bucket.patch()
    assert bucket.autoclass_toggle_time > enabled


def test_a_bucket_in_two_regions_says_so(gcs: RunningGcs, bucket: storage.Bucket) -> None:
    regions = ["US-EAST1", "US-WEST1"]
    made = bucket.client.create_bucket("two-regions", location="US", data_locations=regions)
    assert (made.location_type, made.data_locations) == (DUAL_REGION_LOCATION_TYPE, regions)
    assert made.rpo == RPO_DEFAULT
    assert bucket.client.create_bucket("one-region", location="us-east1").rpo is None


def test_objects_are_retained_in_a_bucket_that_allows_it(bucket: storage.Bucket) -> None:
    made = bucket.client.create_bucket("keeps-objects", enable_object_retention=True)
    assert made.object_retention_mode == "Enabled"


def test_an_object_says_until_when_its_bucket_retains_it(bucket: storage.Bucket) -> None:
    bucket.retention_period = 60
    bucket.patch()
    blob = bucket.blob("a")
    blob.upload_from_string(b"data")
    blob.reload()
    assert blob.retention_expiration_time == blob.time_created + timedelta(seconds=60)
    assert [listed.retention_expiration_time for listed in bucket.list_blobs()] == [
        blob.retention_expiration_time
    ]
    bucket.retention_period = None
    bucket.patch()


@pytest.mark.parametrize(
    "fields",
    [
        {"ipFilter": {"mode": "Enabled"}},
        {"hierarchicalNamespace": {"enabled": True}},
        {"encryption": {"googleManagedEncryptionEnforcementConfig": {"restrictionMode": "FullyRestricted"}}},
    ],
)
def test_what_would_have_no_effect_is_refused(
    gcs: RunningGcs, http: requests.Session, fields: dict[str, object]
) -> None:
    answer = http.post(f"{gcs.url}/storage/v1/b?project=acme", json={"name": "refused-here", **fields})
    assert answer.status_code == 501
    assert http.get(f"{gcs.url}/storage/v1/b/refused-here").status_code == 404


def test_managed_folders_cannot_be_made(gcs: RunningGcs, http: requests.Session) -> None:
    url = f"{gcs.url}/storage/v1/b/acme-data/managedFolders"
    assert http.post(url, json={"name": "a/"}).status_code == 501
    assert http.get(url).status_code == 200


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("**/foobar", ["foo/foobar", "foobar"]),
        ("foo**bar", ["foo/bar", "foo/foobar", "foobar"]),
        ("**/{foobar,baz}", ["foo/baz", "foo/foobar", "foobar"]),
        ("*/ba[!a-y]", ["foo/baz"]),
    ],
)
def test_globs_match_names_with_and_without_folders(
    bucket: storage.Bucket, glob: str, names: list[str]
) -> None:
    for name in ("foo/bar", "foo/baz", "foo/foobar", "foobar"):
        bucket.blob(name).upload_from_string(b"")
    assert [blob.name for blob in bucket.list_blobs(match_glob=glob)] == names


def test_a_download_has_the_etag_of_the_resource(bucket: storage.Bucket) -> None:
    blob = bucket.blob("a")
    blob.upload_from_string(b"data")
    etag = blob.etag
    blob.download_as_bytes()
    assert blob.etag == etag


def test_a_composed_object_has_no_type_unless_it_is_given_one(bucket: storage.Bucket) -> None:
    for name in ("a", "b"):
        bucket.blob(name).upload_from_string(b"1")
    composed = bucket.blob("c")
    composed.compose([bucket.blob("a"), bucket.blob("b")])
    assert composed.content_type is None
    assert composed.download_as_bytes() == b"11"


def test_pyarrow_deletes_the_bucket_that_it_has_made(gcs: RunningGcs) -> None:
    from pyarrow.fs import GcsFileSystem

    host = gcs.url.removeprefix("http://")
    system = GcsFileSystem(endpoint_override=host, scheme="http", anonymous=True, project_id="acme")
    system.create_dir("made-by-arrow/")
    system.create_dir("made-by-arrow/folder")
    system.delete_dir("made-by-arrow/")
    assert gcs.server.store.buckets.find("made-by-arrow") is None


UNIFORM = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
ACLS = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": False}}}


def closed(prevention: str) -> dict[str, Any]:
    return {"iamConfiguration": {"publicAccessPrevention": prevention}}


def status(check: Any, bucket: dict[str, Any], changes: dict[str, Any]) -> int:
    """Return the status with which a change is refused, or 200."""
    try:
        check(bucket, changes)
    except GcsError as error:
        return error.status
    return 200


@pytest.mark.parametrize("field", ["acl", "defaultObjectAcl"])
@pytest.mark.parametrize(
    ("bucket", "entity", "refused"),
    [
        ({}, "allUsers", 200),
        (ACLS, "allUsers", 200),
        (UNIFORM, "user-ada", 400),
        (closed("enforced"), "user-ada", 200),
        (closed("enforced"), "allUsers", 412),
        (closed("enforced"), "allAuthenticatedUsers", 412),
        (closed("inherited"), "allUsers", 200),
    ],
)
def test_a_change_of_an_acl(bucket: dict[str, Any], field: str, entity: str, refused: int) -> None:
    assert status(check_acl_change, bucket, {field: [{"entity": entity, "role": "READER"}]}) == refused
    assert status(check_acl_change, bucket, {field: []}) == 200


@pytest.mark.parametrize(
    ("bucket", "policy", "refused"),
    [
        ({}, {}, 200),
        ({}, {"bindings": [{"members": ["allUsers"]}]}, 200),
        (closed("enforced"), {"bindings": [{"members": ["user:a"]}, {"members": ["allUsers"]}]}, 412),
        (closed("enforced"), {"bindings": [{"members": [5, "allAuthenticatedUsers"]}]}, 412),
        (closed("enforced"), {"bindings": [{"members": "allUsers"}]}, 200),
        ({}, {"bindings": [{"condition": CONDITION}], "version": 3}, 412),
        (UNIFORM, {"bindings": [{"condition": {}}]}, 200),
        (UNIFORM, {"bindings": [{}, {"condition": CONDITION}], "version": 3}, 200),
        (UNIFORM, {"bindings": [{"condition": CONDITION}], "version": 4}, 200),
        (UNIFORM, {"bindings": [{"condition": CONDITION}], "version": 2}, 400),
        (UNIFORM, {"bindings": [{"condition": CONDITION}], "version": "3"}, 400),
        (UNIFORM, {"bindings": [{"condition": CONDITION}]}, 400),
    ],
)
def test_a_new_policy(bucket: dict[str, Any], policy: dict[str, Any], refused: int) -> None:
    assert status(check_policy, bucket, policy) == refused


def test_access_is_uniform_where_that_is_enabled() -> None:
    assert [has_uniform_access(fields) for fields in ({}, ACLS, UNIFORM)] == [False, False, True]


ROLES = {"acl": ("OWNER", "WRITER", "READER"), "defaultObjectAcl": ("OWNER", "READER")}


@pytest.mark.parametrize("field", ROLES)
@pytest.mark.parametrize("role", ["OWNER", "WRITER", "READER", "owner", "", None])
def test_an_entry_has_a_role_of_its_list(field: str, role: Any) -> None:
    entry = {"entity": "allUsers", "role": role}
    if role in ROLES[field]:
        assert checked_entry({**entry, "etag": "x"}, field) == entry
        return
    with pytest.raises(GcsError) as raised:
        checked_entry(entry, field)
    assert (raised.value.status, raised.value.message) == (400, f"Invalid value for field: role: {role}")


@pytest.mark.parametrize("entity", ["", None, 5])
def test_an_entry_is_for_an_entity(entity: Any) -> None:
    with pytest.raises(GcsError) as raised:
        checked_entry({"entity": entity, "role": "OWNER"}, "acl")
    assert (raised.value.reason, raised.value.message) == ("required", "Required parameter: entity")


@pytest.mark.parametrize(
    "acl", [{}, "x", None, [5], [{"entity": "a"}], [{"role": "b"}], [{"entity": "a", "role": 5}],
            [{"entity": "a", "role": "b"}, {"entity": "", "role": "b"}]],
)  # fmt: skip
def test_a_list_of_another_form_is_refused(acl: Any) -> None:
    with pytest.raises(GcsError, match=r"^Invalid value for field: acl$"):
        checked_acl(acl)


def test_a_list_keeps_entities_and_roles() -> None:
    assert checked_acl([{"entity": "a", "role": "b", "kind": "c"}]) == [{"entity": "a", "role": "b"}]
    assert checked_acl([]) == []
