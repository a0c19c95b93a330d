"""Carries out the faults that no request meets: preemptions, maintenance, and faults of hosts.

`_fire_on_nodes` is where a preemption begins: `World.preempt` announces it, then ends the node's hosts, and
`HostPool.stop` kills their processes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from fnmatch import fnmatchcase

from tpuctl.sim.faults import Fault
from tpuctl.sim.gcs.storage.store import Store
from tpuctl.sim.gcs.storage.stored_object import StoredObject
from tpuctl.sim.hosts.faults import EFFECTS
from tpuctl.sim.hosts.pool import HostId, HostPool
from tpuctl.sim.records import Host
from tpuctl.sim.settings import Profile
from tpuctl.sim.world import ApiError, Node, World, resources
from tpuctl.sim.world.change_notifier import ChangeNotifier

LOG = re.compile(r"runs/([^/]+)/(attempts/\d+/workers/\d+)/log/\d+\.log")
CHECKPOINT = re.compile(r"runs/([^/]+)/checkpoints/(.+)")
ORDERED_LOG = re.compile(r"runs/([^/]+)/attempts/\d+/log/\d{8}T\d{6}-(\d+)-\d+\.log")
ATTEMPT = re.compile(r"runs/([^/]+)/attempts/(\d+)/attempt\.json")
STEP = re.compile(r"(?<![a-z])step\b\W{0,3}(\d+)", re.IGNORECASE)
"""`step 120`, `Step: 120/1000`, `global_step=120`."""
NUMBER = re.compile(r"\d+")
LONGEST_LINE = 4096
"""Characters that are kept of a log's last line while it is incomplete."""


class RunProgress:
    """Follows runs for faults with `run`, `step` or `log`; calls `on_progress` when one is reached."""

    def __init__(self, store: Store, on_progress: Callable[[], None]) -> None:
        self._store = store
        self._on_progress = on_progress
        self._watches: dict[str, _Watch] = {}

    def follow(self, faults: list[Fault]) -> None:
        """Follow runs for exactly these faults; for new ones, look at what is in the buckets already."""
        with_run = {fault.id: fault for fault in faults if fault.get("run")}
        self._watches = {id_: watch for id_, watch in self._watches.items() if id_ in with_run}
        for id_, fault in with_run.items():
            if id_ not in self._watches:
                watch = self._watches[id_] = _Watch(fault)
                for stored in self._objects_of_runs():
                    self._look(watch, stored)

    def look_at(self, stored: StoredObject) -> None:
        """Look at an object that has just been written."""
        if self._watches and stored.name.startswith("runs/"):
            changes = [self._look(watch, stored) for watch in self._watches.values()]
            if any(changes):
                self._on_progress()

    def nodes_that_reached(self, fault: Fault) -> set[str]:
        """Return the ids of the nodes whose runs have reached the step or the log line of a fault."""
        watch = self._watches.get(fault.id)
        return {watch.nodes[run][1] for run in watch.reached if run in watch.nodes} if watch else set()

    def _look(self, watch: _Watch, stored: StoredObject) -> bool:
        before = len(watch.reached), dict(watch.nodes)
        watch.look_at(stored.name, lambda: self._content(stored))
        return (len(watch.reached), watch.nodes) != before

    def _content(self, stored: StoredObject) -> bytes:
        with self._store.blobs.open(stored.blob) as file:
            return file.read()

    def _objects_of_runs(self) -> Iterator[StoredObject]:
        names = self._store.database.rows(
            lambda bucket, name: (str(bucket), str(name)),
            "select bucket, name from objects where live = 1 and name >= 'runs/' and name < 'runs0' "
            "order by bucket, name",
        )
        for bucket, name in names:
            stored = self._store.objects.find(bucket, name)
            if stored:
                yield stored


