"""Begins a creation, once, and waits until its nodes are READY.

- Says what there is of one name in several zones, and which of several candidates stays.

  The oldest of a search's candidates stays. A candidate that is made later finds the older one when it looks
  after its create, so that of two commands that create at the same time exactly one keeps its own. Candidates
  are looked for in every zone: two commands may have some zones in common, or none.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

from tpuctl import durations
from tpuctl.cloud.provider import Operation, Provider
from tpuctl.errors import (
    ConflictError,
    DeadlineError,
    NotFoundError,
    PreemptedError,
    QuotaError,
    ServiceError,
    StateError,
    StockoutError,
    TpuctlError,
    joined_hints,
)
from tpuctl.flows.nodes.lookup import Allocation, find_node, find_queued_resource, take_inventory
from tpuctl.flows.progress import Report
from tpuctl.nodes import (
    CreateNode,
    CreateQueuedResource,
    Creation,
    DeleteQueuedResource,
    Node,
    NodeId,
    NodeState,
    QueuedResource,
    QueuedResourceId,
    QueueState,
)
from tpuctl.nodes.queued_resources import require_running
from tpuctl.polling import Backoff, poll, retry


@dataclass(frozen=True)
class Siblings:
    """The TPUs of one name in the zones of a search, and candidates of the same race in any zone."""

    live: tuple[Allocation, ...]
    """The oldest first."""
    ended: tuple[Allocation, ...]
    """Preempted, suspended or failed, or being deleted."""
    unreachable: tuple[str, ...] = ()
    """Zones of the search that did not answer, and may hold another."""

    @property
    def secured(self) -> Allocation | None:
        """The oldest that has its nodes."""
        return next((item for item in self.live if item.has_capacity), None)

    def only(self, is_meant: Callable[[Allocation], bool]) -> Siblings:
        """Return them without those that are not meant."""
        live, ended = filter(is_meant, self.live), filter(is_meant, self.ended)
        return Siblings(tuple(live), tuple(ended), self.unreachable)


def siblings(provider: Provider, name: str, zones: Sequence[str], race: str = "") -> Siblings:
    """Return what has a name in these zones, or belongs to a race; sends two requests for all zones."""
    inventory = take_inventory(provider, zones[0] if len(zones) == 1 and not race else None)
    named = (item for item in inventory.allocations if name in item.names)
    matches = [item for item in named if item.zone in zones or (race and item.race == race)]
    matches.sort(key=lambda item: item.age_order)
    return Siblings(
        tuple(item for item in matches if not item.is_over),
        tuple(item for item in matches if item.is_over),
        tuple(zone for zone in inventory.unreachable if zone in zones),
    )


def require_candidates(name: str, live: Sequence[Allocation]) -> None:
    """Raise StateError for several TPUs of a name that are not the candidates of one search."""
    if len(live) > 1 and (not live[0].race or len({item.race for item in live}) > 1):
        zones = sorted(item.zone for item in live)
        raise StateError(
            f"There are {len(live)} TPUs called '{name}': in {' and in '.join(zones)}.",
            hint="Choose one with --zone ZONE."
            if any(item.is_kept_by_terraform for item in live)
            else f"Choose one with --zone ZONE, or delete one: tpuctl down {name} --zone ZONE",
            zones=zones,
        )


def require_in_zones(item: Allocation, zones: Sequence[str]) -> Allocation:
    """Return a TPU that stays; raises StateError for that of another search, in none of one's own zones."""
    if item.zone not in zones:
        raise StateError(
            f"'{item.name}' is in {item.zone} already, by another 'tpuctl up' in several zones.",
            hint=joined_hints(
                f"The same command with --zone {item.zone} uses it, another --name makes another TPU.",
                f"Delete it: tpuctl down {item.name}",
            ),
            zone=item.zone,
        )
    return item


def older_rival(near: Siblings, own: Allocation) -> Allocation | None:
    """Return the TPU that stays in the place of one's own: the oldest of all that live."""
    first = near.live[0] if near.live else own
    return first if first.age_order < own.age_order else None


T = TypeVar("T")

