"""The simulated Cloud TPU: what every call passes first, and the hooks for tests and rehearsals."""

from __future__ import annotations

from tpuctl.sim.database import Database, Shelf
from tpuctl.sim.faults import Faults
from tpuctl.sim.profiles import Profile
from tpuctl.sim.records import Hosts
from tpuctl.sim.world import names, offers
from tpuctl.sim.world.events import Events
from tpuctl.sim.world.fleet import Fleet
from tpuctl.sim.world.lifecycle import Lifecycle
from tpuctl.sim.world.operations import Operations
from tpuctl.sim.world.problems import of_rule, problem
from tpuctl.sim.world.resources import Node

WILDCARD_METHODS = frozenset({"ListNodes", "ListQueuedResources", "ListOperations"})
"""Methods that take `locations/-` for every zone."""


class World:
    """Everything behind the API, for one thread with a running event loop.

    `fleet` holds the nodes and `operations` the long-running operations; both raise `Problem`. The database
    and the hosts belong to the caller, who closes them after the world.
    """

    def __init__(self, database: Database, profile: Profile, hosts: Hosts, faults: Faults) -> None:
        self.faults = faults
        self.events = Events()
        self.disabled_projects: set[str] = set()
        """Projects in which the API is off; in memory only, as faults are."""
        self._nodes = Shelf(database, "node", Node)
        self.operations = Operations(database, profile)
        self._lifecycle = Lifecycle(
            database, profile, hosts, faults, self.events, self._nodes, self.operations
        )
        self.fleet = Fleet(database, profile, hosts, self._nodes, self._lifecycle)

    async def resume(self) -> None:
        """Bring the hosts of READY nodes up again and continue operations; before any call is served."""
        await self._lifecycle.resume()

    async def close(self) -> None:
        """Stop working; nodes and operations stay on disk for the next `resume`."""
        await self._lifecycle.close()

    def admit(self, method: str, resource: str) -> None:
        """Let a call in, or raise what it meets first: a fault, the API switched off, a zone that is none."""
        self.events.note("request", method, resource)
        fault = self.faults.take(f"tpu.{method}", resource)
        if fault:
            self.events.note("fault", method, resource, fault.message)
            raise of_rule(fault)
        project, zone = names.place(resource)
        if project in self.disabled_projects:
            raise problem("api_disabled", project=project)
        everywhere = not zone or (zone == "-" and method in WILDCARD_METHODS)
        if not everywhere and zone not in offers.zones():
            raise problem("location", project=project, zone=zone)

    def cancel(self, operation: str) -> None:
        """Ask an operation to end; raises NOT_FOUND."""
        self._lifecycle.cancel(operation)

    def nodes(self) -> list[Node]:
        """Return every node, of all projects and zones."""
        return self._nodes.all()

    async def preempt(self, node: str) -> None:
        """Take a node back, as Google does with spot nodes; raises `Problem` when it is not up."""
        await self.fleet.preempt(node)

    def idle(self) -> bool:
        """Whether there is no node and no running operation."""
        return not self._nodes.all() and not self.operations.running()