class _Watch:
    """The condition of one fault, and the runs that have met it."""

    def __init__(self, fault: Fault) -> None:
        self.reached: set[str] = set()
        self.nodes: dict[str, tuple[int, str]] = {}
        """Run -> its latest attempt, and the id of the node that it is on."""
        self._runs: str = fault["run"]
        self._step: int | None = fault["step"]
        self._log = re.compile(fault["log"]) if fault["log"] else None
        self._incomplete: dict[str, str] = {}
        """RUN/WORKER -> the last line of its log, without its end."""
        self._readers = (
            (LOG, self._read_log),
            (ORDERED_LOG, self._read_log),
            (CHECKPOINT, self._read_checkpoint),
            (ATTEMPT, self._read_attempt),
        )

    def look_at(self, name: str, read: Callable[[], bytes]) -> None:
        """Look at one object."""
        for pattern, reader in self._readers:
            match = pattern.fullmatch(name)
            if match and fnmatchcase(match[1], self._runs):
                reader(match[1], match[2], read)

    def _read_attempt(self, run: str, attempt: str, read: Callable[[], bytes]) -> None:
        try:
            uid = str(json.loads(read())["tpu"]["uid"])
        except (ValueError, KeyError, TypeError):  # not a record of tpuctl
            return
        self.nodes[run] = max(self.nodes.get(run, (0, "")), (int(attempt), uid))
        if self._step is None and self._log is None:
            self.reached.add(run)

    def _read_checkpoint(self, run: str, name: str, _: Callable[[], bytes]) -> None:
        number = NUMBER.search(name)
        if self._step is not None and number and int(number[0]) >= self._step:
            self.reached.add(run)

    def _read_log(self, run: str, worker: str, read: Callable[[], bytes]) -> None:
        if run in self.reached or (self._step is None and self._log is None):
            return
        text = self._incomplete.get(f"{run}/{worker}", "") + read().decode(errors="replace")
        self._incomplete[f"{run}/{worker}"] = text.rpartition("\n")[2][-LONGEST_LINE:]
        if any(map(self._is_met_by, text.splitlines())):
            self.reached.add(run)

    def _is_met_by(self, line: str) -> bool:
        if self._log is not None and self._log.search(line):
            return True
        return self._step is not None and any(int(step) >= self._step for step in STEP.findall(line))


logger = logging.getLogger(__name__)

NODE_KINDS = ("preemption", "maintenance-notice", "maintenance")
HOST_KINDS = tuple(EFFECTS)


