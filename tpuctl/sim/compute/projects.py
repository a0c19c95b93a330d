"""Stores the metadata that all hosts of a project share."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tpuctl.sim.state.database import Database, RecordTable

KEY = re.compile(r"[a-zA-Z0-9_-]{1,128}")
MAX_VALUE_BYTES = 256 << 10
"""Both limits: Compute Engine's documentation of custom metadata."""


class StaleFingerprint(Exception):
    """The metadata has changed since the client read it."""


class BadMetadata(ValueError):
    """A key or a value that Compute Engine refuses."""


@dataclass(frozen=True)
class Project:
    """The stored record of a project."""

    name: str
    metadata: dict[str, str] = field(default_factory=dict)
    changed: float = 0.0
    """When the metadata was set last, in seconds; 0 for never."""

    @property
    def fingerprint(self) -> str:
        """A tag that changes with the metadata: eight bytes in base64, as Google's."""
        digest = hashlib.sha256(json.dumps(self.metadata, sort_keys=True).encode()).digest()
        return base64.urlsafe_b64encode(digest[:8]).decode()


class Projects:
    """All projects: any name is one, as for the Cloud TPU API. `on_change` takes a project's name."""

    def __init__(self, database: Database, on_change: Callable[[str], None]) -> None:
        self._records = RecordTable(database, "project", Project)
        self._on_change = on_change

    def get(self, name: str) -> Project:
        """Return a project, with empty metadata unless it has been set."""
        return self._records.get(name) or Project(name)

    def metadata(self, name: str) -> Mapping[str, str]:
        """Return a project's metadata."""
        return self.get(name).metadata

    def set_metadata(self, name: str, metadata: Mapping[str, str], fingerprint: str) -> None:
        """Replace a project's metadata, read with `fingerprint`; raises StaleFingerprint, BadMetadata."""
        if fingerprint != self.get(name).fingerprint:
            raise StaleFingerprint
        for key, value in metadata.items():
            _check(key, value)
        self._records.put(Project(name, dict(metadata), time.time()))
        self._on_change(name)


def _check(key: str, value: str) -> None:
    if not KEY.fullmatch(key):
        raise BadMetadata(f"Invalid value for field 'metadata.items.key': '{key}'.")
    if len(value.encode()) > MAX_VALUE_BYTES:
        raise BadMetadata(f"The value of '{key}' is longer than {MAX_VALUE_BYTES} bytes.")
