"""The rules of labels: https://cloud.google.com/resource-manager/docs/labels-overview#requirements."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from tpuctl.errors import UsageError

MOST = 64
LONGEST = 63
"""Characters of a key or a value."""
MOST_BYTES = 128
"""UTF-8 bytes of a key or a value."""
CATEGORIES = frozenset({"Ll", "Lo", "Nd", "Nl", "No"})
"""Of Unicode: lower-case letters, letters without case, numbers; Google's `[\\p{Ll}\\p{Lo}\\p{N}_-]`."""
FIRST = frozenset({"Ll", "Lo"})
RULE = "Labels have lower-case letters of any language, digits, - and _; 63 characters, 128 bytes at most."


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise UsageError for labels that Google Cloud refuses."""
    for key, value in labels.items():
        if not key or unicodedata.category(key[0]) not in FIRST or not _is_allowed(key):
            raise UsageError(
                f"'{key}' cannot be the key of a label.", hint=f"It begins with a letter. {RULE}", label=key
            )
        if not _is_allowed(value):
            raise UsageError(f"'{value}' cannot be the value of label '{key}'.", hint=RULE, label=key)
    if len(labels) > MOST:
        raise UsageError(
            f"{len(labels)} labels are too many.",
            hint=f"A TPU has {MOST} at most, tpuctl's own among them.",
            labels=len(labels),
        )


def _is_allowed(text: str) -> bool:
    return (
        len(text) <= LONGEST
        and len(text.encode(errors="surrogatepass")) <= MOST_BYTES
        and all(character in "-_" or unicodedata.category(character) in CATEGORIES for character in text)
    )
