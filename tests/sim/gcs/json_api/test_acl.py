"""Access control lists: whole ones, and single entries."""

from __future__ import annotations

import pytest
import requests
from google.api_core import exceptions
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, RunningGcs


def test_a_full_projection_shows_lists_and_owners(client: storage.Client, bucket: storage.Bucket) -> None:
    bucket.blob("a").upload_from_string(b"")
    assert "acl" not in bucket.get_blob("a")._properties
    bucket.reload(projection="full")
    assert {entry["role"] for entry in bucket._properties["acl"]} == {"OWNER", "READER"}
    (listed,) = list(bucket.list_blobs(projection="full"))
    assert listed._properties["owner"]["entity"].startswith("project-owners-")
    with pytest.raises(exceptions.BadRequest, match="projection"):
        bucket.reload(projection="most")


def test_access_control_lists_are_kept(client: storage.Client, bucket: storage.Bucket) -> None:
    blob = bucket.blob("a")
    blob.upload_from_string(b"", predefined_acl="publicRead")
    blob.acl.reload()
    assert blob.acl.all().get_roles() == {"READER"}
    blob.acl.user("ann@example.com").grant_owner()
    blob.acl.save()
    blob.acl.reload()
    assert {"entity": "user-ann@example.com", "role": "OWNER"} in list(blob.acl)
    bucket.default_object_acl.reload()
    bucket.default_object_acl.group("team@example.com").grant_read()
    bucket.default_object_acl.save()
    bucket.blob("b").upload_from_string(b"")
    entities = {entry["entity"] for entry in bucket.blob("b").acl}
    assert "group-team@example.com" in entities
    bucket.iam_configuration.uniform_bucket_level_access_enabled = True
    bucket.patch()
    with pytest.raises(exceptions.BadRequest, match="uniform bucket-level access"):
        blob.acl.reload()


def test_entries_of_an_acl_are_added_and_deleted_one_by_one(gcs: RunningGcs, http: requests.Session) -> None:
    for path in (f"b/{BUCKET}/acl", f"b/{BUCKET}/defaultObjectAcl", f"b/{BUCKET}/o/a/acl"):
        url = f"{gcs.url}/storage/v1/{path}"
        http.put(f"{gcs.url}/{BUCKET}/a", data=b"")
        entry = {"entity": "user-ann", "role": "READER"}
        assert entry.items() <= http.post(url, json=entry).json().items()
        assert http.patch(f"{url}/user-ann", json={"role": "OWNER"}).json()["role"] == "OWNER"
        assert http.get(f"{url}/user-ann").json()["role"] == "OWNER"
        assert len(http.get(url).json()["items"]) == 4
        assert http.delete(f"{url}/user-ann").status_code == 204
        assert http.get(f"{url}/user-ann").status_code == 404
        for nonsense in (
            {"role": "READER"},
            {"entity": "user-x", "role": "KING"},
            {"entity": 5, "role": "OWNER"},
        ):
            assert http.post(url, json=nonsense).status_code == 400
