"""The nodes: what may be asked of them, and the answers that take no time."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from tpuctl.sim.database import Database, Shelf
from tpuctl.sim.profiles import Profile
from tpuctl.sim.records import GuestAttribute, Hosts
from tpuctl.sim.world import names, offers, specs
from tpuctl.sim.world.lifecycle import Lifecycle
from tpuctl.sim.world.pages import page
from tpuctl.sim.world.problems import problem
from tpuctl.sim.world.resources import Node, Operation
from tpuctl.sim.world.states import ALLOWED


class Fleet:
    """All nodes. A call that changes one checks what it asks and returns its operation at once.

    No call awaits between its checks and its commit, so that calls cannot race.
    """

    def __init__(
        self, database: Database, profile: Profile, hosts: Hosts, nodes: Shelf[Node], lifecycle: Lifecycle
    ) -> None:
        self._database = database
        self._profile = profile
        self._hosts = hosts
        self._nodes = nodes
        self._lifecycle = lifecycle

    def get(self, name: str) -> Node:
        """Return the node called `name`; raises NOT_FOUND."""
        found = self._nodes.get(name)
        if found is None:
            names.require(name, "nodes")
            raise problem("not_found", name=name)
        return found

    def page(self, parent: str, size: int, token: str) -> tuple[list[Node], str]:
        """Return one page of the nodes in a zone, or with `-` in all, and the token of the next."""
        return page(self._nodes.all(names.prefix(parent)), lambda node: node.name, size, token)

    def create(self, parent: str, node_id: str, sent: Mapping[str, Any]) -> Operation:
        """Create a node from its fields as sent, in the API's JSON form."""
        if not names.IDENTIFIER.fullmatch(node_id):
            raise problem("bad_id", id=node_id)
        name = f"{parent}/nodes/{node_id}"
        names.require(name, "nodes")
        if self._nodes.get(name):
            raise problem("exists", name=name)
        _, zone = names.place(parent)
        spec = specs.checked(zone, sent)
        addresses = self._new_addresses(offers.accelerator(zone, spec["acceleratorType"]).hosts)
        uid = secrets.randbits(62) | 1 << 61
        node = Node(name, uid, "CREATING", self._profile.clock(), spec, addresses)
        return self._lifecycle.begin("create", node)

    def delete(self, name: str) -> Operation:
        """Delete a node; a running create or update of it is cancelled."""
        return self._lifecycle.begin("delete", self._require(name, "delete"))

    def update(self, name: str, sent: Mapping[str, Any], mask: Sequence[str]) -> Operation:
        """Replace the fields in `mask`, maps as a whole; raises ABORTED while another update runs."""
        node = self._require(name, "update")
        if self._lifecycle.operations.running_on(name):
            raise problem("concurrent_update", name=name)
        return self._lifecycle.begin("update", node, specs.changes(sent, mask))

    def stop(self, name: str) -> Operation:
        """Stop a node of one host."""
        return self._lifecycle.begin("stop", self._require_single(name, "stop"))

    def start(self, name: str) -> Operation:
        """Start a stopped node of one host that is not preemptible."""
        node = self._require_single(name, "start")
        if node.preemptible:
            raise problem("spot_start", name=name)
        return self._lifecycle.begin("start", node)

    def guest_attributes(self, name: str, workers: Sequence[str], path: str) -> list[list[GuestAttribute]]:
        """Return the guest attributes under `path` (`hostkeys/ssh-ed25519`), a list for each worker.

        `workers` are numbers; none means all workers.
        """
        known = {str(host.worker): host for host in self._require(name, "get guest attributes").hosts()}
        unknown = [worker for worker in workers if worker not in known]
        if unknown:
            raise problem("bad_field", what=f"{name} has no worker {', '.join(unknown)}")
        return [
            [found for found in self._hosts.guest_attributes(known[worker]) if _is_under(path, found)]
            for worker in workers or known
        ]

    async def preempt(self, name: str) -> None:
        """Take the node back: its hosts stop, a running operation fails, it stays listed until deleted."""
        await self._lifecycle.preempt(self._require(name, "preempt"))

    def _require(self, name: str, call: str) -> Node:
        node = self.get(name)
        if call not in ALLOWED[node.state]:
            raise problem("wrong_state", call=call, state=node.state)
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
