"""The nodes: what may be asked of them, and the answers that take no time."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tpuctl.sim.records import GuestAttribute, Hosts
from tpuctl.sim.settings import Profile
from tpuctl.sim.state.database import Database, RecordTable
from tpuctl.sim.world import names
from tpuctl.sim.world.api_errors import problem
from tpuctl.sim.world.capacity import availability
from tpuctl.sim.world.capacity.supply import Supply, wanted_by
from tpuctl.sim.world.nodes import specs
from tpuctl.sim.world.nodes.lifecycle import Lifecycle
from tpuctl.sim.world.pages import page
from tpuctl.sim.world.resources import PLAINLY, Asked, Node, Operation
from tpuctl.sim.world.states import ALLOWED


class Fleet:
    """All nodes. A call that changes one checks what it asks and returns its operation at once.

    No call awaits between its checks and its commit, so that calls cannot race.
    """

    def __init__(
        self,
        database: Database,
        profile: Profile,
        hosts: Hosts,
        nodes: RecordTable[Node],
        lifecycle: Lifecycle,
        supply: Supply,
    ) -> None:
        self._database = database
        self._profile = profile
        self._hosts = hosts
        self._nodes = nodes
        self._lifecycle = lifecycle
        self._supply = supply

    def get(self, name: str) -> Node:
        """Return the node called `name`; raises NOT_FOUND."""
        found = self._nodes.get(name)
        if found is None:
            names.require(name, "nodes")
            raise problem("not_found", name=name)
        return found

    def has(self, name: str) -> bool:
        """Whether there is a node of this full name."""
        return self._nodes.get(name) is not None

    def page(
        self, parent: str, size: int, token: str, without: Collection[str] = ()
    ) -> tuple[list[Node], str]:
        """Return one page of the nodes in a zone, or with `-` in all, and the token of the next.

        Nodes in the zones `without` are left out.
        """
        found = self._nodes.all(names.prefix(parent))
        if without:
            found = [node for node in found if names.place(node.name)[1] not in without]
        return page(found, lambda node: node.name, size, token)

    def create(self, parent: str, node_id: str, sent: Mapping[str, Any], asked: Asked = PLAINLY) -> Operation:
        """Create a node from its fields as sent, in the API's JSON form."""
        if not names.IDENTIFIER.fullmatch(node_id):
            raise problem("bad_id", id=node_id)
        name = f"{parent}/nodes/{node_id}"
        names.require(name, "nodes")
        known = self._lifecycle.operations.asked_before("create", name, asked)
        if known:
            return known
        if self._nodes.get(name):
            raise problem("exists", name=name)
        _, zone = names.place(parent)
        return self.add(self.draft(name, specs.checked(zone, sent)), asked)

    def draft(self, name: str, spec: dict[str, Any]) -> Node:
        """Return a new node with checked fields, an id and addresses, not yet there for anybody."""
        _, zone = names.place(name)
        addresses = self._new_addresses(availability.accelerator(zone, spec["acceleratorType"]).hosts)
        uid = secrets.randbits(62) | 1 << 61
        return Node(name, uid, "CREATING", self._profile.clock(), spec, addresses)

    def add(self, node: Node, asked: Asked = PLAINLY) -> Operation:
        """Begin to create a drafted node; raises RESOURCE_EXHAUSTED for quota, stockouts come late."""
        wanted = wanted_by(node)
        if not node.queued_resource:  # which counts in the quota itself
            self._supply.require_quota(wanted)
        shortage = self._supply.shortage(wanted)
        if not shortage and wanted.reservation:
            node = replace(node, reservation=self._supply.source(wanted))
        return self._lifecycle.begin("create", node, fault=shortage, asked=asked)

    def delete(self, name: str, asked: Asked = PLAINLY) -> Operation:
        """Delete a node; a running create or update of it is cancelled."""
        known = self._lifecycle.operations.asked_before("delete", name, asked)
        return known or self._lifecycle.begin("delete", self._require(name, "delete"), asked=asked)

    def update(
        self, name: str, sent: Mapping[str, Any], mask: Sequence[str], asked: Asked = PLAINLY
    ) -> Operation:
        """Replace the fields in `mask`, maps as a whole; raises ABORTED while another update runs."""
        node = self._require(name, "update")
        if self._lifecycle.operations.running_on(name):
            raise problem("concurrent_update", name=name)
        changes = specs.changes(sent, mask, hosts=len(node.addresses))
        return self._lifecycle.begin("update", node, changes, asked=asked)

    def stop(self, name: str, asked: Asked = PLAINLY) -> Operation:
        """Stop a node of one host."""
        return self._lifecycle.begin("stop", self._require_single(name, "stop"), asked=asked)

    def start(self, name: str, asked: Asked = PLAINLY) -> Operation:
        """Start a stopped node of one host that is not preemptible."""
        node = self._require_single(name, "start")
        if node.preemptible:
            raise problem("spot_start", name=name)
        shortage = self._supply.shortage(wanted_by(node))
        return self._lifecycle.begin("start", node, fault=shortage, asked=asked)

    def simulate_maintenance(self, name: str, workers: Sequence[str], asked: Asked = PLAINLY) -> Operation:
        """Tell one worker of a node that it is going down for maintenance; nothing is ended.

        Only the first of `workers` is told, worker 0 when there is none (the proto's comment).
        """
        node = self._require(name, "simulate maintenance event")
        worker = workers[0] if workers else "0"
        if worker not in map(str, range(len(node.addresses))):
            raise problem("bad_field", what=f"{name} has no worker {worker}")
        return self._lifecycle.begin(
            "simulateMaintenanceEvent", node, {"workers": [int(worker)]}, asked=asked
        )

    def perform_maintenance(self, name: str, asked: Asked = PLAINLY) -> Operation:
        """Take a node's hosts down and bring them up again, disks kept."""
        node = self._require(name, "perform maintenance")
        return self._lifecycle.begin("performMaintenance", node, asked=asked)

    def guest_attributes(self, name: str, workers: Sequence[str], path: str) -> list[list[GuestAttribute]]:
        """Return the guest attributes under `path` (`hostkeys/ssh-ed25519`), a list for each worker.

        `workers` are numbers; none means all workers, and so does the empty one that gcloud sends for all.
        """
        workers = [worker for worker in workers if worker]
        known = {str(host.worker): host for host in self._require(name, "get guest attributes").hosts()}
        unknown = [worker for worker in workers if worker not in known]
        if unknown:
            raise problem("bad_field", what=f"{name} has no worker {', '.join(unknown)}")
        return [
            [found for found in self._hosts.guest_attributes(known[worker]) if _is_under(path, found)]
            for worker in workers or known
        ]

    async def preempt(self, name: str, notice: float) -> None:
        """Take the node back: its hosts stop, a running operation fails, it stays listed until deleted.

        A node that is up is told, and goes `notice` seconds later if it still can.
        """
        node = self._require(name, "preempt")
        await self._lifecycle.announce_preemption(node)
        if notice > 0:
            await self._profile.sleep(notice)
        current = self._nodes.get(name)
        if current and current.uid == node.uid and "preempt" in ALLOWED[current.state]:
            await self._lifecycle.take_back(current, "PREEMPTED")

    def _require(self, name: str, call: str) -> Node:
        node = self.get(name)
        state = "PREEMPTED" if self._lifecycle.is_going(node) else node.state
        if call not in ALLOWED[state]:
            raise problem("wrong_state", call=call, state=state)
        return node

    def _require_single(self, name: str, call: str) -> Node:
        hosts = len(self.get(name).addresses)
        if hosts > 1:
            raise problem("several_hosts", call=call, name=name, hosts=hosts)
        return self._require(name, call)

    def _new_addresses(self, hosts: int) -> tuple[str, ...]:
        with self._database.transaction():
            return tuple(names.address(self._database.next("address")) for _ in range(hosts))


def _is_under(path: str, attribute: GuestAttribute) -> bool:
    full = f"{attribute.namespace}/{attribute.key}"
    return not path or full == path or full.startswith(path.removesuffix("/") + "/")
