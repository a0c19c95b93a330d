"""Deletes TPUs: nodes, and queued resources with the nodes they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tpuctl.cloud.provider import Provider
from tpuctl.errors import (
    DeadlineError,
    InterruptedByUser,
    NotFoundError,
    StateError,
    UsageError,
    joined_hints,
)
from tpuctl.flows.nodes.lookup import (
    Allocation,
    Inventory,
    choose_candidates,
    choose_only,
    find_node,
    find_queued_resource,
    no_such_node,
    take_inventory,
)
from tpuctl.flows.progress import Report
from tpuctl.nodes import (
    Change,
    DeleteNode,
    DeleteQueuedResource,
    HttpRequest,
    Node,
    NodeState,
    QueuedResource,
    QueueState,
)
from tpuctl.parallel import Result, fanout
from tpuctl.polling import poll
from tpuctl.shells import again

Item = TypeVar("Item", Node, QueuedResource)

TIMEOUT = 900.0
SEVERAL = "Name those to delete. All of them: tpuctl down --all"


@dataclass(frozen=True)
class DownPlan:
    """What is deleted; raises StateError for what Terraform keeps, which would create it again."""

    allocations: tuple[Allocation, ...]
    unreachable: tuple[str, ...] = ()
    """Zones that did not answer and may hold more of what is to be deleted."""
    again: str = field(default="", compare=False)
    """The command that deletes the same; empty where none was typed for it."""
    zone: str = field(default="", compare=False)
    """The zone that was named: elsewhere there may be others of these names."""

    def __post_init__(self) -> None:
        for item in self.allocations:
            if item.is_kept_by_terraform:
                raise StateError(
                    f"'{item.name}' in {item.zone} is kept by Terraform: tpuctl does not delete it.",
                    hint="Remove 'tpu' where the module is called, and run 'terraform apply'. To end a run "
                    "there: tpuctl cancel RUN",
                    owner=item.owner,
                )


def plan_down(
    provider: Provider, names: Sequence[str], owner: str, zone: str | None = None, *, everything: bool = False
) -> DownPlan:
    """Return what to delete, in a zone or in all: what is named, else the only TPU that tpuctl created for
    `owner`, or all of them with `everything`.

    Of a name that things of several owners have, only `owner`'s own.

    Raises UsageError for names beside `everything`, NotFoundError for a name that nothing has, StateError for
    one that several have, for several TPUs without a name, and for what Terraform keeps. Raises DeadlineError
    where a silent zone may hold a second TPU and none is named.
    """
    if names and everything:
        raise UsageError("Names and all of your TPUs exclude each other.", hint="Name TPUs, or take all.")
    try:
        return _plan(take_inventory(provider, zone), names, owner, zone, everything=everything)
    except (NotFoundError, StateError) as error:
        error.message += " Nothing was deleted." if len(names) > 1 else ""
        raise


def _plan(
    inventory: Inventory, names: Sequence[str], owner: str, zone: str | None, *, everything: bool
) -> DownPlan:
    if not names:
        own = tuple(item for item in inventory.allocations if item.is_owned_by(owner))
        if not everything:
            own = choose_only(own, inventory.unreachable, SEVERAL)
        command = _command(["--all"] if everything else [], zone)
        return DownPlan(own, inventory.unreachable, command, zone or "")
    chosen = [_meant(inventory, name, owner) for name in names]
    missing = [name for name, allocations in zip(names, chosen, strict=True) if not allocations]
    if missing and not inventory.unreachable:
        raise no_such_node(missing, inventory)
    meant = [item for allocations in chosen for item in allocations]
    named = tuple(item for item in inventory.allocations if item in meant)
    return DownPlan(named, inventory.unreachable if missing else (), _command(names, zone), zone or "")


def _command(words: Sequence[str], zone: str | None) -> str:
    return again(("down", *words), {"--zone": zone} if zone else {})


def _meant(inventory: Inventory, name: str, owner: str) -> tuple[Allocation, ...]:
    """Return what a name means: where things of several owners have it, such as a node and a queued resource,
    one's own. Raises StateError where none is.
    """
    matches = choose_candidates(inventory.allocations, name)
    own = tuple(item for item in matches if item.is_owned_by(owner))
    owners = {item.owner for item in matches}
    if not own and len(owners) > 1:
        raise StateError(
            f"{len(matches)} TPUs of {' and of '.join(sorted(each or 'nobody' for each in owners))} have the"
            f" name '{name}'.",
            hint="Their owners delete them: 'tpuctl ls --all-users' shows whose they are.",
            owners=sorted(owners),
        )
    return own or matches


def changes(plan: DownPlan) -> list[Change]:
    """Return the changes by which `down` deletes what is planned."""
    return [_change(allocation) for allocation in plan.allocations]


def requests(provider: Provider, plan: DownPlan) -> list[HttpRequest]:
    """Return the requests that `down` sends, for --dry-run."""
    return [provider.http_request(change) for change in changes(plan)]


def down(provider: Provider, plan: DownPlan, report: Report) -> None:
    """Delete everything that is planned, all at once, and return when the provider says that it is gone.

    What can be deleted is deleted, whatever fails beside it. Raises the first error, which names what may
    still bill, DeadlineError for zones that did not answer, and InterruptedByUser on Ctrl-C.
    """
    try:
        results = fanout(lambda allocation: _delete(provider, allocation, report), plan.allocations)
    except KeyboardInterrupt as interrupt:
        raise _interrupted(plan) from interrupt
    _raise_what_is_left(plan, results)
    if plan.unreachable:
        zones = ", ".join(plan.unreachable)
        raise DeadlineError(
            f"No answer from {zones}: TPUs there may continue to bill.",
            hint=f"In a minute: {plan.again}" if plan.again else "Run the same command again in a minute.",
            unreachable=list(plan.unreachable),
        )


def _interrupted(plan: DownPlan) -> InterruptedByUser:
    left = [f"{allocation.name} in {allocation.zone}" for allocation in plan.allocations]
    return InterruptedByUser(
        f"Interrupted while {' and '.join(left)} {'was' if len(left) == 1 else 'were'} being deleted; "
        f"{'it' if len(left) == 1 else 'each'} may still bill.",
        hint=joined_hints(f"Resume: {_again(plan, plan.allocations)}", "See what is left: tpuctl ls"),
        may_bill=left,
    )


def _raise_what_is_left(plan: DownPlan, results: Sequence[Result[Allocation, None]]) -> None:
    failed = [(result.item, result.error) for result in results if result.error]
    if not failed:
        return
    error = failed[0][1]
    left = [f"{item.name} in {item.zone}" for item, _ in failed]
    message = f"{' and '.join(left)} may still bill. {error.message}"
    again = f"Resume: {_again(plan, (item for item, _ in failed))}"
    hint = error.hint if "tpuctl down" in error.hint else joined_hints(error.hint, again)
    raise type(error)(message, hint=hint, **{**error.facts, "may_bill": left}) from error


def _again(plan: DownPlan, allocations: Iterable[Allocation]) -> str:
    return _command(list(dict.fromkeys(allocation.name for allocation in allocations)), plan.zone)


def _change(allocation: Allocation) -> Change:
    if allocation.queued_resource:
        return DeleteQueuedResource(allocation.queued_resource.id)
    return DeleteNode(allocation.nodes[0].id)


def _delete(provider: Provider, allocation: Allocation, report: Report) -> None:
    if allocation.queued_resource:
        _delete_queued_resource(provider, allocation.queued_resource, report)
    for node in _nodes_left(provider, allocation):
        _delete_node(provider, node, report)
    report(f"deleted {allocation.name}")


def _delete_queued_resource(provider: Provider, queued: QueuedResource, report: Report) -> None:
    """Delete a queued resource with its nodes; one that was made anew under its name stays."""
    _delete_until_gone(
        provider,
        DeleteQueuedResource(queued.id),
        lambda: _current(provider, queued),
        QueueState.DELETING,
        f"queued resource '{queued.name}'",
        report,
    )


def _current(provider: Provider, queued: QueuedResource) -> QueuedResource | None:
    """Return a queued resource as it is now; None for another one that has its name, which has no uid."""
    current = find_queued_resource(provider, queued.id)
    return current if current and current.created_at == queued.created_at else None


def _nodes_left(provider: Provider, allocation: Allocation) -> Iterator[Node]:
    """Yield the nodes that still exist; of a name that was used again, none."""
    known = {node.name: node.id for node in allocation.nodes}
    queued = allocation.queued_resource
    planned = list(known.values())
    if queued and find_queued_resource(provider, queued.id) is None:
        planned = [known.get(node.name, node) for node in queued.nodes]
    for node_id in planned:
        node = find_node(provider, node_id)
        if node and (node_id.uid or (queued and node.queued_resource == queued.name)):
            yield node


def _delete_node(provider: Provider, node: Node, report: Report) -> None:
    _delete_until_gone(
        provider,
        DeleteNode(node.id),
        lambda: find_node(provider, node.id),
        NodeState.DELETING,
        f"node '{node.name}'",
        report,
    )


def _delete_until_gone(
    provider: Provider,
    change: DeleteNode | DeleteQueuedResource,
    find: Callable[[], Item | None],
    leaving: NodeState | QueueState,
    subject: str,
    report: Report,
) -> None:
    """Delete what `find` returns; in a state that forbids it, say so and ask again until it does not."""
    was_refused = was_said = False

    def is_gone() -> bool | None:
        nonlocal was_refused, was_said
        current = find()
        if current is None:
            return True
        if current.state is leaving:
            return None
        if was_refused and not was_said:
            was_said = True
            report(f"{current.name} is {current.provider_state}: it is deleted as soon as it can be")
        was_refused = not _start(provider, change)
        return None

    poll(is_gone, awaiting=f"{subject} to be deleted", timeout=TIMEOUT)


def _start(provider: Provider, change: Change) -> bool:
    """Start to delete something, and wait for the operation; return False where its state forbids that.

    Another client may have deleted it already.
    """
    try:
        provider.begin(change).wait("to be deleted", TIMEOUT)
    except NotFoundError:
        return True
    except StateError:
        return False
    return True
