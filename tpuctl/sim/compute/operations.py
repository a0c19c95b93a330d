"""Stores global operations of Compute Engine: each is DONE at once, and can be read afterwards."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from tpuctl.sim.state import Database, RecordTable


@dataclass(frozen=True)
class Operation:
    """One operation, DONE; `name` is `PROJECT/operation-...`."""

    name: str
    kind: str
    time: float
    target: str = ""
    """The path of what it has changed below the project, such as `/global/firewalls/a`."""

    @property
    def project(self) -> str:
        return self.name.partition("/")[0]

    @property
    def id(self) -> str:
        return self.name.partition("/")[2]


MAX_OPERATIONS = 1_000
"""Older operations cannot be read any more."""


class Operations:
    """The operations of all projects, over restarts."""

    def __init__(self, database: Database) -> None:
        self._records = RecordTable(database, "compute operation", Operation)

    def record(self, project: str, kind: str, target: str = "") -> Operation:
        """Store and return the operation of a call that has taken effect."""
        now = time.time()
        parts = (secrets.token_hex(7)[:13], secrets.token_hex(4), secrets.token_hex(4))
        operation = Operation(f"{project}/operation-{int(now * 1000)}-{'-'.join(parts)}", kind, now, target)
        self._records.put(operation)
        for oldest in sorted(self._records.all(), key=lambda operation: operation.time)[:-MAX_OPERATIONS]:
            self._records.remove(oldest.name)
        return operation

    def get(self, project: str, name: str) -> Operation | None:
        """Return an operation of a project, or None."""
        return self._records.get(f"{project}/{name}")
