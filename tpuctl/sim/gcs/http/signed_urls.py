"""Checks signed URLs: their expiry, and their signature by the key of the account that they name."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from multidict import MultiMapping

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.rules.parameters import parse_number

V4 = "GOOG4-RSA-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
READS = {"HEAD": "GET"}
"""A URL that is signed for GET serves HEAD, too."""
UNSIGNED_V2 = {
    "GoogleAccessId", "Expires", "Signature", "generation", "userProject", "response-content-type",
    "response-content-disposition",
}  # fmt: skip
"""Parameters that V2 does not sign."""
KEYS_OF_CALLER = ("x-goog-encryption-key", "x-goog-encryption-key-sha256")
LONGEST = 7 * 86400
"""Seconds that a V4 signature can be valid."""

REQUIRED_V4 = (
    "X-Goog-Algorithm",
    "X-Goog-Credential",
    "X-Goog-Date",
    "X-Goog-Expires",
    "X-Goog-SignedHeaders",
)
"""Parameters that `X-Goog-Signature` requires."""


MISMATCH = (
    "The request signature we calculated does not match the signature you provided. Check your Google secret "
    "key and signing method."
)

KeyOf = Callable[[str], RSAPublicKey | None]
"""Returns the public key of a service account; None for an account that has none here."""


def check_signed_url(request: web.Request, key_of: KeyOf | None) -> None:
    """Raise 400 when a signature, V2 or V4, has expired or lacks a parameter, 403 when it is wrong.

    Without `key_of` only the expiry counts. The URI of an upload that has begun carries no signature.
    """
    query, now = request.query, datetime.now(UTC)
    if "X-Goog-Signature" in query:
        _check_v4(query, now)
    elif {"GoogleAccessId", "Signature"} <= set(query):
        _check_v2(query, now)
    else:
        return
    if key_of and "upload_id" not in query:
        _check_signature(
            SignedRequest(request.method, request.rel_url.raw_path, query, request.headers), key_of
        )


def _check_signature(signed: SignedRequest, key_of: KeyOf) -> None:
    key = key_of(signed.signer)
    if key is None:
        message = (
            f"The simulator does not know the key of {signed.signer}: sign with the key file that "
            "GOOGLE_APPLICATION_CREDENTIALS names after `tpuctl sim env`."
        )
        raise GcsError(403, message, xml_code="InvalidAccessKeyId")
    if not signed.is_signed_with(key):
        raise GcsError(403, MISMATCH, xml_code="SignatureDoesNotMatch")


def _check_v2(query: Mapping[str, str], now: datetime) -> None:
    if now.timestamp() > parse_number("Expires", query.get("Expires", "")):
        raise _expired()


def _check_v4(query: Mapping[str, str], now: datetime) -> None:
    missing = [name for name in REQUIRED_V4 if not query.get(name)]
    if missing:
        raise GcsError(400, f"Missing query parameter {missing[0]}", xml_code="AuthenticationRequired")
    seconds = parse_number("X-Goog-Expires", query["X-Goog-Expires"])
    try:
        signed = datetime.strptime(query["X-Goog-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise GcsError(400, "Invalid argument: X-Goog-Date", xml_code="InvalidArgument") from error
    if seconds > LONGEST:
        raise GcsError(400, "X-Goog-Expires is longer than seven days.", xml_code="InvalidArgument")
    if now > signed + timedelta(seconds=seconds):
        raise _expired()


def _expired() -> GcsError:
    return GcsError(400, "Invalid argument: the signed URL has expired.", xml_code="ExpiredToken")


# Computes what the signature of a signed URL was made of, for V4 and V2, and verifies it.
#
# https://cloud.google.com/storage/docs/authentication/canonical-requests and
# https://cloud.google.com/storage/docs/access-control/signed-urls-v2


@dataclass(frozen=True)
class SignedRequest:
    """A request with a signature in its query; `path` is percent-encoded."""

    method: str
    path: str
    query: MultiMapping[str]
    headers: MultiMapping[str]

    @property
    def signer(self) -> str:
        """The service account that the URL names."""
        if "X-Goog-Credential" in self.query:
            return self.query["X-Goog-Credential"].partition("/")[0]
        return self.query["GoogleAccessId"]

    def is_signed_with(self, key: RSAPublicKey) -> bool:
        """Return whether the signature is that of this request, as it is or, for HEAD, as a GET."""
        methods = {self.method, READS.get(self.method, self.method)}
        return any(self._verifies(key, method) for method in methods)

    def _verifies(self, key: RSAPublicKey, method: str) -> bool:
        try:
            if "X-Goog-Signature" in self.query:
                signature, text = bytes.fromhex(self.query["X-Goog-Signature"]), self._text_v4(method)
            else:
                signature, text = base64.b64decode(self.query["Signature"]), self._text_v2(method)
            key.verify(signature, text.encode(), padding.PKCS1v15(), hashes.SHA256())
        except (InvalidSignature, binascii.Error, ValueError):
            return False
        return True

    def _text_v4(self, method: str) -> str:
        scope = self.query["X-Goog-Credential"].partition("/")[2]
        digest = hashlib.sha256(self._canonical_v4(method).encode()).hexdigest()
        return "\n".join((V4, self.query["X-Goog-Date"], scope, digest))

    def _canonical_v4(self, method: str) -> str:
        signed = self.query["X-Goog-SignedHeaders"]
        headers = [f"{name}:{self._header(name)}\n" for name in signed.split(";")]
        query = _encoded(self.query, {"X-Goog-Signature"})
        payload = self.headers.get("x-goog-content-sha256", UNSIGNED)
        return "\n".join((method, self.path, query, "".join(headers), signed, payload))

    def _text_v2(self, method: str) -> str:
        names = sorted({name.lower() for name in self.headers} - {*KEYS_OF_CALLER})
        extension = [f"{name}:{self._header(name)}\n" for name in names if name.startswith("x-goog-")]
        query = _encoded(self.query, UNSIGNED_V2)
        resource = f"{self.path}?{query}" if query else self.path
        fields = (method, self._header("content-md5"), self._header("content-type"), self.query["Expires"])
        return "\n".join((*fields, "".join(extension) + resource))

    def _header(self, name: str) -> str:
        return ",".join(" ".join(value.split()) for value in self.headers.getall(name, ()))


def _encoded(query: MultiMapping[str], without: set[str]) -> str:
    pairs = sorted(
        (quote(name, safe="-_.~"), quote(query[name], safe="-_.~")) for name in set(query) - without
    )
    return "&".join(f"{name}={value}" for name, value in pairs)