class FaultExecutor:
    """Looks at the world when it, the faults or a run's progress change, or a fault's time comes."""

    def __init__(
        self,
        world: World,
        hosts: HostPool,
        store: Store,
        profile: Profile,
        cut_isolated: Callable[[], Awaitable[None]],
    ) -> None:
        self._world = world
        self._hosts = hosts
        self._store = store
        self._profile = profile
        self._cut_isolated = cut_isolated
        self._faults = world.faults
        self._changed = False
        self._notifier = ChangeNotifier(profile)
        self._progress = RunProgress(store, self._wake)
        self._ready_since: dict[int, float] = {}
        self._tried_nodes: set[tuple[str, int]] = set()
        """Id of a fault and of a node that it has matched: it fires on each once at most."""
        self._tried_hosts: set[tuple[str, HostId]] = set()
        self._broken: dict[tuple[str, HostId], Host] = {}
        """Kind of a fault that holds, and the host."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._actions: dict[str, Callable[[Fault, Node], Awaitable[None]]] = {
            "preemption": self._preempt,
            "maintenance-notice": self._announce,
            "maintenance": self._maintain,
        }

    def start(self) -> None:
        """Begin to look."""
        self._store.objects.watchers.append(self._progress.look_at)
        self._start(self._follow_world())
        self._start(self._run())

    async def close(self) -> None:
        """Stop; what faults have done stays."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow_world(self) -> None:
        """Wake at each change of the world; none is missed, as there is no other await between two sleeps."""
        while True:
            self._wake()
            await self._world.change_notifier.wait(None)

    async def _run(self) -> None:
        while True:
            self._changed = False
            try:
                self._progress.follow(self._faults.in_force(*NODE_KINDS, *HOST_KINDS))
                self._note_nodes()
                self._fire_on_nodes()
                await self._break_hosts()
            except Exception:
                logger.exception("a fault could not be carried out")
            if not self._changed:  # while it was busy
                await self._notifier.wait(self._next_moment())

    def _wake(self) -> None:
        self._changed = True
        self._notifier.notify()

    def _note_nodes(self) -> None:
        """Note since when nodes are READY, and forget those that are gone."""
        now = self._profile.clock()
        self._ready_since = {node.uid: self._ready_since.get(node.uid, now) for node in self._ready_nodes()}
        uids = {node.uid for node in self._world.nodes.all()}
        self._tried_nodes = {(fault, uid) for fault, uid in self._tried_nodes if uid in uids}
        self._tried_hosts = {(fault, host) for fault, host in self._tried_hosts if int(host[0]) in uids}

    def _ready_nodes(self) -> Iterator[Node]:
        return (node for node in self._world.nodes.all() if node.state == "READY")

    def _next_moment(self) -> float | None:
        ages = [
            since + fault["age"]
            for fault in self._faults.in_force(*NODE_KINDS, *HOST_KINDS)
            for since in self._ready_since.values()
        ]
        moments = [self._faults.next_moment(), *ages]
        now = self._profile.clock()
        return min((moment for moment in moments if moment and moment > now), default=None)

    def _matching_nodes(self, fault: Fault) -> Iterator[Node]:
        """The nodes that a fault matches and whose age and run meet its conditions, the oldest first."""
        now = self._profile.clock()
        for node in sorted(self._ready_nodes(), key=lambda node: (node.create_time, node.name)):
            matches = fault.matches(_facts(node), ignoring="worker")
            if not matches or now < self._ready_since[node.uid] + fault["age"]:
                continue
            if fault["run"] is None or str(node.uid) in self._progress.nodes_that_reached(fault):
                yield node

    def _fire_on_nodes(self) -> None:
        for fault in self._faults.in_force(*NODE_KINDS):
            for node in self._matching_nodes(fault):
                busy = fault.kind != "preemption" and self._world.operations.running_on(node.name)
                if busy or (fault.id, node.uid) in self._tried_nodes:
                    continue
                self._tried_nodes.add((fault.id, node.uid))
                if self._faults.fire_on(fault, node.name):
                    self._start(self._actions[fault.kind](fault, node))

    async def _break_hosts(self) -> None:
        """Have each host show exactly the faults in force on it, and note those that have ended."""
        faults = self._faults.in_force(*HOST_KINDS)
        for fault in faults:
            self._fire_on_hosts(fault)
        before, self._broken = self._broken, {}
        kinds: defaultdict[HostId, set[str]] = defaultdict(set)
        for fault in self._faults.in_force(*HOST_KINDS):
            for host in self._ready_hosts():
                if _key(host) in fault.targets:
                    self._broken[fault.kind, _id(host)] = host
                    kinds[_id(host)].add(fault.kind)
        await self._hosts.set_faults({host: frozenset(names) for host, names in kinds.items()})
        await self._cut_isolated()
        for (kind, identity), host in before.items():
            if (kind, identity) not in self._broken:
                self._world.events.note("notice", f"{kind} is over", _resource(host), service="hosts")

    def _fire_on_hosts(self, fault: Fault) -> None:
        for node in self._matching_nodes(fault):
            for host in node.hosts():
                tried = (fault.id, _id(host)) in self._tried_hosts or _key(host) in fault.targets
                if tried or not fault.matches({**_facts(node), "worker": str(host.worker)}):
                    continue
                self._tried_hosts.add((fault.id, _id(host)))
                self._faults.fire_on(fault, _resource(host), service="hosts", target=_key(host))

    def _ready_hosts(self) -> Iterator[Host]:
        return (host for node in self._ready_nodes() for host in node.hosts())

    async def _preempt(self, fault: Fault, node: Node) -> None:
        await self._world.preempt(node.name, fault["notice"], fault["grace"])

    async def _announce(self, fault: Fault, node: Node) -> None:
        self._world.nodes.simulate_maintenance(node.name, [str(fault["worker"])])

    async def _maintain(self, fault: Fault, node: Node) -> None:
        if fault["notice"]:
            self._world.nodes.simulate_maintenance(node.name, [])
            await self._profile.sleep(fault["notice"])
        self._world.nodes.perform_maintenance(node.name)

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(_unless_too_late(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _unless_too_late(work: Awaitable[None]) -> None:
    try:
        await work
    except ApiError as error:  # the node is gone meanwhile, or is being deleted
        logger.info("a fault came too late: %s", error)


def _facts(node: Node) -> dict[str, str]:
    return {"node": node.name, "zone": resources.parse(node.name).zone, "type": node.accelerator_type}


def _id(host: Host) -> HostId:
    return host.node_uid, host.worker


def _key(host: Host) -> str:
    """A host as `Fault.targets` names it."""
    return f"{host.node_uid}/{host.worker}"


def _resource(host: Host) -> str:
    return f"{host.node}/workers/{host.worker}"
