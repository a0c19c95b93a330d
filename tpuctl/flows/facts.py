"""Defines a fact: what `describe` shows in a line, with where it is from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """One thing that is known of a TPU or a run."""

    name: str
    value: str
    source: str
    """Where it is from."""