ROUNDS = Backoff(first=30.0, longest=300.0)
"""Seconds between rounds: capacity comes back in minutes."""
CREATE_TIMEOUT = 1800.0
AGAIN = "'tpuctl up' again creates another."
PROVISION_TIMEOUT = 1200.0
"""Seconds for the nodes of a queued resource to come that is being provisioned when its time is over."""
ACCEPT_TIMEOUT = 120.0
"""Seconds in which a queued resource is accepted."""

PROVIDER = "SERVICE"
"""The initiator of a suspension that nobody asked for: a preemption."""


@dataclass(frozen=True)
class Patience:
    """How long to stay in a queue without capacity, in seconds."""

    seconds: float = inf
    gives_up: bool = True
    """Whether the request leaves the queue afterwards."""


class NotBegunError(DeadlineError):
    """The provider has not answered to a create, and says that it has begun none."""


class NoCapacityError(TpuctlError):
    """No zone of a round had capacity or quota left; the next round may."""

    kind = "stockout"

    def __init__(self, errors: Sequence[TpuctlError]) -> None:
        super().__init__("No zone has capacity.")
        self.errors = tuple(errors)


def renewed(creation: Creation) -> Creation:
    """Return what asks for the same once more: another request, with an id of its own."""
    if isinstance(creation, CreateQueuedResource):
        return replace(creation, request=replace(creation.request, request_id=str(uuid.uuid4())))
    return creation


def may_pass(error: TpuctlError) -> bool:
    """Whether what was refused so may be served in a later round."""
    if isinstance(error, QuotaError):
        return bool(error.facts.get("granted", True))
    return isinstance(error, (StockoutError, ServiceError, NotBegunError))


def begin(provider: Provider, creation: Creation, report: Report) -> Operation:
    """Start a creation and return its operation; after a lost answer that of the create that was sent.

    A node is requested once, since a second request could not be told from the first; a queued resource has
    an id by which the provider knows a repeated request. What another command creates meanwhile under the
    same name is used. Raises NotBegunError where there is no answer, and nothing was begun.
    """
    if isinstance(creation, CreateNode):
        request = creation.request
        report(f"creating {request.id.name} ({request.accelerator}) in {request.id.zone}")
        return _begin_node(provider, creation)
    queued = creation.request
    size = f"{queued.slices} x {queued.node.accelerator}" if queued.slices > 1 else queued.node.accelerator
    report(f"queueing {queued.id.name} ({size}) in {queued.id.zone}")
    try:
        return provider.begin(creation)
    except (ConflictError, DeadlineError) as error:
        if find_queued_resource(provider, queued.id) is None:
            raise _nothing_begun(error) from error
        return Operation(f"Queued resource '{queued.id.name}'", lambda: True)


def _begin_node(provider: Provider, creation: CreateNode) -> Operation:
    node = creation.request.id
    try:
        earlier = provider.creations(node)
    except DeadlineError as error:
        raise _nothing_begun(error) from error
    try:
        return provider.begin(creation)
    except (DeadlineError, ConflictError) as error:
        begun = [operation for name, operation in provider.creations(node).items() if name not in earlier]
        if begun:
            return begun[0]
        if find_node(provider, node) is None:
            raise _nothing_begun(error) from error
        return Operation(f"Node '{node.name}'", lambda: True)


def _nothing_begun(error: TpuctlError) -> TpuctlError:
    """Return the error of a create that was refused, or of one without an answer and without effect."""
    if isinstance(error, DeadlineError) and not isinstance(error, ServiceError):
        return NotBegunError(error.message, hint=error.hint, **error.facts)
    return error


def await_creation(
    provider: Provider, creation: Creation, operation: Operation, patience: Patience, report: Report
) -> Allocation:
    """Return what a creation makes once its nodes are READY.

    Raises StockoutError, also when a queued resource had no capacity for so long: it is deleted then.
    """
    if isinstance(creation, CreateQueuedResource):
        operation.wait("to be accepted", ACCEPT_TIMEOUT, hint="See 'tpuctl ls'.")
        return await_queued(provider, creation.request.id, patience, report)
    name = creation.request.id.name
    operation.wait(
        "to be created",
        CREATE_TIMEOUT,
        hint=joined_hints(
            "It may still be created: the same command again keeps waiting.", f"Give up: tpuctl down {name}"
        ),
    )
    return Allocation((await_node(provider, creation.request.id, report),))


