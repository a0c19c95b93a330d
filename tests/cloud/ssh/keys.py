"""Private keys as OpenSSH writes them."""

from __future__ import annotations

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey


def private_bytes(key: Ed25519PrivateKey | RSAPrivateKey, password: bytes = b"") -> bytes:
    """Return the bytes of a private key's file, with a passphrase or none."""
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, encryption)
