"""Buckets through the real client: creation, names, fields, IAM policies; and injected faults."""

from __future__ import annotations

import pytest
from google.api_core import exceptions
from google.cloud import storage

from tests.sim.gcs.running_server import refused
from tpuctl.sim.faults import grpc_fault


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
