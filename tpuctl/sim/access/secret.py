"""The secret of one simulator: what proves that a request is from its user, where nothing else does."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from pathlib import Path

from tpuctl.sim.state.private_file import write_private


class Secret:
    """Kept in a file (0600) and the same after a restart: programs on hosts and shells outlive one."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            write_private(path, secrets.token_urlsafe(32).encode())
        self.text = path.read_text()

    def allows(self, authorization: str) -> bool:
        """Return whether an Authorization header has the secret, as Bearer or as the password of Basic."""
        scheme, _, value = authorization.strip().partition(" ")
        value = value.strip()
        if scheme.lower() == "bearer":
            return self._is(value)
        if scheme.lower() == "basic":
            return self._is(_password(value))
        return False

    def _is(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "surrogateescape"), self.text.encode())


def _password(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""
