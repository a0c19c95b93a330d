"""Finds the hosts that a command is to reach, and lets our key log in on them.

- Reads which workers of a node are meant: `all`, `0`, `1,3`, `0-7`, and `NAME@3`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tpuctl.cloud.provider import Provider
from tpuctl.errors import (
    DeadlineError,
    HostError,
    NotFoundError,
    StateError,
    TpuctlError,
    UsageError,
    joined_hints,
)
from tpuctl.flows.hosts.way_in import KEY_ARRIVAL, NodeWatch, add_key, published_key
from tpuctl.flows.nodes.lookup import (
    ELSEWHERE,
    Allocation,
    choose_only,
    find_decided,
    no_answer,
    require_decided,
    take_inventory,
)
from tpuctl.flows.progress import Report
from tpuctl.nodes import HttpRequest, Node, QueuedResource, SshKey
from tpuctl.nodes.queued_resources import require_ready
from tpuctl.parallel import fanout, values
from tpuctl.polling import poll

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh


NUMBERS = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


@dataclass(frozen=True)
class WorkerSet:
    """Workers as a user names them; `ranges` are first and last numbers, none of them for all workers."""

    ranges: tuple[tuple[int, int], ...] = ()

    def select(self, node: Node) -> tuple[int, ...]:
        """Return these workers of a node, ascending; raises NotFoundError for one that it does not have."""
        count = len(node.addresses)
        missing = [max(first, count) for first, last in self.ranges if last >= count]
        if missing:
            numbers = f"0 to {count - 1}" if count > 1 else "0 only"
            raise NotFoundError(
                f"'{node.name}' has no worker {missing[0]}: its workers are {numbers}.",
                hint=f"See them: tpuctl describe {node.name}",
                worker=missing[0],
                workers=count,
            )
        ranges = self.ranges or ((0, count - 1),)
        return tuple(sorted({worker for first, last in ranges for worker in range(first, last + 1)}))


ALL_WORKERS = WorkerSet()


def only_worker(number: int) -> WorkerSet:
    """Return the set of one worker."""
    return WorkerSet(((number, number),))


def parse_workers(text: str) -> WorkerSet:
    """Return the workers that `all`, `3`, `1,3` or `0-7` means; raises UsageError for any other text."""
    if text.strip() == "all":
        return ALL_WORKERS
    matches = [NUMBERS.fullmatch(part.strip()) for part in text.split(",")]
    ranges = [(int(match[1]), int(match[2] or match[1])) for match in matches if match]
    if len(ranges) < len(matches) or any(first > last for first, last in ranges):
        raise UsageError(
            f"'{text}' names no workers.", hint="Write all, a number, or numbers and ranges: 0-3,7"
        )
    return WorkerSet(tuple(ranges))


@dataclass(frozen=True)
class HostName:
    """`NAME`, or `NAME@3` for one worker; an empty name means the user's only node."""

    name: str
    workers: WorkerSet | None = None
    """None where the text names no worker."""


def parse_host_name(text: str) -> HostName:
    """Return what `NAME`, `NAME@3` or `NAME@0-7` means; raises UsageError for an empty half."""
    name, separator, workers = text.partition("@")
    if not name or (separator and not workers):
        raise UsageError(
            f"'{text}' names no host.", hint="Write NAME, or NAME@3 for one worker; 'tpuctl ls' shows names."
        )
    return HostName(name, parse_workers(workers) if separator else None)


def worker_of_entry(name: str, host: str, zone: str) -> WorkerSet:
    """Return the worker that a name in an entry of `ssh-config` means, such as `NAME.w3.tpuctl`.

    `zone` is that of the entry, empty for none.
    """
    base = f"{name}.{zone}"
    name = base if zone and host.startswith(base) else name
    number = host.removesuffix(".tpuctl").removesuffix(".sim").removeprefix(name).removeprefix(".w")
    return parse_workers(number or "0")


def chosen_workers(host: HostName, option: str | None, default: WorkerSet) -> WorkerSet:
    """Return the workers that `NAME@3` or `--worker 3` names, else `default`; raises UsageError for both."""
    if option is None:
        return host.workers or default
    if host.workers is not None:
        raise UsageError("Workers are named twice.", hint=f"Leave out @... or --worker {option}.")
    return parse_workers(option)


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
