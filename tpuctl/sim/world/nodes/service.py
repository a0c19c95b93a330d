"""The calls on nodes: each checks its request, then begins an operation or returns a record."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tpuctl.sim.records import GuestAttribute, Host
from tpuctl.sim.world import resources
from tpuctl.sim.world.api_errors import api_error
from tpuctl.sim.world.capacity import availability, capacity
from tpuctl.sim.world.capacity.capacity import Capacity
from tpuctl.sim.world.nodes import lifecycle
from tpuctl.sim.world.nodes.lifecycle import Lifecycle
from tpuctl.sim.world.resources import DEFAULT_CONTEXT, Node, NodeFields, Operation, RequestContext, page
from tpuctl.sim.world.state import NODE_ALLOWED, State


class NodeService:
    """All nodes. A call that changes one checks its request and returns an operation at once.

    No call awaits between its checks and its commit, so that calls cannot race.
    """

    def __init__(self, state: State, lifecycle: Lifecycle, capacity: Capacity) -> None:
        self._state = state
        self._lifecycle = lifecycle
        self._capacity = capacity

    def get(self, name: str) -> Node:
        """Return the node called `name`; raises NOT_FOUND."""
        node = self._state.nodes.get(name)
        if node is None:
            resources.require_collection(name, "nodes")
            raise api_error("not_found", name=name)
        return node

    def has(self, name: str) -> bool:
        """Whether there is a node of this full name."""
        return self._state.nodes.get(name) is not None

    def all(self) -> list[Node]:
        """Return every node, of all projects and zones."""
        return self._state.nodes.all()

    def hosts(self) -> list[Host]:
        """Return the hosts of every node, up or not."""
        return [host for node in self.all() for host in node.hosts()]

    def page(
        self, parent: str, size: int, token: str, without: Collection[str] = ()
    ) -> tuple[list[Node], str]:
        """Return one page of the nodes in a zone, or with `-` in all, and the token of the next.

        Nodes in the zones `without` are skipped.
        """
        nodes = self._state.nodes.all(resources.list_prefix(parent))
        if without:
            nodes = [node for node in nodes if resources.parse(node.name).zone not in without]
        return page(nodes, lambda node: node.name, size, token)

    def create(
        self,
        parent: str,
        node_id: str,
        sent: Mapping[str, object],
        context: RequestContext = DEFAULT_CONTEXT,
    ) -> Operation:
        """Create a node from its fields as sent, in the API's JSON form."""
        resources.require_identifier(node_id)
        name = f"{parent}/nodes/{node_id}"
        resources.require_collection(name, "nodes")
        repeated = self._state.operations.find_repeated("create", name, context)
        if repeated:
            return repeated
        if self.has(name):
            raise api_error("exists", name=name)
        return self.add(self.draft(name, lifecycle.checked(resources.parse(parent).zone, sent)), context)

    def draft(self, name: str, spec: NodeFields) -> Node:
        """Return a new node with checked fields, an id and addresses, not stored yet."""
        accelerator = availability.accelerator(resources.parse(name).zone, spec["acceleratorType"])
        uid = secrets.randbits(62) | 1 << 61
        now = self._state.profile.clock()
        addresses = self._new_addresses(accelerator.hosts)
        return Node(name, uid, "CREATING", now, self._in_network(spec), addresses)

    def add(self, node: Node, context: RequestContext = DEFAULT_CONTEXT) -> Operation:
        """Begin to create a drafted node; raises RESOURCE_EXHAUSTED for quota, a stockout fails later."""
        requested = capacity.of_node(node)
        if not node.queued_resource:  # which counts in the quota itself
            self._capacity.quotas.require(requested)
        shortage = self._capacity.shortage(requested)
        if not shortage and requested.reservation:
            node = replace(node, reservation=self._capacity.reservations.find(requested).name)
        return self._lifecycle.begin("create", node, context, error=shortage)

    def delete(self, name: str, context: RequestContext = DEFAULT_CONTEXT) -> Operation:
        """Delete a node; a running create or update of the node is cancelled."""
        repeated = self._state.operations.find_repeated("delete", name, context)
        return repeated or self._lifecycle.begin("delete", self._require(name, "delete"), context)

    def update(
        self,
        name: str,
        sent: Mapping[str, object],
        mask: Sequence[str],
        context: RequestContext = DEFAULT_CONTEXT,
    ) -> Operation:
        """Replace the fields in `mask`, complete maps too; raises ABORTED while another update runs."""
        node = self._require(name, "update")
        if self._state.operations.running_on(name):
            raise api_error("concurrent_update", name=name)
        changes = lifecycle.changes(sent, mask, hosts=len(node.addresses))
        return self._lifecycle.begin("update", node, context, changes=self._in_network(changes))

    def stop(self, name: str, context: RequestContext = DEFAULT_CONTEXT) -> Operation:
        """Stop a node of one host."""
        return self._lifecycle.begin("stop", self._require_single_host(name, "stop"), context)

    def start(self, name: str, context: RequestContext = DEFAULT_CONTEXT) -> Operation:
        """Start a stopped node of one host that is not preemptible."""
        node = self._require_single_host(name, "start")
        if node.preemptible:
            raise api_error("spot_start", name=name)
        shortage = self._capacity.shortage(capacity.of_node(node))
        return self._lifecycle.begin("start", node, context, error=shortage)

    def simulate_maintenance(
        self, name: str, workers: Sequence[str], context: RequestContext = DEFAULT_CONTEXT
    ) -> Operation:
        """Announce maintenance to one worker of a node; nothing is stopped.

        It is the first of `workers`, worker 0 if that is empty (the proto's comment).
        """
        node = self._require(name, "simulate maintenance event")
        worker = workers[0] if workers else "0"
        if worker not in map(str, range(len(node.addresses))):
            raise api_error("bad_field", reason=f"{name} has no worker {worker}")
        return self._lifecycle.begin("simulateMaintenanceEvent", node, context, workers=(int(worker),))

    def perform_maintenance(self, name: str, context: RequestContext = DEFAULT_CONTEXT) -> Operation:
        """Stop a node's hosts and start them again, disks kept."""
        node = self._require(name, "perform maintenance")
        return self._lifecycle.begin("performMaintenance", node, context)

    def guest_attributes(self, name: str, workers: Sequence[str], path: str) -> list[list[GuestAttribute]]:
        """Return the guest attributes under `path` (`hostkeys/ssh-ed25519`), a list for each worker.

        `workers` are numbers; none means all workers, and so does the empty one that gcloud sends for all.
        Raises NOT_FOUND where none of them has any there, as Compute Engine does; unverified for Cloud TPU.
        """
        workers = [worker for worker in workers if worker]
        hosts = {str(host.worker): host for host in self._require(name, "get guest attributes").hosts()}
        unknown = [worker for worker in workers if worker not in hosts]
        if unknown:
            raise api_error("bad_field", reason=f"{name} has no worker {', '.join(unknown)}")
        attributes = self._state.hosts.guest_attributes
        found = [
            [attribute for attribute in attributes(hosts[worker]) if _is_under(path, attribute)]
            for worker in workers or hosts
        ]
        if not any(found):
            raise api_error("no_guest_attribute", path=path)
        return found

    async def preempt(self, name: str, notice: float, grace: float) -> None:
        """Preempt a node: its hosts stop, a running operation fails, it stays listed until it is deleted.

        The notice is on the hosts' metadata servers at once; their programs get SIGTERM `notice` seconds
        later, and are killed `grace` seconds after that.
        """
        node = self._require(name, "preempt")
        await self._lifecycle.announce_preemption(node)
        if notice > 0:
            await self._state.profile.sleep(notice)
        current = self._state.nodes.get(name)
        if current and current.uid == node.uid and "preempt" in NODE_ALLOWED[current.state]:
            await self._lifecycle.reclaim(current, "PREEMPTED", grace)

    def _require(self, name: str, call: str) -> Node:
        """Return a node whose state allows the call; raises NOT_FOUND, INVALID_ARGUMENT."""
        node = self.get(name)
        state = "PREEMPTED" if self._lifecycle.is_being_reclaimed(node) else node.state
        if call not in NODE_ALLOWED[state]:
            raise api_error("wrong_state", call=call, state=state)
        return node

    def _require_single_host(self, name: str, call: str) -> Node:
        hosts = len(self.get(name).addresses)
        if hosts > 1:
            raise api_error("several_hosts", call=call, name=name, hosts=hosts)
        if self.get(name).queued_resource:
            raise api_error("queued_power", call=call, name=name)
        return self._require(name, call)

    def _in_network(self, fields: NodeFields) -> NodeFields:
        """Return fields as the simulated network allows them."""
        return fields if self._state.profile.external_ips else lifecycle.without_external_ips(fields)

    def _new_addresses(self, hosts: int) -> tuple[str, ...]:
        database = self._state.database
        with database.transaction():
            return tuple(resources.address(database.next(resources.ADDRESSES)) for _ in range(hosts))


def _is_under(path: str, attribute: GuestAttribute) -> bool:
    full = f"{attribute.namespace}/{attribute.key}"
    return not path or full == path or full.startswith(path.removesuffix("/") + "/")
