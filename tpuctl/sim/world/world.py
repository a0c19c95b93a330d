"""Receives every call of the simulated Cloud TPU, and has the hooks for tests."""

from __future__ import annotations

from tpuctl.sim.events import Events
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.records import GRACE, Hosts
from tpuctl.sim.settings import Profile
from tpuctl.sim.state import Database
from tpuctl.sim.world import resources
from tpuctl.sim.world.api_errors import api_error
from tpuctl.sim.world.capacity import availability
from tpuctl.sim.world.capacity.capacity import Capacity
from tpuctl.sim.world.injected_faults import is_unreachable, raise_after_call, raise_before_call
from tpuctl.sim.world.nodes.lifecycle import Lifecycle
from tpuctl.sim.world.nodes.service import NodeService
from tpuctl.sim.world.queue import Provisioning, QueuedResourceService
from tpuctl.sim.world.state import State

WILDCARD_METHODS = frozenset({"ListNodes", "ListQueuedResources", "ListOperations"})
"""Methods that take `locations/-` for every zone."""


class World:
    """Everything behind the API, for one thread with a running event loop.

    `nodes`, `queued_resources` and `operations` hold the resources of the API; all raise `ApiError`.
    `capacity` holds limits, quotas and reservations. Whoever builds the world closes the database and the
    hosts after it.
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
        self.events = Events(profile.clock) if events is None else events
        if faults.events is None:
            faults.events = self.events
        self.now = profile.clock
        self.disabled_projects: set[str] = set()
        """Projects in which the API is off; in memory only, as faults are."""
        state = State.load(database, profile, hosts, faults, self.events)
        self.operations = state.operations
        self.change_notifier = state.notifier
        self.capacity = Capacity(state)
        self._lifecycle = Lifecycle(state)
        self.nodes = NodeService(state, self._lifecycle, self.capacity)
        self._provisioning = Provisioning(state, self.nodes, self._lifecycle, self.capacity)
        self.queued_resources = QueuedResourceService(state, self.nodes, self.capacity, self._provisioning)

    async def resume(self) -> None:
        """Start the hosts of READY nodes again and continue running operations; before any call is served."""
        self.faults.add_listener(self.change_notifier.thread_safe_notify())
        await self._lifecycle.resume()
        await self._provisioning.resume()

    async def close(self) -> None:
        """Stop working; everything stays on disk for the next `resume`."""
        await self._provisioning.close()
        await self._lifecycle.close()

    def before_call(self, method: str, resource: str, body: dict[str, object] | None = None) -> None:
        """Note a call in the event log; raises the error by which it is rejected.

        `body` is the request in its JSON form. A call is rejected by a fault, when the API is off in its
        project, or for its zone.
        """
        self.events.note("request", method, resource, body=body)
        raise_before_call(self.faults, method, resource)
        name = resources.parse(resource)
        if name.project in self.disabled_projects:
            raise api_error("api_disabled", project=name.project)
        all_zones = not name.zone or (name.zone == "-" and method in WILDCARD_METHODS)
        if all_zones:
            return
        if name.zone not in availability.zones():
            raise api_error("unknown_location", project=name.project, zone=name.zone)
        if is_unreachable(self.faults, name.project, name.zone):
            raise api_error("unreachable")

    def after_call(self, method: str, resource: str) -> None:
        """Raise the error of a fault that loses the response of a call that has taken effect."""
        raise_after_call(self.faults, method, resource)

    def unreachable_zones(self, parent: str) -> list[str]:
        """Return the zones that are missing from a list over all zones, whose parent is `locations/-`."""
        name = resources.parse(parent)
        if name.zone != "-":
            return []
        return [zone for zone in availability.zones() if is_unreachable(self.faults, name.project, zone)]

    def cancel_operation(self, name: str) -> None:
        """Cancel an operation, if it is of a kind that can be; raises NOT_FOUND."""
        self._lifecycle.cancel(name)

    async def preempt(self, node: str, notice: float = 0.0, grace: float = GRACE) -> None:
        """Preempt a node, as Google does with spot nodes; raises `ApiError` when its state forbids that.

        The notice is on the hosts' metadata servers at once; their programs get SIGTERM `notice` seconds
        later, and are killed `grace` seconds after that.
        """
        await self.nodes.preempt(node, notice, grace)

    def idle(self) -> bool:
        """Whether there is no node, no queued resource and no running operation."""
        return not self.nodes.all() and not self.queued_resources.all() and not self.operations.running()
