"""Signed URLs of google-cloud-storage: accepted for what was signed until they expire, for nothing else.

What a signature is of: the lines of a request for V2 and V4, and whether a key has signed them.
"""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
import requests
from aiohttp.test_utils import make_mocked_request
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from google.cloud import storage
from google.oauth2 import service_account
from multidict import CIMultiDict, MultiDict

from tests.running_simulator import RunningSimulator
from tests.sim.gcs.running_server import PROJECT, RunningGcs
from tpuctl.sim.gcs import authorization
from tpuctl.sim.gcs.authorization import SignedRequest
from tpuctl.sim.gcs.errors import GcsError

ROBOT = "robot@acme.iam.gserviceaccount.com"


def account(email: str) -> tuple[service_account.Credentials, rsa.RSAPublicKey]:
    """Return the credentials of a new service account, and its public key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    info = {
        "type": "service_account", "client_email": email, "private_key": pem.decode(),
        "token_uri": "https://oauth2.invalid/token", "project_id": PROJECT,
    }  # fmt: skip
    return service_account.Credentials.from_service_account_info(info), key.public_key()


@pytest.fixture(scope="module")
def robot() -> tuple[service_account.Credentials, rsa.RSAPublicKey]:
    return account(ROBOT)


@pytest.fixture
def signer(
    gcs: RunningGcs, robot: tuple[service_account.Credentials, rsa.RSAPublicKey]
) -> service_account.Credentials:
    credentials, gcs.keys[ROBOT] = robot
    return credentials


@pytest.fixture(scope="module")
def impostor() -> service_account.Credentials:
    """The same account with another key."""
    return account(ROBOT)[0]


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


@pytest.mark.parametrize("version", ["v2", "v4"])
def test_a_signature_is_good_for_its_own_request_alone(
    gcs: RunningGcs,
    http: requests.Session,
    bucket: storage.Bucket,
    signer: service_account.Credentials,
    impostor: service_account.Credentials,
    version: str,
) -> None:
    blob = bucket.blob("dir/ü+b&c")
    blob.upload_from_string(b"data")

    def signed(method: str, by: service_account.Credentials = signer, **more: object) -> str:
        return blob.generate_signed_url(
            version=version,
            method=method,
            expiration=timedelta(seconds=60),
            credentials=by,
            api_access_endpoint=gcs.url,
            **more,
        )

    def refused(answer: requests.Response) -> bool:
        return answer.status_code == 403 and "<Code>SignatureDoesNotMatch</Code>" in answer.text

    good = signed("GET")
    assert http.get(good).content == b"data"
    assert http.head(good).status_code == 200
    assert refused(http.put(good, data=b"other"))
    assert refused(http.delete(good))
    assert refused(http.get(good.replace("/dir/", "/dor/")))
    assert refused(http.get(good + "&acl"))
    assert refused(http.get(signed("GET", impostor)))
    assert refused(http.get(re.sub("ignature=[^&]*", "ignature=abc%3D", good)))
    assert http.get(signed("GET", response_disposition="attachment; filename=a b")).status_code == 200
    put = signed("PUT", headers={"x-goog-meta-a": "1  2"}, content_type="text/plain")
    assert http.put(put, data=b"x", headers={"x-goog-meta-a": "1 2", "Content-Type": "text/plain"}).ok
    assert refused(http.put(put, data=b"x", headers={"x-goog-meta-a": "3", "Content-Type": "text/plain"}))
    assert bucket.blob(blob.name).download_as_bytes() == b"x"


def test_an_account_whose_key_the_simulator_does_not_have_is_refused(
    gcs: RunningGcs, http: requests.Session, bucket: storage.Bucket
) -> None:
    stranger, _ = account("stranger@acme.iam.gserviceaccount.com")
    url = bucket.blob("a").generate_signed_url(
        version="v4", expiration=60, credentials=stranger, api_access_endpoint=gcs.url
    )
    answer = http.get(url)
    assert answer.status_code == 403
    assert "does not know the key of stranger@acme.iam.gserviceaccount.com" in answer.text


def test_the_key_of_a_simulated_shell_signs(simulator: RunningSimulator, http: requests.Session) -> None:
    endpoints = simulator.simulator.endpoints
    credentials = service_account.Credentials.from_service_account_file(
        endpoints["environment"]["GOOGLE_APPLICATION_CREDENTIALS"]
    )
    client = storage.Client(endpoints["project"], credentials)
    url = (
        client.bucket(endpoints["bucket"])
        .blob("a")
        .generate_signed_url(
            version="v4", method="PUT", expiration=60, api_access_endpoint=endpoints["storage"]
        )
    )
    assert http.put(url, data=b"data").status_code == 200
    assert http.get(url).status_code == 403


NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
WEEK = 7 * 86400


class Clock(datetime):
    """The time at which signatures are checked."""

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        return NOW


def v4(**changed: str | None) -> dict[str, str]:
    """Return the parameters of a signature that is made now."""
    named = {f"X-Goog-{name}": value for name, value in changed.items()}
    parameters = {
        "X-Goog-Algorithm": "GOOG4-RSA-SHA256", "X-Goog-Credential": "ann", "X-Goog-Date": "20260102T030405Z",
        "X-Goog-Expires": "60", "X-Goog-SignedHeaders": "host", "X-Goog-Signature": "ab",
    }  # fmt: skip
    return {name: value for name, value in {**parameters, **named}.items() if value is not None}


def v2(expires: float) -> dict[str, str]:
    return {"GoogleAccessId": "ann", "Signature": "ab", "Expires": str(int(NOW.timestamp() + expires))}


EXPIRED = "ExpiredToken"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (v4(), ""),
        (v4(Date="20260102T030305Z"), ""),
        (v4(Date="20260102T030304Z"), EXPIRED),
        (v4(Expires="0"), ""),
        (v4(Expires=str(WEEK)), ""),
        (v4(Expires=str(WEEK + 1)), "InvalidArgument"),
        (v4(Date="yesterday"), "InvalidArgument"),
        *(
            (v4(**{name: value}), "AuthenticationRequired")
            for name in ("Algorithm", "Credential", "Date", "Expires", "SignedHeaders")
            for value in (None, "")
        ),
        (v2(0), ""),
        (v2(-1), EXPIRED),
        ({"Signature": "ab", "Expires": "1"}, ""),
        ({"GoogleAccessId": "ann", "Expires": "1"}, ""),
    ],
)
def test_a_signature_is_good_for_a_time(
    monkeypatch: pytest.MonkeyPatch, query: dict[str, str], code: str
) -> None:
    """Without the keys of accounts only the time counts."""
    monkeypatch.setattr(authorization, "datetime", Clock)
    request = make_mocked_request("GET", f"/acme-data/a?{urlencode(query)}")
    if not code:
        authorization.check_signed_url(request, None)
        return
    with pytest.raises(GcsError) as raised:
        authorization.check_signed_url(request, None)
    assert (raised.value.status, raised.value.xml_code) == (400, code)
    if code == "AuthenticationRequired":
        (missing,) = v4().keys() - {name for name, value in query.items() if value}
        assert raised.value.message == f"Missing query parameter {missing}"


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
