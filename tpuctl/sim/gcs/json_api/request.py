"""One request to the JSON API, alone or in a batch, as its operation reads it. No HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from multidict import MultiMapping

from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.request_faults import begin_operation
from tpuctl.sim.gcs.rules import Preconditions, parse_number
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.json_values import JsonObject

READS = (".get", ".list")
"""The source of a rewrite is read, and has no part in its body."""


@dataclass(frozen=True)
class JsonRequest:
    """One request: `names` are segments of the path (bucket, object, ...)."""

    store: Store
    faults: FaultRegistry
    names: Mapping[str, str]
    query: MultiMapping[str]
    headers: Mapping[str, str]
    body: JsonObject
    base_url: str

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
        """Return the generation in the query, or None for the live object."""
        return parse_number(name, self.query[name]) if name in self.query else None

    def begin(self, method: str, *resource: str) -> None:
        """Record the operation as an event; raises GcsError if a fault fires in its place."""
        begin_operation(
            self.faults, method, "/".join(resource), None if method.endswith(READS) else self.body
        )
