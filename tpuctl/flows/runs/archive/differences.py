"""Defines what is known of a folder that says that it is a run: what was checked, and what differs."""

from __future__ import annotations

from dataclasses import dataclass

CHANGED, MISSING, EXTRA, WRONG = "changed", "missing", "extra", "wrong"
FOLDER, BUCKET = "folder", "bucket"


@dataclass(frozen=True)
class Difference:
    """Something that is not as the record has it."""

    name: str
    """A file below the folder, or `code` or `dataset`."""
    kind: str
    """CHANGED, MISSING, EXTRA or WRONG."""
    detail: str
    by: str
    """FOLDER or BUCKET: whose word it is."""


@dataclass(frozen=True)
class Check:
    """What was compared with what, or why it was not."""

    subject: str
    by: str
    """FOLDER, BUCKET, or empty for what was not checked."""
    detail: str


@dataclass(frozen=True)
class Verification:
    """What is known of a folder."""

    run: str
    outcome: str
    files: int
    """That are here."""
    checks: tuple[Check, ...]
    differences: tuple[Difference, ...]