def zone_of(creation: Creation) -> str:
    """Return the zone of what is created."""
    return creation.request.id.zone


def name_of(creation: Creation) -> str:
    """Return the name of what is created: of the node or of the queued resource."""
    return creation.request.id.name


def await_existing(
    provider: Provider, allocation: Allocation, patience: Patience, report: Report
) -> Allocation:
    """Return a TPU that this or another command has requested, once its nodes are READY.

    Raises StockoutError as its creator does, and NotFoundError when it is deleted meanwhile.
    """
    if allocation.queued_resource:
        return await_queued(provider, allocation.queued_resource.id, patience, report)
    node = allocation.nodes[0]
    if node.state is NodeState.CREATING:
        _await_running_creations(provider, node.id)
    return Allocation((await_node(provider, node.id, report),))


def await_node(provider: Provider, node_id: NodeId, report: Report) -> Node:
    """Return a node once it is READY; raises PreemptedError or StateError for one that will not be."""
    reported = set[str]()

    def ready() -> Node | None:
        node = find_node(provider, node_id)
        if node is None:
            raise NotFoundError(
                f"Node '{node_id.name}' in {node_id.zone} does not exist any more.", hint=AGAIN
            )
        if node.state is NodeState.DELETING:
            raise NotFoundError(f"Node '{node.name}' in {node.zone} is being deleted.", hint=AGAIN)
        if not node.state.becomes_ready:
            return require_running(node)
        if node.provider_state not in reported:
            reported.add(node.provider_state)
            report(f"{node.name} is {node.provider_state}")
        return None

    return poll(
        ready,
        awaiting=f"node '{node_id.name}' to be {NodeState.READY}",
        timeout=CREATE_TIMEOUT,
        hint="See 'tpuctl ls'.",
    )


def await_queued(
    provider: Provider, queued_id: QueuedResourceId, patience: Patience, report: Report
) -> Allocation:
    """Return a queued resource once all its nodes are READY; a provider that is silent is asked again.

    One that has had no capacity for the time of `patience` is taken out of the queue: StockoutError. One
    that is being provisioned then gets PROVISION_TIMEOUT, and leaves as soon as it waits again, because its
    capacity went elsewhere. Raises the error of one that has failed, and StateError or PreemptedError for
    one that is suspended.
    """
    watch = _QueueWatch(provider, queued_id, report)
    allocation = wait_for(watch.active, patience.seconds)
    if allocation is None and not patience.gives_up:
        raise still_waits(queued_id.name, queued_id.zone)

    def active_or_gone() -> Allocation | bool | None:
        return watch.active() or (watch.is_waiting and withdraw(provider, queued_id)) or None

    outcome = allocation or wait_for(active_or_gone, PROVISION_TIMEOUT)
    if isinstance(outcome, Allocation):
        return outcome
    if outcome is None:
        withdraw(provider, queued_id, force=True)
    seconds = patience.seconds + (0 if outcome else PROVISION_TIMEOUT)
    raise StockoutError(
        f"There was no capacity for '{queued_id.name}' in {queued_id.zone} within "
        f"{durations.text(seconds)}; its request is out of the queue again.",
        zone=queued_id.zone,
    )


def still_waits(name: str, zone: str) -> DeadlineError:
    """Return the error for a request that stays in its queue."""
    return DeadlineError(
        f"'{name}' still waits for capacity in {zone}.",
        hint=joined_hints(f"Keep waiting: tpuctl wait {name}", f"Give up: tpuctl down {name}"),
    )


