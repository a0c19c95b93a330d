"""Finds or creates a TPU, in any of several zones, and waits until every host answers over SSH.

- Waits for a TPU that was requested before; changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from tpuctl import accelerators
from tpuctl.cloud.provider import Provider
from tpuctl.config.subnetworks import subnetwork_in
from tpuctl.errors import (
    ConfigError,
    InterruptedByUser,
    PreemptedError,
    StateError,
    StockoutError,
    TpuctlError,
    joined_hints,
    say_bill,
)
from tpuctl.flows.hosts.way_in import await_hosts, await_ssh, grant_access
from tpuctl.flows.nodes.down import DownPlan, changes, down
from tpuctl.flows.nodes.lookup import Allocation, find_decided, require_decided
from tpuctl.flows.nodes.placement.creation import Patience, Siblings, await_existing, siblings, zone_of
from tpuctl.flows.nodes.placement.race import Race
from tpuctl.flows.nodes.placement.rounds import Rounds
from tpuctl.flows.nodes.plan import UpPlan, differences
from tpuctl.flows.progress import Report
from tpuctl.nodes import Change, HttpRequest, Node, NodeState, SshKey, StartNode
from tpuctl.nodes.candidates import race_in
from tpuctl.parallel import fanout, values
from tpuctl.polling import Backoff, retry
from tpuctl.shells import again

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh


def wait(
    provider: Provider, ssh: Ssh, key: SshKey, name: str, zone: str | None, seconds: float, report: Report
) -> Allocation:
    """Return a TPU once its nodes are READY, and its hosts answer over SSH where they accept the key.

    Raises NotFoundError without one, DeadlineError after so many seconds without capacity or for a zone that
    did not answer, and the error of a request that has failed.
    """
    allocation = find_decided(provider, name, zone)
    ready = await_existing(provider, allocation, Patience(seconds, gives_up=False), report)

    def reachable(node: Node) -> Node:
        if provider.ssh_key_change(node, key) is None:
            return await_ssh(provider, ssh, node, key, report)
        return await_hosts(provider, node, report)

    return replace(ready, nodes=tuple(values(fanout(reachable, ready.nodes))))


START_TIMEOUT = 900.0
START_PAUSES = Backoff(first=30.0, longest=300.0)


def requests(provider: Provider, plan: UpPlan) -> list[HttpRequest]:
    """Return the requests by which `up` changes something, for --dry-run.

    Those of creates in several zones, one after the other, are sent until a zone has capacity.
    """
    return [provider.http_request(change) for change in _changes(provider, plan)]


def _changes(provider: Provider, plan: UpPlan) -> Iterator[Change]:
    deletable = (item for item in plan.ended if not _is_leaving(item))
    yield from changes(DownPlan(tuple(deletable)))
    if plan.existing is None:
        yield from plan.creations
        return
    secured = next((item for item in plan.candidates if item.has_capacity), None)
    if plan.search.race and not secured:
        waiting = {item.zone for item in plan.candidates}
        yield from (creation for creation in plan.creations if zone_of(creation) not in waiting)
        return
    winner = secured or plan.existing
    yield from changes(DownPlan(tuple(item for item in plan.candidates if item is not winner)))
    if plan.stopped:
        yield StartNode(plan.stopped.id)
    for node in () if plan.search.detach else plan.existing.nodes:
        change = provider.ssh_key_change(node, plan.request.ssh_key)
        if change:
            yield change


def _is_leaving(item: Allocation) -> bool:
    return item.queued_resource is None and item.nodes[0].state is NodeState.DELETING


def up(provider: Provider, ssh: Ssh, plan: UpPlan, report: Report) -> Allocation:
    """Do what the plan says and return the TPU once every host answers over SSH, or at once with `detach`.

    Every error says what bills, and how to continue, since the provider completes a create by itself:
    StockoutError, QuotaError, PreemptedError, HostError, DeadlineError, InterruptedByUser on Ctrl-C, others.
    """
    try:
        if plan.ended:
            down(provider, DownPlan(plan.ended), report)
        allocation = _acquire(provider, plan, report)
        if plan.search.detach:
            return allocation
        allocation = _require_as_requested(allocation, plan)
        key = plan.request.ssh_key
        nodes = values(fanout(lambda node: grant_access(provider, ssh, node, key, report), allocation.nodes))
        return replace(allocation, nodes=tuple(nodes))
    except KeyboardInterrupt as error:
        raise _interrupted(plan) from error
    except Exception as error:
        if isinstance(error, StockoutError):
            error.hint = _other_zones(error, plan)
            if len(plan.search.zones) == 1:
                error.facts.setdefault("zone", plan.search.zones[0])
        elif isinstance(error, PreemptedError):
            error.hint = f"Delete it, and create another: {_resume(plan)}"
        _say_what_bills(provider, plan, error)
        raise


def _acquire(provider: Provider, plan: UpPlan, report: Report) -> Allocation:
    """Return the TPU with READY nodes: what exists, else what is created first."""
    race, is_own = _race(provider, plan, report)
    if plan.existing:
        where = f" in {plan.existing.zone}" if len(plan.search.zones) > 1 else ""
        report(f"{plan.options.name} exists{where}")
    if plan.stopped:
        _start(provider, plan.stopped, plan.search.wait, report)
    if not is_own and len(plan.candidates) > 1:
        return race.join()
    is_decided = plan.existing and plan.existing.has_capacity and len(plan.candidates) == 1
    if is_own and plan.search.race and not is_decided:
        return race.run(plan.creations, plan.search.wait)
    if len(plan.candidates) > 1:
        return race.settle()
    if plan.existing and plan.search.detach:
        return _require_decided(provider, plan.existing)
    return Rounds(provider, plan.creations, plan.search, report).run(plan.existing)


def _require_decided(provider: Provider, item: Allocation) -> Allocation:
    """Raise StateError for one of several candidates: another command may delete it."""
    if item.race:
        near = siblings(provider, item.name, (item.zone,), item.race)
        require_decided(item.name, near.only(lambda other: other.race == item.race).live or (item,))
    return item


def _race(provider: Provider, plan: UpPlan, report: Report) -> tuple[Race, bool]:
    """Return the search that decides what stays, and whether it is one's own: else of who was first."""
    owner, existing = plan.options.owner, plan.existing
    is_own = existing is None or existing.is_owned_by(owner)
    name = race_in(plan.creation) if existing is None or is_own else existing.race
    return Race(provider, plan.options.name, name, plan.search.zones, report, owner if is_own else ""), is_own


