"""Signed URLs of google-cloud-storage: accepted until they expire."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.cloud import storage
from google.oauth2 import service_account

from tests.sim.gcs.running_server import PROJECT, RunningGcs


@pytest.fixture(scope="module")
def signer() -> service_account.Credentials:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    info = {
        "type": "service_account", "client_email": "robot@acme.iam.gserviceaccount.com",
        "private_key": pem.decode(), "token_uri": "https://oauth2.invalid/token", "project_id": PROJECT,
    }  # fmt: skip
    return service_account.Credentials.from_service_account_info(info)


@pytest.mark.parametrize("version", ["v2", "v4"])
def test_signed_urls_are_accepted_until_they_expire(
    gcs: RunningGcs,
    http: requests.Session,
    bucket: storage.Bucket,
    signer: service_account.Credentials,
    version: str,
) -> None:
    blob = bucket.blob("dir/a b")

    def signed(method: str, seconds: int = 60, **more: object) -> str:
        return blob.generate_signed_url(
            version=version,
            method=method,
            expiration=timedelta(seconds=seconds),
            credentials=signer,
            api_access_endpoint=gcs.url,
            **more,
        )

    assert http.put(signed("PUT"), data=b"data").status_code == 200
    assert http.get(signed("GET")).content == b"data"
    start = signed("RESUMABLE") if version == "v4" else signed("POST", headers={"x-goog-resumable": "start"})
    begun = http.post(start, headers={"x-goog-resumable": "start"})
    assert http.put(begun.headers["Location"], data=b"more").status_code == 200
    assert http.get(signed("GET")).content == b"more"
    old, new = {"v2": (r"\bExpires=\d+", "Expires=5"), "v4": ("Date=20", "Date=19")}[version]
    answer = http.get(re.sub(old, new, signed("GET")))
    assert (answer.status_code, "<Code>ExpiredToken</Code>" in answer.text) == (400, True)
    assert http.delete(signed("DELETE")).status_code == 204
