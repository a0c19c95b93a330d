"""The names of objects: hostile ones stay in the store, invalid ones are refused."""

from __future__ import annotations

import pytest
import requests
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, RunningGcs, blob_files


@pytest.mark.parametrize(
    "name",
    [
        "../../escape",
        "/etc/passwd",
        "a/../../../b",
        "....//",
        "~",
        "con",
        "a\\..\\b",
        "%2e%2e",
        "\x00",
        "é" * 512,
    ],
)
def test_no_name_leaves_the_stores_folder(gcs: RunningGcs, bucket: storage.Bucket, name: str) -> None:
    before = {path.relative_to(gcs.root.parent).parts[0] for path in gcs.root.parent.rglob("*")}
    bucket.blob(name).upload_from_string(name)
    assert bucket.blob(name).download_as_bytes() == name.encode()
    assert [blob.name for blob in bucket.list_blobs()] == [name]
    assert {path.relative_to(gcs.root.parent).parts[0] for path in gcs.root.parent.rglob("*")} == before
    assert len(blob_files(gcs.root)) == 1


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "a\rb", "é" * 513, ".well-known/acme-challenge/x"])
def test_invalid_names_are_refused(gcs: RunningGcs, http: requests.Session, name: str) -> None:
    answer = http.post(f"{gcs.url}/upload/storage/v1/b/{BUCKET}/o", params={"name": name}, data=b"x")
    assert answer.status_code == 400
    assert answer.json()["error"]["errors"][0]["reason"] in ("invalid", "required")
