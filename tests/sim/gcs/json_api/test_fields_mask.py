"""Partial responses: the fields that a `fields` parameter selects."""

from __future__ import annotations

import pytest
import requests
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, RunningGcs
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.json_api.fields_mask import select

RESOURCE = {
    "kind": "k",
    "next": "n",
    "items": [{"name": "a", "acl": [{"role": "R", "entity": "e"}]}, {"name": "b"}],
}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("kind", {"kind": "k"}),
        ("kind,next", {"kind": "k", "next": "n"}),
        ("items/name", {"items": [{"name": "a"}, {"name": "b"}]}),
        ("items(name)", {"items": [{"name": "a"}, {"name": "b"}]}),
        ("items(name,acl/role),next", {
            "next": "n", "items": [{"name": "a", "acl": [{"role": "R"}]}, {"name": "b"}],
        }),
        ("items(acl(entity))", {"items": [{"acl": [{"entity": "e"}]}, {}]}),
        ("items/*", RESOURCE | {}),
        ("*", RESOURCE),
        ("items/name,items", {"items": RESOURCE["items"]}),
        ("nothing", {}),
        ("kind/below", {"kind": "k"}),
    ],
)  # fmt: skip
def test_a_selection_returns_just_its_fields(fields: str, expected: dict[str, object]) -> None:
    expected = {"items": RESOURCE["items"]} if fields == "items/*" else expected
    assert select(RESOURCE, fields) == expected


@pytest.mark.parametrize(
    "fields", ["", ",", "a,", "a(", "a(b", "a)", "a/", "a(b))", "()", "(" * 5000, "a/" * 5000]
)
def test_an_invalid_selection_is_refused(fields: str) -> None:
    with pytest.raises(GcsError, match="Invalid field selection"):
        select(RESOURCE, fields)


def test_fields_apply_to_every_response(gcs: RunningGcs, http: requests.Session) -> None:
    base = f"{gcs.url}/storage/v1/b/{BUCKET}/o"
    upload = f"{gcs.url}/upload/storage/v1/b/{BUCKET}/o"
    response = http.post(
        upload, params={"name": "a", "uploadType": "media", "fields": "name,size"}, data=b"1"
    )
    assert response.json() == {"name": "a", "size": "1"}
    assert http.get(f"{base}/a", params={"fields": "name"}).json() == {"name": "a"}
    for name in ("b", "c/d"):
        http.post(upload, params={"name": name}, data=b"")
    listed = http.get(base, params={"fields": "items(name),nextPageToken", "maxResults": 1}).json()
    assert (listed["items"], set(listed)) == ([{"name": "a"}], {"items", "nextPageToken"})
    refused = http.get(base, params={"fields": "items("})
    assert (refused.status_code, refused.json()["error"]["errors"][0]["reason"]) == (400, "invalidParameter")


def test_the_client_lists_with_fields(client: storage.Client, bucket: storage.Bucket) -> None:
    for number in range(3):
        bucket.blob(f"a/{number}").upload_from_string(b"x")
    listing = bucket.list_blobs(fields="items(name,size),nextPageToken,prefixes", page_size=2)
    assert [(blob.name, blob.size, blob.generation) for blob in listing] == [
        (f"a/{number}", 1, None) for number in range(3)
    ]
