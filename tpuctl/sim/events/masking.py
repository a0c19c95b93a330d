"""Masks what looks like a secret in the body of a request, before the log of events keeps it."""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"
NAMES = re.compile(r"(secret|passw|token|credential|private.?key|api.?key|access.?key)", re.IGNORECASE)
"""Names of fields, and of items of metadata, whose values are secret."""
NO_SECRETS = frozenset({"pageToken", "rewriteToken", "nextPageToken"})
TEXTS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\bya29\.[\w-]|\bhf_\w{20}|\bAIza[\w-]{30}|\bgh[pos]_\w{30}"
)
"""Values that are secret whatever their name: keys and tokens of Google, GitHub and Hugging Face."""


def masked(value: object, name: str = "") -> object:
    """Return a value of JSON with secrets masked; `name` is the field that it is under."""
    if isinstance(value, Mapping):
        # Compute Engine's metadata is a list of {"key": NAME, "value": TEXT}
        key = value.get("key")
        named = {"value": key} if isinstance(key, str) else {}
        return {field: masked(part, named.get(field, str(field))) for field, part in value.items()}
    if isinstance(value, list):
        return [masked(part, name) for part in value]
    if isinstance(value, str) and (TEXTS.search(value) or (NAMES.search(name) and name not in NO_SECRETS)):
        return MASK
    return value
