"""Parses full resource names of the Cloud TPU API, `projects/P/locations/Z/COLLECTION/ID`.

The only parser of the simulator; the client has its own, `tpuctl/cloud/tpu/rules.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PATTERN = re.compile(
    r"projects/(?P<project>[^/]+)(?:/locations/(?P<zone>[^/]+)(?:/(?P<collection>[^/]*)(?:/(?P<id>.*))?)?)?",
    re.DOTALL,
)


@dataclass(frozen=True)
class ResourceName:
    """The parts of a full name; '' for those that the name does not have."""

    project: str
    zone: str = ""
    collection: str = ""
    """`nodes`, `queuedResources`, `operations` ..."""
    id: str = ""

    @property
    def parent(self) -> str:
        """`projects/P/locations/Z`"""
        return f"projects/{self.project}/locations/{self.zone}"


def parse(name: str) -> ResourceName:
    """Return the parts of a full name, or of the first parts of one; raises ValueError."""
    match = PATTERN.fullmatch(name)
    if not match:
        raise ValueError(f"'{name}' is not the name of a resource")
    return ResourceName(**{part: text or "" for part, text in match.groupdict().items()})
