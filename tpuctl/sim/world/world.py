"""The simulated Cloud TPU: what every call passes first, and the hooks for tests and rehearsals."""

from __future__ import annotations

from tpuctl.sim.events import Events
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.records import Hosts
from tpuctl.sim.settings import Profile
from tpuctl.sim.state.database import Database, RecordTable
from tpuctl.sim.world import names
from tpuctl.sim.world.api_errors import problem
from tpuctl.sim.world.capacity import availability
from tpuctl.sim.world.capacity.supply import Supply
from tpuctl.sim.world.change_notifier import Wakes
from tpuctl.sim.world.fault_errors import is_unreachable, lose_answer, require_admission
from tpuctl.sim.world.nodes.lifecycle import Lifecycle
from tpuctl.sim.world.nodes.service import Fleet
from tpuctl.sim.world.operations import Operations
from tpuctl.sim.world.queue.provisioning import Provisioning
from tpuctl.sim.world.queue.service import Queue
from tpuctl.sim.world.resources import Node, QueuedResource

WILDCARD_METHODS = frozenset({"ListNodes", "ListQueuedResources", "ListOperations"})
"""Methods that take `locations/-` for every zone."""


class World:
    """Everything behind the API, for one thread with a running event loop.

    `fleet` holds the nodes, `queue` the queued resources and `operations` the long-running operations; all
    raise `Problem`. `supply` says what there is to be had. The database and the hosts belong to the caller,
    who closes them after the world.
    """

    def __init__(
        self,
        database: Database,
        profile: Profile,
        hosts: Hosts,
        faults: FaultRegistry,
        events: Events | None = None,
    ) -> None:
        self.faults = faults
        self.events = events = Events(profile.clock) if events is None else events
        if faults.events is None:
            faults.events = events
        self.disabled_projects: set[str] = set()
        """Projects in which the API is off; in memory only, as faults are."""
        self._nodes = nodes = RecordTable(database, "node", Node)
        self._queued = queued = RecordTable(database, "queued resource", QueuedResource)
        self.operations = operations = Operations(database, profile)
        self.supply = supply = Supply(nodes, queued, operations, faults)
        self.wakes = wakes = Wakes(profile)
        self._lifecycle = lifecycle = Lifecycle(
            database, profile, hosts, faults, events, nodes, operations, wakes
        )
        self.fleet = fleet = Fleet(database, profile, hosts, nodes, lifecycle, supply)
        self._provisioning = provisioning = Provisioning(
            database, profile, events, queued, nodes, fleet, operations, lifecycle, supply, wakes
        )
        self.queue = Queue(database, profile, faults, queued, fleet, operations, supply, provisioning)

    async def resume(self) -> None:
        """Bring the hosts of READY nodes up again, continue what goes on; before any call is served."""
        self.faults.add_listener(self.wakes.from_any_thread())
        await self._lifecycle.resume()
        await self._provisioning.resume()

    async def close(self) -> None:
        """Stop working; everything stays on disk for the next `resume`."""
        await self._provisioning.close()
        await self._lifecycle.close()

    def admit(self, method: str, resource: str) -> None:
        """Let a call in, or raise what it meets first: a fault, the API switched off, a zone that is none."""
        self.events.note("request", method, resource)
        require_admission(self.faults, method, resource)
        project, zone = names.place(resource)
        if project in self.disabled_projects:
            raise problem("api_disabled", project=project)
        everywhere = not zone or (zone == "-" and method in WILDCARD_METHODS)
        if everywhere:
            return
        if zone not in availability.zones():
            raise problem("location", project=project, zone=zone)
        if is_unreachable(self.faults, project, zone):
            raise problem("unreachable")

    def dismiss(self, method: str, resource: str) -> None:
        """Let the answer of a call out that took effect, or raise the fault by which it is lost."""
        lose_answer(self.faults, method, resource)

    def unreachable(self, parent: str) -> list[str]:
        """Return the zones that do not answer a list over all zones, of which the parent is `locations/-`."""
        project, zone = names.place(parent)
        if zone != "-":
            return []
        return [one for one in availability.zones() if is_unreachable(self.faults, project, one)]

    def cancel(self, operation: str) -> None:
        """Ask an operation to end; raises NOT_FOUND."""
        self._lifecycle.cancel(operation)

    def nodes(self) -> list[Node]:
        """Return every node, of all projects and zones."""
        return self._nodes.all()

    def queued_resources(self) -> list[QueuedResource]:
        """Return every queued resource, of all projects and zones."""
        return self._queued.all()

    async def preempt(self, node: str, notice: float = 0.0) -> None:
        """Take a node back, as Google does with spot nodes; raises `Problem` when it is not up.

        Its hosts' metadata servers say so at once; the hosts end `notice` seconds later.
        """
        await self.fleet.preempt(node, notice)

    def idle(self) -> bool:
        """Whether there is no node, no queued resource and no running operation."""
        return not self._nodes.all() and not self._queued.all() and not self.operations.running()
