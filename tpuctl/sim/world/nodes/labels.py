"""Checks labels as Google Cloud does: https://cloud.google.com/compute/docs/labeling-resources#requirements."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from tpuctl.sim.world.api_errors import api_error

MOST_LABELS = 64
MOST_CHARACTERS = 63
MOST_BYTES = 128
LETTERS = frozenset({"Ll", "Lo"})
"""Unicode categories: small letters, and those of scripts without capitals."""
CHARACTERS = LETTERS | {"Nd", "Nl", "No"}


def check(labels: Mapping[str, str]) -> None:
    """Raise INVALID_ARGUMENT for labels that no resource of Google Cloud can have."""
    if len(labels) > MOST_LABELS:
        raise api_error("many_labels", count=len(labels), most=MOST_LABELS)
    for key, value in labels.items():
        if not key or unicodedata.category(key[0]) not in LETTERS or not _is_valid(key):
            raise api_error("label_key", key=key)
        if not _is_valid(value):
            raise api_error("label_value", key=key, value=value)


def _is_valid(text: str) -> bool:
    allowed = all(unicodedata.category(letter) in CHARACTERS or letter in "_-" for letter in text)
    return allowed and len(text) <= MOST_CHARACTERS and len(text.encode()) <= MOST_BYTES
