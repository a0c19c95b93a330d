"""Carries out the faults that nobody calls for: preemptions, maintenance, and what is wrong with hosts."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator

from tpuctl.sim.events import Events
from tpuctl.sim.faults import Fault, FaultRegistry
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.hosts.faults import EFFECTS
from tpuctl.sim.hosts.pool import HostId, HostPool
from tpuctl.sim.records import Host
from tpuctl.sim.run_progress import Sightings
from tpuctl.sim.settings import Profile
from tpuctl.sim.world import Node, Problem, World, names
from tpuctl.sim.world.change_notifier import Wakes

logger = logging.getLogger(__name__)

NODE_KINDS = ("preemption", "maintenance-notice", "maintenance")
HOST_KINDS = tuple(EFFECTS)

Struck = tuple[str, int]
"""Id of a fault, id of a node."""
Hit = tuple[str, HostId]
"""Id or kind of a fault, a host."""


class Director:
    """Looks at the world whenever it or the faults change, or the time of one comes."""

    def __init__(
        self,
        faults: FaultRegistry,
        world: World,
        pool: HostPool,
        store: Store,
        events: Events,
        profile: Profile,
        cut_offline: Callable[[], Awaitable[None]],
    ) -> None:
        self._faults = faults
        self._world = world
        self._pool = pool
        self._store = store
        self._events = events
        self._profile = profile
        self._cut_offline = cut_offline
        self._changed = False
        self._wakes = Wakes(profile)
        self._sightings = Sightings(store, self._wake)
        self._ready_since: dict[int, float] = {}
        self._struck: set[Struck] = set()
        self._considered: set[Hit] = set()
        self._hit: dict[Hit, Host] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._acts: dict[str, Callable[[Fault, Node], Awaitable[None]]] = {
            "preemption": self._preempt,
            "maintenance-notice": self._announce,
            "maintenance": self._maintain,
        }

    def start(self) -> None:
        """Begin to look."""
        self._store.objects.watchers.append(self._sightings.see)
        self._start(self._listen())
        self._start(self._direct())

    async def close(self) -> None:
        """Look no more, and leave everything as it is."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _listen(self) -> None:
        """Never misses a change of the world: there is no other await between two sleeps."""
        while True:
            self._wake()
            await self._world.wakes.sleep(None)

    async def _direct(self) -> None:
        while True:
            self._changed = False
            try:
                self._sightings.watch(self._faults.in_force(*NODE_KINDS, *HOST_KINDS))
                self._note_ready()
                self._strike_nodes()
                await self._trouble_hosts()
            except Exception:
                logger.exception("a fault could not be carried out")
            if not self._changed:  # while it was busy
                await self._wakes.sleep(self._next_moment())

    def _wake(self) -> None:
        self._changed = True
        self._wakes.call()

    def _note_ready(self) -> None:
        ready = {node.uid for node in self._ready_nodes()}
        now = self._profile.clock()
        self._ready_since = {uid: self._ready_since.get(uid, now) for uid in ready}
        there = {node.uid for node in self._world.nodes()}
        self._struck = {one for one in self._struck if one[1] in there}
        self._considered = {one for one in self._considered if int(one[1][0]) in there}

    def _ready_nodes(self) -> Iterator[Node]:
        return (node for node in self._world.nodes() if node.state == "READY")

    def _next_moment(self) -> float | None:
        ages = [
            since + fault["age"]
            for fault in self._faults.in_force(*NODE_KINDS, *HOST_KINDS)
            for since in self._ready_since.values()
        ]
        moments = [self._faults.next_moment(), *ages]
        now = self._profile.clock()
        return min((moment for moment in moments if moment and moment > now), default=None)

    def _ripe(self, fault: Fault) -> Iterator[Node]:
        """The nodes that the fault is about and whose time has come, the oldest first."""
        now = self._profile.clock()
        for node in sorted(self._ready_nodes(), key=lambda one: (one.create_time, one.name)):
            fits = fault.matches(_facts(node), ignoring="worker")
            if not fits or now < self._ready_since[node.uid] + fault["age"]:
                continue
            if fault["run"] is None or str(node.uid) in self._sightings.nodes(fault):
                yield node

    def _strike_nodes(self) -> None:
        for fault in self._faults.in_force(*NODE_KINDS):
            for node in self._ripe(fault):
                busy = fault.kind != "preemption" and self._world.operations.running_on(node.name)
                if busy or (fault.id, node.uid) in self._struck:
                    continue
                self._struck.add((fault.id, node.uid))
                if self._faults.fire_on(fault, node.name):
                    self._start(self._acts[fault.kind](fault, node))

    async def _trouble_hosts(self) -> None:
        for fault in self._faults.in_force(*HOST_KINDS):
            self._hit_hosts(fault)
        before, self._hit = self._hit, {}
        troubles: defaultdict[HostId, set[str]] = defaultdict(set)
        for fault in self._faults.in_force(*HOST_KINDS):
            for host in self._hosts():
                if _key(host) in fault.targets:
                    self._hit[fault.kind, _id(host)] = host
                    troubles[_id(host)].add(fault.kind)
        await self._pool.settle({identity: frozenset(kinds) for identity, kinds in troubles.items()})
        await self._cut_offline()
        for hit, host in before.items():
            if hit not in self._hit:
                self._events.note("notice", f"{hit[0]} is over", _resource(host), service="hosts")

    def _hit_hosts(self, fault: Fault) -> None:
        for node in self._ripe(fault):
            for host in node.hosts():
                seen = (fault.id, _id(host)) in self._considered or _key(host) in fault.targets
                if seen or not fault.matches({**_facts(node), "worker": str(host.worker)}):
                    continue
                self._considered.add((fault.id, _id(host)))
                self._faults.fire_on(fault, _resource(host), service="hosts", target=_key(host))

    def _hosts(self) -> Iterator[Host]:
        return (host for node in self._ready_nodes() for host in node.hosts())

    async def _preempt(self, fault: Fault, node: Node) -> None:
        await self._world.preempt(node.name, fault["notice"])

    async def _announce(self, fault: Fault, node: Node) -> None:
        self._world.fleet.simulate_maintenance(node.name, [str(fault["worker"])])

    async def _maintain(self, fault: Fault, node: Node) -> None:
        if fault["notice"]:
            self._world.fleet.simulate_maintenance(node.name, [])
            await self._profile.sleep(fault["notice"])
        self._world.fleet.perform_maintenance(node.name)

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(_done(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _done(work: Awaitable[None]) -> None:
    try:
        await work
    except Problem as refusal:  # the node has gone meanwhile, or is on its way out
        logger.info("a fault came too late: %s", refusal)


def _facts(node: Node) -> dict[str, str]:
    return {"node": node.name, "zone": names.place(node.name)[1], "type": node.accelerator_type}


def _id(host: Host) -> HostId:
    return host.node_uid, host.worker


def _key(host: Host) -> str:
    return f"{host.node_uid}/{host.worker}"


def _resource(host: Host) -> str:
    return f"{host.node}/workers/{host.worker}"
