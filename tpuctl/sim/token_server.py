"""Serves OAuth 2.0 tokens of a simulated service account, in place of oauth2.googleapis.com.

- Derives a project's number and its default service account from its name: the same on every run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
from functools import cache, cached_property
from pathlib import Path

from aiohttp import web
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tpuctl.sim.access import Guard
from tpuctl.sim.hosts.metadata.identity import Identity
from tpuctl.sim.json_values import JsonObject, parse_object
from tpuctl.sim.state import write_private


def project_number(project: str) -> int:
    """Return a number for a project, the same on every run: twelve digits, as Google's."""
    return 100_000_000_000 + stable_number(project) % 899_999_999_999


def service_account(project: str) -> str:
    """Return the address of the project's default service account."""
    return f"{project_number(project)}-compute@developer.gserviceaccount.com"


def stable_number(text: str) -> int:
    """Return a number for a text, the same on every run: 56 bits."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
"""RFC 7523: an assertion signed with the account's key is exchanged for a token."""
KEY_BITS = 2048
"""As Google's keys; ring, which clients in Rust use, refuses fewer."""
LIFETIME = 3600
SHUTDOWN = 0.01


class TokenServer:
    """Exchanges assertions of `email` for tokens; GOOGLE_APPLICATION_CREDENTIALS can name its key file."""

    def __init__(self, key_file: Path, email: str, project: str, identity: Identity, guard: Guard) -> None:
        self.key_file = key_file
        self._email = email
        self._project = project
        self._identity = identity
        self._guard = guard
        self._server: web.AppRunner | None = None
        self.uri = ""
        """Where tokens are, once it is open."""

    async def open(self, listener: socket.socket) -> None:
        """Serve on `listener`, and write the key file that names its address."""
        host, port = listener.getsockname()[:2]
        self.uri = f"http://{host}:{port}/token"
        self._write_key_file(self.uri)
        application = web.Application(middlewares=[self._guard.middleware])
        application.router.add_post("/token", self._exchange)
        self._server = web.AppRunner(application, access_log=None, shutdown_timeout=SHUTDOWN)
        await self._server.setup()
        await web.SockSite(self._server, listener).start()

    async def close(self) -> None:
        """Stop serving."""
        if self._server:
            await self._server.cleanup()

    def public_key(self, email: str) -> rsa.RSAPublicKey | None:
        """Return the public key of the account; None for any other account."""
        return self._key.public_key() if email == self._email else None

    async def _exchange(self, request: web.Request) -> web.Response:
        form = await request.post()
        if form.get("grant_type") != GRANT:
            return _refused("unsupported_grant_type", f"Invalid grant_type: {form.get('grant_type')!s}")
        try:
            claims = self._verified(str(form.get("assertion", "")))
        except (ValueError, InvalidSignature):
            return _refused("invalid_grant", "Invalid JWT Signature.")
        if claims.get("iss") != self._email:
            return _refused("invalid_grant", "Invalid grant: account not found")
        audience = claims.get("target_audience")
        if audience:
            return web.json_response({"id_token": self._identity.token(str(audience), self._email, None)})
        token = self._identity.access_token()
        return web.json_response({"access_token": token, "expires_in": LIFETIME, "token_type": "Bearer"})

    def _verified(self, assertion: str) -> JsonObject:
        """Return the claims of an assertion; raises ValueError or InvalidSignature."""
        signed, _, signature = assertion.rpartition(".")
        public = self._key.public_key()
        public.verify(_bytes(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return parse_object(_bytes(signed.partition(".")[2]))

    def _write_key_file(self, token_uri: str) -> None:
        pem = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        key = {
            "type": "service_account",
            "project_id": self._project,
            "private_key_id": "simulator",
            "private_key": pem.decode(),
            "client_email": self._email,
            "client_id": self._email.partition("-")[0],
            "token_uri": token_uri,
            "universe_domain": "googleapis.com",
        }
        write_private(self.key_file, json.dumps(key, indent=2).encode())

    @cached_property
    def _key(self) -> rsa.RSAPrivateKey:
        if self.key_file.exists():
            pem = json.loads(self.key_file.read_bytes())["private_key"].encode()
            key = serialization.load_pem_private_key(pem, password=None)
            if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= KEY_BITS:
                return key
        return _new_key()


@cache
def _new_key() -> rsa.RSAPrivateKey:
    """Return the key of all new simulators of this process: tests start thousands."""
    return rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _refused(error: str, description: str) -> web.Response:
    return web.json_response({"error": error, "error_description": description}, status=400)
