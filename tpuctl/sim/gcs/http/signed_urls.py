"""Checks signed URLs: their expiry, and their signature by the key of the account that they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.http.signatures import SignedRequest
from tpuctl.sim.gcs.rules.parameters import parse_number

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
