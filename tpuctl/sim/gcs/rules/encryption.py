"""Refuses encryption keys of callers: an object that ignored its key would be readable without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.json_values import JsonValue

HEADERS = ("x-goog-encryption-", "x-goog-copy-source-encryption-")
"""How the headers begin that name a key: of the caller, or one of Cloud KMS (XML API)."""
PARAMETERS = frozenset({"kmsKeyName", "destinationKmsKeyName"})
FIELDS = ("kmsKeyName", "customerEncryption")


def refuse_keys(headers: Iterable[str], query: Iterable[str]) -> None:
    """Raise 501 for a request whose headers or parameters name an encryption key."""
    named = [name for name in headers if name.lower().startswith(HEADERS)]
    named += [name for name in query if name in PARAMETERS]
    if named:
        raise _no_keys(named[0])


def refuse_key_of_object(fields: Mapping[str, JsonValue]) -> None:
    """Raise 501 for the resource of a new object that names an encryption key."""
    for name in FIELDS:
        if fields.get(name):
            raise _no_keys(name)


def refuse_default_key(encryption: Mapping[str, JsonValue]) -> None:
    """Raise 501 for a bucket whose objects are to be encrypted with a key of Cloud KMS."""
    for name, value in encryption.items():
        if value and (name == "defaultKmsKeyName" or name.endswith("EnforcementConfig")):
            raise _no_keys(f"encryption.{name}")


def _no_keys(name: str) -> GcsError:
    return GcsError(501, f"The simulator keeps no encryption keys ({name}); see docs/simulator.md.")
