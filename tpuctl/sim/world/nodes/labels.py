"""Checks labels as Google Cloud does: https://cloud.google.com/compute/docs/labeling-resources#requirements."""

from __future__ import annotations

import json
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
        problem = _problem_of_key(key)
        if problem:
            raise api_error("label_key", key=_quoted(key), problem=problem)
        problem = _problem(value)
        if problem:
            raise api_error("label_value", key=_quoted(key), value=_quoted(value), problem=problem)


def _problem_of_key(key: str) -> str:
    if not key:
        return "cannot be empty"
    is_letter = unicodedata.category(key[0]) in LETTERS
    return _problem(key) or ("" if is_letter else "must start with a lowercase letter")


def _problem(text: str) -> str:
    """Return what is wrong with a key or value, '' if nothing is."""
    for index, letter in enumerate(text):
        if unicodedata.category(letter) not in CHARACTERS and letter not in "_-":
            return f"contains invalid character '{letter}' at index {index}"
    if len(text) > MOST_CHARACTERS:
        return f"is longer than {MOST_CHARACTERS} characters"
    return f"is longer than {MOST_BYTES} bytes" if len(text.encode()) > MOST_BYTES else ""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
