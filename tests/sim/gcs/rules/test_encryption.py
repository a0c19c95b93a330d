"""Keys of callers and of Cloud KMS are refused by every API, and nothing is stored without its key."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import requests
from google.api_core import exceptions
from google.cloud import storage

from tests.sim.gcs.running_server import BUCKET, RunningGcs, refused
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules import refuse_default_key, refuse_key_of_object, refuse_keys

KEY = b"0123456789abcdef" * 2
KMS = "projects/acme/locations/eu/keyRings/r/cryptoKeys/k"
REFUSAL = "The simulator keeps no encryption keys"

CALLS: dict[str, Callable[[storage.Bucket], object]] = {
    "upload": lambda bucket: bucket.blob("new", encryption_key=KEY).upload_from_string("secret"),
    "upload in parts": lambda bucket: bucket.blob(
        "new", encryption_key=KEY, chunk_size=256 << 10
    ).upload_from_string(bytes(300 << 10)),
    "upload for KMS": lambda bucket: bucket.blob("new", kms_key_name=KMS).upload_from_string("secret"),
    "download": lambda bucket: bucket.blob("plain", encryption_key=KEY).download_as_bytes(),
    "rewrite": lambda bucket: bucket.blob("new", encryption_key=KEY).rewrite(bucket.blob("plain")),
    "rewrite for KMS": lambda bucket: bucket.blob("new", kms_key_name=KMS).rewrite(bucket.blob("plain")),
    "rotation": lambda bucket: bucket.blob("new").rewrite(bucket.blob("plain", encryption_key=KEY)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_googles_client_is_told(bucket: storage.Bucket, call: Callable[[storage.Bucket], object]) -> None:
    bucket.blob("plain").upload_from_string("plain")
    with refused(exceptions.MethodNotImplemented, match=REFUSAL):
        call(bucket)
    assert [blob.name for blob in bucket.list_blobs()] == ["plain"]


def test_a_bucket_has_no_default_key(client: storage.Client, bucket: storage.Bucket) -> None:
    other = client.bucket("acme-keys")
    other.default_kms_key_name = KMS
    with pytest.raises(exceptions.MethodNotImplemented, match=REFUSAL):
        other.create()
    bucket.reload()
    bucket.default_kms_key_name = KMS
    with pytest.raises(exceptions.MethodNotImplemented, match=REFUSAL):
        bucket.patch()
    assert [listed.name for listed in client.list_buckets()] == [BUCKET]
    bucket.reload()
    assert bucket.default_kms_key_name is None


def test_so_is_the_xml_api_and_a_call_in_a_batch(gcs: RunningGcs, http: requests.Session) -> None:
    url = f"{gcs.url}/{BUCKET}/o"
    for header in ("x-goog-encryption-algorithm", "X-Goog-Encryption-Kms-Key-Name"):
        answer = http.put(url, data=b"1", headers={header: "AES256"})
        assert (answer.status_code, REFUSAL in answer.text) == (501, True)
    source = {"x-goog-copy-source": f"{BUCKET}/o", "x-goog-copy-source-encryption-algorithm": "AES256"}
    assert http.put(url, headers=source).status_code == 501
    named = http.post(f"{gcs.url}/upload/storage/v1/b/{BUCKET}/o?name=o&kmsKeyName={KMS}", data=b"1")
    assert named.status_code == 501
    part = (
        "--b\r\nContent-Type: application/http\r\n\r\n"
        f"GET /storage/v1/b/{BUCKET}/o/o HTTP/1.1\r\nx-goog-encryption-algorithm: AES256\r\n\r\n\r\n--b--"
    )
    answer = http.post(
        f"{gcs.url}/batch/storage/v1", data=part, headers={"Content-Type": "multipart/mixed; boundary=b"}
    )
    assert "501" in answer.text
    assert http.get(url).status_code == 404


@pytest.mark.parametrize(
    ("headers", "query", "named"),
    [
        (["X-Goog-Encryption-Key"], [], "X-Goog-Encryption-Key"),
        (["Content-Type", "x-goog-copy-source-encryption-key"], [], "x-goog-copy-source-encryption-key"),
        ([], ["name", "kmsKeyName"], "kmsKeyName"),
        ([], ["destinationKmsKeyName"], "destinationKmsKeyName"),
        (["x-goog-encryption", "x-goog-meta-x-goog-encryption-key"], ["KmsKeyName", "kms"], ""),
    ],
)
def test_a_request_that_names_a_key(headers: list[str], query: list[str], named: str) -> None:
    if not named:
        refuse_keys(headers, query)
        return
    with pytest.raises(GcsError) as raised:
        refuse_keys(headers, query)
    assert (raised.value.status, f"({named})" in raised.value.message) == (501, True)


def test_a_resource_that_names_a_key() -> None:
    refuse_key_of_object({"kmsKeyName": "", "customerEncryption": {}, "name": "a"})
    for field in ("kmsKeyName", "customerEncryption"):
        with pytest.raises(GcsError, match=rf"\({field}\)"):
            refuse_key_of_object({field: "x"})
    refuse_default_key({"defaultKmsKeyName": "", "googleManagedEncryptionEnforcementConfig": {}, "x": "y"})
    for field in ("defaultKmsKeyName", "customerManagedEncryptionEnforcementConfig"):
        with pytest.raises(GcsError, match=rf"\(encryption\.{field}\)"):
            refuse_default_key({field: {"a": "b"}})
