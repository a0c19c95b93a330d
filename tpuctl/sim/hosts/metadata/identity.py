"""Issues access tokens and identity tokens of a host's service account."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tpuctl.sim.json_values import JsonValue
from tpuctl.sim.state import write_private

ISSUER = "https://accounts.google.com"
LIFETIME = 3600
"""Seconds that an identity token is valid."""


class Signer:
    """Signs JSON web tokens with a key of this simulator, kept in a file; made when first used."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def sign(self, claims: Mapping[str, JsonValue]) -> str:
        """Return a token signed with RS256, as Google's are."""
        head = {"alg": "RS256", "kid": "simulator", "typ": "JWT"}
        body = ".".join(_base64(json.dumps(part).encode()) for part in (head, claims))
        signature = self._key.sign(body.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{body}.{_base64(signature)}"

    def public_key(self) -> bytes:
        """Return the PEM that verifies the tokens."""
        return self._key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    @cached_property
    def _key(self) -> rsa.RSAPrivateKey:
        if self._path.exists():
            key = serialization.load_pem_private_key(self._path.read_bytes(), password=None)
            assert isinstance(key, rsa.RSAPrivateKey)
            return key
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_private(self._path, pem)
        return key


class Identity:
    """The tokens of one machine's service account; the access token is kept in a file."""

    def __init__(self, path: Path, signer: Signer) -> None:
        self._path = path
        self._signer = signer

    def access_token(self) -> str:
        """Return the access token; the first call makes it."""
        try:
            return self._path.read_text()
        except FileNotFoundError:
            token = f"ya29.{secrets.token_urlsafe(32)}"
            write_private(self._path, token.encode())
            return token

    def token(self, audience: str, email: str, details: Mapping[str, JsonValue] | None) -> str:
        """Return an identity token for `audience`; `details` of the instance are for `format=full`."""
        now = int(time.time())
        subject = str(int.from_bytes(email.encode()[:8], "big"))
        claims: dict[str, JsonValue] = {
            "aud": audience,
            "azp": subject,
            "email": email,
            "email_verified": True,
            "exp": now + LIFETIME,
            "iat": now,
            "iss": ISSUER,
            "sub": subject,
        }
        if details is not None:
            claims["google"] = {"compute_engine": dict(details)}
        return self._signer.sign(claims)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