class _QueueWatch:
    """Looks at a queued resource, and reports each of its states once."""

    def __init__(self, provider: Provider, queued_id: QueuedResourceId, report: Report) -> None:
        self._provider = provider
        self._id = queued_id
        self._report = report
        self._reported = ""
        self.is_waiting = False
        """Whether it had no nodes when it was last looked at."""

    def active(self) -> Allocation | None:
        """Return the allocation when all its nodes are READY."""
        self.is_waiting = False
        try:
            queued = self._provider.get_queued_resource(self._id)
        except DeadlineError:
            self._say(f"no answer about {self._id.name} from {self._id.zone}; asking again")
            return None
        except NotFoundError as error:
            raise NotFoundError(
                f"Queued resource '{self._id.name}' in {self._id.zone} does not exist any more.", hint=AGAIN
            ) from error
        require_hope(queued)
        self.is_waiting = queued.state is QueueState.WAITING
        self._say(f"{queued.name} is {queued.provider_state} in {queued.zone}")
        return _with_nodes(self._provider, queued) if queued.state is QueueState.ACTIVE else None

    def _say(self, line: str) -> None:
        if line != self._reported:
            self._reported = line
            self._report(line)


class _NotYet(Exception):
    """What is waited for is not there."""


def wait_for(check: Callable[[], T | None], seconds: float) -> T | None:
    """Return what `check` returns as soon as it is not None, or None after so many seconds."""

    def look() -> T:
        result = check()
        if result is None:
            raise _NotYet
        return result

    try:
        return retry(look, on=_NotYet, timeout=seconds)
    except _NotYet:
        return None


def require_hope(queued: QueuedResource) -> QueuedResource:
    """Return a queued resource that can still become active.

    Raises its error when it has failed, NotFoundError when it is being deleted, StateError or PreemptedError
    when it is suspended.
    """
    if queued.failure:
        raise queued.failure
    if queued.state is QueueState.DELETING:
        raise NotFoundError(f"Queued resource '{queued.name}' in {queued.zone} is being deleted.", hint=AGAIN)
    if queued.state.is_over:
        kind = PreemptedError if queued.initiator == PROVIDER else StateError
        raise kind(
            f"Queued resource '{queued.name}' in {queued.zone} is {queued.provider_state}.",
            hint="'tpuctl up' again deletes it and creates it anew.",
        )
    return queued


def withdraw(provider: Provider, queued_id: QueuedResourceId, *, force: bool = False) -> bool:
    """Take a queued resource out of the queue; return False for one that has nodes, unless with `force`.

    Without it the provider decides: nobody's nodes are deleted, even if they come at this moment.
    """
    try:
        provider.begin(DeleteQueuedResource(queued_id, force=force)).wait("to be deleted", CREATE_TIMEOUT)
    except (NotFoundError, StateError):
        pass  # the look decides

    def outcome() -> tuple[bool] | None:
        queued = find_queued_resource(provider, queued_id)
        is_leaving = queued and queued.state is QueueState.DELETING
        return None if is_leaving else (queued is None,)

    (is_gone,) = poll(
        outcome,
        awaiting=f"queued resource '{queued_id.name}' in {queued_id.zone} to be deleted",
        timeout=CREATE_TIMEOUT,
        hint=f"It may still bill: tpuctl down {queued_id.name}",
    )
    return is_gone


def _with_nodes(provider: Provider, queued: QueuedResource) -> Allocation | None:
    """Return an active queued resource with its nodes; None while one is missing or not READY."""
    inventory = take_inventory(provider, queued.zone)
    current = (item for item in inventory.allocations if item.queued_resource)
    allocation = next((item for item in current if item.name == queued.name), None)
    if allocation is None or not allocation.has_capacity:
        return None
    if any(node.state.becomes_ready for node in allocation.nodes):
        return None
    for node in allocation.nodes:
        require_running(node)
    return allocation


def _await_running_creations(provider: Provider, node: NodeId) -> None:
    """Wait for the operation that creates a node: it says why when there will be none."""
    for operation in provider.creations(node).values():
        if _is_running(operation):
            operation.wait("to be created", CREATE_TIMEOUT, hint="See 'tpuctl ls'.")


def _is_running(operation: Operation) -> bool:
    try:
        return not operation.is_done()
    except TpuctlError:
        return False  # of an earlier node of the same name
