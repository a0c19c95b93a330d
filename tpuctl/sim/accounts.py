"""Derives a project's number and its default service account from its name: the same on every run."""

from __future__ import annotations

import hashlib


def project_number(project: str) -> int:
    """Return a number for a project, the same on every run: twelve digits, as Google's."""
    return 100_000_000_000 + stable_number(project) % 899_999_999_999


def service_account(project: str) -> str:
    """Return the address of the project's default service account."""
    return f"{project_number(project)}-compute@developer.gserviceaccount.com"


def stable_number(text: str) -> int:
    """Return a number for a text, the same on every run: 56 bits."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
