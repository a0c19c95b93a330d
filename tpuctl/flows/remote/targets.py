"""Finds the hosts that a command is to reach, and lets our key log in on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tpuctl.cloud.provider import Provider
from tpuctl.errors import DeadlineError, HostError, NotFoundError, StateError, TpuctlError, joined_hints
from tpuctl.flows.hosts.published_keys import published_key
from tpuctl.flows.hosts.ssh_access import KEY_ARRIVAL, NodeWatch, add_key
from tpuctl.flows.nodes.inventory import Allocation, take_inventory
from tpuctl.flows.nodes.lookup import ELSEWHERE, choose_only, find_decided, no_answer, require_decided
from tpuctl.flows.progress import Report
from tpuctl.flows.remote.workers import WorkerSet
from tpuctl.nodes import HttpRequest, Node, QueuedResource, SshKey
from tpuctl.nodes.readiness import require_ready
from tpuctl.parallel import fanout, values
from tpuctl.polling import poll

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh


@dataclass(frozen=True)
class Hosts:
    """The workers of a READY node that a command reaches."""

    node: Node
    workers: tuple[int, ...]
    """In ascending order."""
    host_keys: Mapping[int, str]
    """The ed25519 keys (base64) of the workers that have published one."""

    def host_key(self, worker: int) -> str:
        """Return a worker's published host key; raises HostError without one: no other key is trusted."""
        return published_key(self.node, self.host_keys, worker)


def find_hosts(provider: Provider, name: str, workers: WorkerSet, owner: str, zone: str | None) -> Hosts:
    """Return the workers of a READY node, whoever created it; without a name, of the owner's or Terraform's.

    Sends reads only. Raises NotFoundError, also for a worker that is not there; StateError and
    PreemptedError, which say how to go on; and DeadlineError where a zone that did not answer may hold it.
    """
    allocation = find_decided(provider, name, zone) if name else only_own(provider, owner, zone)
    node = require_ready(_node_of(allocation, name))
    return Hosts(node, workers.select(node), provider.host_keys(node.id))


def admission_requests(provider: Provider, node: Node, key: SshKey) -> list[HttpRequest]:
    """Return the requests by which `admit` changes something, for --dry-run."""
    change = provider.ssh_key_change(node, key)
    return [provider.http_request(change)] if change else []


def admit(provider: Provider, ssh: Ssh, hosts: Hosts, key: SshKey, report: Report) -> Hosts:
    """Let our key log in, unless it may already, and return the hosts once it has arrived on them.

    A host that fails for another reason, or refuses the key for longer, is left to the command that uses it.
    Raises PreemptedError or StateError when the node ends meanwhile, HostError where OS Login is on.
    """
    if provider.ssh_key_change(hosts.node, key) is None:
        return hosts

    def await_arrival(node: Node) -> None:
        report("waiting until the hosts know it")
        watch = NodeWatch(provider, node, key, report)
        values(fanout(lambda worker: _await_key(ssh, watch, hosts, worker), hosts.workers))

    return replace(hosts, node=add_key(provider, hosts.node, key, report, await_arrival))


def _await_key(ssh: Ssh, watch: NodeWatch, hosts: Hosts, worker: int) -> None:
    def is_decided() -> bool | None:
        try:
            with ssh.connect(watch.node, worker, hosts.host_key(worker)):
                return True
        except HostError as error:
            if "login" not in error.facts:
                return True
        watch.look(refused=True)
        return None

    with suppress(DeadlineError):
        poll(is_decided, awaiting=f"worker {worker} to accept the SSH key", timeout=KEY_ARRIVAL)


def only_own(provider: Provider, owner: str, zone: str | None) -> Allocation:
    """Return the only TPU of an owner, else Terraform's; one that is over counts where there is no other."""
    inventory = take_inventory(provider, zone)
    usable = [item for item in inventory.allocations if item.is_usable_by(owner)]
    live = [item for item in usable if not item.is_over]
    candidates = [item for item in live if not item.is_kept_by_terraform] or live or usable
    only = choose_only(candidates, inventory.unreachable, "Name one of them.")
    if not only:
        raise no_own_tpu(inventory.unreachable, inventory.zone)
    return require_decided(only[0].name, only)


def _node_of(allocation: Allocation, name: str) -> Node:
    """Return the node that a name means: a slice by its own name, or all nodes of a queued resource."""
    named = [node for node in allocation.nodes if node.name == name]
    if named:
        return named[0]
    if allocation.nodes:
        return allocation.whole
    assert allocation.queued_resource
    raise no_hosts_yet(allocation.queued_resource)


def no_own_tpu(silent_zones: Sequence[str] = (), zone: str | None = None) -> TpuctlError:
    """Return the error of an owner without a TPU, or with one in a zone that does not answer, perhaps."""
    if silent_zones:
        return no_answer(silent_zones, "your TPU")
    return NotFoundError(
        f"You have no TPU{f' in {zone}' if zone else ''}.",
        hint=joined_hints(
            ELSEWHERE if zone else "",
            "Create one: tpuctl up v3-8",
            "See those of others: tpuctl ls --all-users",
        ),
    )


def no_hosts_yet(queued: QueuedResource) -> TpuctlError:
    """Return the error of a queued resource without nodes: why, and what to do."""
    if queued.failure:
        return queued.failure
    hint = (
        f"What happened: tpuctl why {queued.name}"
        if queued.state.is_over
        else f"Wait for it: tpuctl wait {queued.name}"
    )
    return StateError(f"'{queued.name}' has no hosts: it is {queued.provider_state}.", hint=hint)