def _start(provider: Provider, node: Node, wait: float, report: Report) -> None:
    """Start a stopped node, which may take some rounds where its zone has no capacity.

    Raises NotFoundError where it is gone: another node that has its name by now stays as it is.
    """
    report(f"starting {node.name}")

    def start() -> None:
        provider.get_node(node.id)
        provider.begin(StartNode(node.id)).wait("to be started", START_TIMEOUT)

    retry(start, on=StockoutError, timeout=wait, backoff=START_PAUSES)


def _require_as_requested(allocation: Allocation, plan: UpPlan) -> Allocation:
    """Raise StateError for a node that another command has created meanwhile, and that is another one."""
    for node in allocation.nodes:
        texts = differences(node, plan.options)
        if texts:
            raise StateError(
                f"Node '{node.name}' {' and '.join(texts)}: another command created it meanwhile.",
                hint="Give yours another name with --name.",
                accelerator=node.accelerator,
            )
    return allocation


def _other_zones(error: StockoutError, plan: UpPlan) -> str:
    """Return the hint of a stockout: commands that try more; of one zone, the next on its continent first."""
    if plan.options.restart:
        return error.hint  # the zones are those of the run
    zones, accelerator = plan.search.zones, accelerators.accelerator(plan.options.accelerator)
    keeps_trying = "" if plan.search.wait else f"Keep trying: {_again(plan, {'--wait-capacity': '6h'})}"
    if len(zones) > 1:
        is_up = plan.options.typed[:1] in ((), ("up",))
        queues = f"Wait in all queues at once: {_again(plan, {'--race': ''})}" if is_up else ""
        spot = "" if plan.options.spot else f"Try spot capacity: {_again(plan, {'--spot': ''})}"
        return error.hint or joined_hints(keeps_trying, queues, spot)
    continent = zones[0].split("-")[0]
    others = sorted(
        (other for other in accelerator.zones if other != zones[0] and _is_reached(other, plan)),
        key=lambda other: not other.startswith(continent),
    )
    if not others:
        return error.hint
    return joined_hints(
        f"It is also offered in {', '.join(others[1:4])}." if others[1:] else "",
        f"Try the next zone: {_again(plan, {'--zone': others[0]})}",
        f"Try every zone: {_again(plan, {'--zone': 'any'})}",
        keeps_trying,
    )


