"""Recognises files that hold credentials, by their names and their first bytes."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

NAMES = (
    ".env", ".env.*", "*.env", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.ppk", "*.p12", "*.pfx",
    "*.jks",
    "*.keystore", "*.kdbx", ".netrc", "_netrc", ".pgpass", ".pypirc", ".git-credentials", ".htpasswd",
    ".dockercfg", ".boto", "application_default_credentials.json", "kaggle.json", "*.tfstate",
    "*.tfstate.backup", ".s3cfg", ".databrickscfg", "rclone.conf", "*.env.bak", "*.env.old",
)  # fmt: skip
"""Names of files that hold credentials in their usual use."""
TEMPLATES = (".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults")
"""Files beside those that hold none."""
FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".azure", ".kube", ".docker", "gcloud"})
"""Folders of programs that keep their credentials there."""
KEY_SUFFIXES = frozenset({".pem", ".key", ".p8", ".crt", ".cer", ".json", ".txt", ""})
"""Files that may hold a key and nothing else: certificates alone are public."""
COPY_SUFFIXES = frozenset({".bak", ".backup", ".old", ".orig", ".save"})
"""What programs and people append to the name of a copy."""
_PRIVATE_KEY = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_GOOGLE = re.compile(rb'"type"\s*:\s*"(?:service_account|authorized_user|external_account_authorized_user)"')


def credential_kind(name: str, content: bytes) -> str:
    """Return what credentials a file holds, such as "a private key", or "" for any other file.

    `name` is its path with slashes; `content` needs not be complete.
    """
    path = PurePosixPath(name)
    base = path.name.lower()
    original = PurePosixPath(base)
    suffix = original.with_suffix("").suffix if original.suffix in COPY_SUFFIXES else original.suffix
    if suffix in KEY_SUFFIXES and _PRIVATE_KEY.search(content):
        return "a private key"
    if suffix == ".json" and _GOOGLE.search(content):
        return "a Google credential"
    if base in TEMPLATES:
        return ""
    is_named = any(fnmatchcase(base, pattern) for pattern in NAMES)
    return "credentials" if is_named or FOLDERS.intersection(path.parts[:-1]) else ""
