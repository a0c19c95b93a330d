"""Global operations of Compute Engine: all are done at once, and can be asked for afterwards."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from tpuctl.sim.state.database import Database, RecordTable


@dataclass(frozen=True)
class Operation:
    """One operation, done; `name` is `PROJECT/operation-...`."""

    name: str
    kind: str
    time: float

    @property
    def project(self) -> str:
        return self.name.partition("/")[0]

    @property
    def id(self) -> str:
        return self.name.partition("/")[2]


KEPT = 1_000
"""Operations that can still be asked for; all have ended."""


class Operations:
    """The operations of all projects, over restarts."""

    def __init__(self, database: Database) -> None:
        self._shelf = RecordTable(database, "compute operation", Operation)

    def done(self, project: str, kind: str) -> Operation:
        """Note that something has been done, and return its operation."""
        now = time.time()
        parts = (secrets.token_hex(7)[:13], secrets.token_hex(4), secrets.token_hex(4))
        operation = Operation(f"{project}/operation-{int(now * 1000)}-{'-'.join(parts)}", kind, now)
        self._shelf.put(operation)
        for old in sorted(self._shelf.all(), key=lambda one: one.time)[:-KEPT]:
            self._shelf.remove(old.name)
        return operation

    def get(self, project: str, name: str) -> Operation | None:
        """Return an operation of a project, or None."""
        return self._shelf.get(f"{project}/{name}")
