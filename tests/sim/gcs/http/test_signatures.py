"""What a signature is of: the lines of a request for V2 and V4, and whether a key has signed them."""

from __future__ import annotations

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from multidict import CIMultiDict, MultiDict

from tpuctl.sim.gcs.authorization import SignedRequest

ROBOT = "robot@acme.iam.gserviceaccount.com"
SCOPE = "20260102/auto/storage/goog4_request"
V4_QUERY = {
    "X-Goog-Algorithm": "GOOG4-RSA-SHA256",
    "X-Goog-Credential": f"{ROBOT}/{SCOPE}",
    "X-Goog-Date": "20260102T030405Z",
    "X-Goog-Expires": "60",
    "X-Goog-SignedHeaders": "host;x-goog-meta-a",
    "a b": "c/d~",
}
V4_LINES = [
    "GET",
    "/acme-data/dir/a%20b",
    "X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Credential=robot%40acme.iam.gserviceaccount.com%2F20260102%2Fauto"
    "%2Fstorage%2Fgoog4_request&X-Goog-Date=20260102T030405Z&X-Goog-Expires=60"
    "&X-Goog-SignedHeaders=host%3Bx-goog-meta-a&a%20b=c%2Fd~",
    "host:storage.googleapis.com",
    "x-goog-meta-a:1 2,3",
    "",
    "host;x-goog-meta-a",
    "UNSIGNED-PAYLOAD",
]
V2_LINES = ["GET", "", "", "1800000000", "/acme-data/dir/a%20b"]


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def sign(key: rsa.RSAPrivateKey, text: str) -> bytes:
    return key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())


def signed_v4(
    key: rsa.RSAPrivateKey,
    lines: list[str],
    method: str = "GET",
    headers: list[tuple[str, str]] | None = None,
) -> SignedRequest:
    """Return a request, and in it the signature of these lines."""
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    text = "\n".join(("GOOG4-RSA-SHA256", V4_QUERY["X-Goog-Date"], SCOPE, digest))
    query = MultiDict({**V4_QUERY, "X-Goog-Signature": sign(key, text).hex()})
    fields = [("Host", "storage.googleapis.com"), ("X-Goog-Meta-A", " 1   2 "), ("x-goog-meta-a", "3")]
    return SignedRequest(method, "/acme-data/dir/a%20b", query, CIMultiDict([*fields, *(headers or [])]))


def signed_v2(
    key: rsa.RSAPrivateKey,
    lines: list[str],
    method: str = "GET",
    query: dict[str, str] | None = None,
    headers: list[tuple[str, str]] | None = None,
) -> SignedRequest:
    signature = base64.b64encode(sign(key, "\n".join(lines))).decode()
    common = {"GoogleAccessId": ROBOT, "Expires": "1800000000", "Signature": signature}
    fields = CIMultiDict([("Host", "storage.googleapis.com"), *(headers or [])])
    return SignedRequest(method, "/acme-data/dir/a%20b", MultiDict({**common, **(query or {})}), fields)


def test_the_signer_is_named_by_the_request(key: rsa.RSAPrivateKey) -> None:
    assert signed_v4(key, V4_LINES).signer == signed_v2(key, V2_LINES).signer == ROBOT


def test_v4_signs_method_path_query_and_the_headers_that_it_names(key: rsa.RSAPrivateKey) -> None:
    public = key.public_key()
    assert signed_v4(key, V4_LINES).is_signed_with(public)
    for place, other in (
        (0, "PUT"),
        (1, "/acme-data/dir/a b"),
        (2, ""),
        (3, "host:other"),
        (4, "x-goog-meta-a:1"),
    ):
        lines = [*V4_LINES[:place], other, *V4_LINES[place + 1 :]]
        assert not signed_v4(key, lines).is_signed_with(public)


def test_v4_signs_the_checksum_of_a_payload_that_has_one(key: rsa.RSAPrivateKey) -> None:
    headers = [("x-goog-content-sha256", "abc")]
    assert signed_v4(key, [*V4_LINES[:-1], "abc"], headers=headers).is_signed_with(key.public_key())
    assert not signed_v4(key, V4_LINES, headers=headers).is_signed_with(key.public_key())


@pytest.mark.parametrize(
    ("method", "signed", "good"),
    [
        ("GET", "GET", True),
        ("HEAD", "HEAD", True),
        ("HEAD", "GET", True),
        ("GET", "HEAD", False),
        ("PUT", "GET", False),
        ("DELETE", "DELETE", True),
    ],
)
def test_what_is_signed_for_get_serves_head_too(
    key: rsa.RSAPrivateKey, method: str, signed: str, good: bool
) -> None:
    for request in (
        signed_v4(key, [signed, *V4_LINES[1:]], method),
        signed_v2(key, [signed, *V2_LINES[1:]], method),
    ):
        assert request.is_signed_with(key.public_key()) is good


@pytest.mark.parametrize(
    ("query", "resource"),
    [
        ({}, "/acme-data/dir/a%20b"),
        ({"generation": "5", "userProject": "p"}, "/acme-data/dir/a%20b"),
        ({"response-content-type": "a", "response-content-disposition": "b"}, "/acme-data/dir/a%20b"),
        ({"uploadId": "7", "acl": ""}, "/acme-data/dir/a%20b?acl=&uploadId=7"),
    ],
)
def test_v2_signs_the_parameters_that_choose_what_is_done(
    key: rsa.RSAPrivateKey, query: dict[str, str], resource: str
) -> None:
    assert signed_v2(key, [*V2_LINES[:-1], resource], query=query).is_signed_with(key.public_key())


def test_v2_signs_checksum_type_and_the_headers_of_google_but_for_keys(key: rsa.RSAPrivateKey) -> None:
    headers = [
        ("Content-MD5", "abc"), ("Content-Type", "text/plain"), ("X-Goog-Meta-B", "2"),
        ("x-goog-acl", "private"), ("X-Goog-Encryption-Key", "secret"),
        ("X-Goog-Encryption-Key-Sha256", "hash"), ("X-Other", "no"),
        ("x-goog-encryption-algorithm", "AES256"),
    ]  # fmt: skip
    lines = [
        "GET", "abc", "text/plain", "1800000000", "x-goog-acl:private", "x-goog-encryption-algorithm:AES256",
        "x-goog-meta-b:2", "/acme-data/dir/a%20b",
    ]  # fmt: skip
    assert signed_v2(key, lines, headers=headers).is_signed_with(key.public_key())


def test_the_signature_of_another_key_or_none_at_all_is_wrong(key: rsa.RSAPrivateKey) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    assert not signed_v4(key, V4_LINES).is_signed_with(other)
    assert not signed_v2(key, V2_LINES).is_signed_with(other)
    for request, name in (
        (signed_v4(key, V4_LINES), "X-Goog-Signature"),
        (signed_v2(key, V2_LINES), "Signature"),
    ):
        for wrong in ("", "xyz", "abcd"):
            query = MultiDict({**request.query, name: wrong})
            changed = SignedRequest(request.method, request.path, query, request.headers)
            assert not changed.is_signed_with(key.public_key())
