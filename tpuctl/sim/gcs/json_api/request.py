"""One call of the JSON API, freed of HTTP: what an operation gets to see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from multidict import MultiMapping

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.http.fault_middleware import refuse_if_asked
from tpuctl.sim.gcs.rules.preconditions import Preconditions, parse_number
from tpuctl.sim.gcs.storage.store import Store


@dataclass(frozen=True)
class Call:
    """One call: `names` are parts of the path (bucket, object, ...), `origin` the scheme and host used."""

    store: Store
    faults: FaultRegistry
    names: Mapping[str, str]
    query: MultiMapping[str]
    headers: Mapping[str, str]
    body: dict[str, Any]
    origin: str

    @property
    def bucket(self) -> str:
        return self.names["bucket"]

    @property
    def object(self) -> str:
        return self.names["object"]

    def conditions(self, prefix: str = "if") -> Preconditions:
        """Return the preconditions in the query."""
        return Preconditions.of_query(self.query, prefix)

    def generation(self, name: str = "generation") -> int | None:
        """Return the generation asked for, or None for the live one."""
        return parse_number(name, self.query[name]) if name in self.query else None

    def refuse_if_asked(self, method: str, *resource: str) -> None:
        """Raise the fault that was asked for this call of `method`, if one was."""
        refuse_if_asked(self.faults, method, "/".join(resource))