def _is_reached(zone: str, plan: UpPlan) -> bool:
    """Whether the network has a subnetwork for a TPU in a zone, as far as is known."""
    try:
        subnetwork_in(zone, plan.options.subnetwork, plan.options.subnetworks)
    except ConfigError:
        return False
    return True


def _say_what_bills(provider: Provider, plan: UpPlan, error: Exception) -> None:
    """Add to an error what bills, or may bill where the provider does not answer, and both commands.

    What belongs to somebody else, and is not used, is not this command's to tell of.
    """
    if isinstance(error, TpuctlError) and "may_bill" in error.facts:
        return
    try:
        near = siblings(provider, plan.options.name, plan.search.zones, race_in(plan.creation))
    except (TpuctlError, KeyboardInterrupt):
        near = Siblings((), (), plan.search.zones)
    used = {item.zone for item in plan.candidates}
    own = near.only(lambda item: item.is_owned_by(plan.options.owner) or item.zone in used)
    billing = [item for item in (*own.live, *own.ended) if any(node.state.bills for node in item.nodes)]
    zones = {
        "bills": [item.zone for item in billing],
        "may bill": [*(item.zone for item in own.live if not item.nodes), *near.unreachable],
    }
    said = [f"in {' and in '.join(places)} {verb}" for verb, places in zones.items() if places]
    if said:
        sentence = f"Node '{plan.options.name}' {', and '.join(said)}."
        places = [f"{plan.options.name} in {zone}" for zone in chain.from_iterable(zones.values())]
        say_bill(error, sentence, _two_commands(plan), places)
    elif plan.stopped and own.live and isinstance(error, TpuctlError):
        error.hint = joined_hints(error.hint, _two_commands(plan))


def _interrupted(plan: UpPlan) -> InterruptedByUser:
    zones = plan.search.zones
    return InterruptedByUser(
        f"Interrupted while '{plan.options.name}' was being created; it may bill already in "
        f"{' or '.join(zones)}.",
        hint=_two_commands(plan),
        may_bill=[f"{plan.options.name} in {zone}" for zone in zones],
    )


def _two_commands(plan: UpPlan) -> str:
    is_kept = plan.existing and plan.existing.is_kept_by_terraform
    deletion = "" if is_kept else f"Delete it: tpuctl down {plan.options.name}"
    return joined_hints(f"Resume: {_resume(plan)}", deletion)


def _resume(plan: UpPlan) -> str:
    """Return the command that goes on with what this one began."""
    return _again(plan, {} if plan.options.restart else {"--name": plan.options.name})


def _again(plan: UpPlan, changed: Mapping[str, str]) -> str:
    """Return the command of a plan with other values of some options: that which was typed, if one was."""
    return again(plan.options.typed or (*plan.options.words, *plan.search.words), changed)
