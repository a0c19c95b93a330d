"""Plans `up`: checks the options against the catalogue, the zones and what exists of the name.

- Looks up what a TPU costs per hour: in the configuration, then in the price list of the provider.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from msgspec.structs import replace

from tpuctl import accelerators
from tpuctl.accelerators import Accelerator, accelerator, catalogue
from tpuctl.catalogue.prices import OwnPrice, Price, RateList, own_price, unknown
from tpuctl.catalogue.recorded_price import RecordedPrice
from tpuctl.cloud.provider import Provider
from tpuctl.config.subnetworks import subnetwork_in
from tpuctl.errors import ConfigError, StateError, TpuctlError, UsageError, nearest
from tpuctl.flows.nodes.lookup import Allocation, no_answer
from tpuctl.flows.nodes.options import UpOptions, creation
from tpuctl.flows.nodes.placement.creation import Siblings, require_candidates, require_in_zones, siblings
from tpuctl.flows.nodes.placement.rounds import Search, check_search
from tpuctl.nodes import CreateNode, Creation, Node, NodeRequest, NodeState, QueuedResource, SshKey
from tpuctl.nodes.candidates import as_candidate, race_id
from tpuctl.nodes.queued_resources import require_running
from tpuctl.parallel import fanout
from tpuctl.runs import Tpu

RESERVED = unknown("reserved capacity costs what its contract says")


class Prices:
    """Prices of one command: a list is read at the first price that needs it, and once."""

    def __init__(
        self,
        own: Sequence[OwnPrice],
        read_rates: Callable[[str], RateList],
        kept_rates: Callable[[str], RateList | None] = lambda _: None,
    ) -> None:
        """Take the rows of the configuration, and what reads the list that has a generation's rates.

        The latter may raise tpuctl's errors: the prices are unknown then, and no command fails for it.
        `kept_rates` returns the list that this machine has kept, and asks no service.
        """
        self._own = own
        self._read_rates = cache(_never_failing(read_rates))
        self._kept_rates = cache(kept_rates)

    def price(self, kind: Accelerator, zone: str, *, spot: bool, slices: int = 1) -> Price:
        """Return what some slices of a type cost per hour in a zone."""
        price = own_price(self._own, kind, zone, spot=spot)
        if price is None and not kind.is_known:
            return unknown(f"this version of tpuctl does not know {kind.type}")
        if price is None:
            rates = self._read_rates(kind.generation)
            price = rates if isinstance(rates, Price) else rates.price(kind, zone, spot=spot)
        return price.times(slices)

    def of_creation(self, creation: Creation) -> Price:
        """Return what the nodes of a request cost per hour."""
        if isinstance(creation, CreateNode):
            request, slices, reserved = creation.request, 1, creation.request.reserved
        else:
            request, slices = creation.request.node, creation.request.slices
            reserved = request.reserved or bool(creation.request.reservation)
        if reserved:
            return RESERVED
        return self.price(accelerator(request.accelerator), request.id.zone, spot=request.spot, slices=slices)

    def of(self, item: Node | QueuedResource | Tpu) -> Price:
        """Return what a node costs per hour, with all of its slices, or each node of a queued resource."""
        try:
            kind = accelerator(item.accelerator)
        except TpuctlError:
            return unknown(f"this version of tpuctl does not know {item.accelerator or 'its type'}")
        if _is_reserved(item):
            return RESERVED
        slices = 1 if isinstance(item, QueuedResource) else len(item.slices) or 1
        return self.price(kind, item.zone, spot=item.spot, slices=slices)

    def recorded(self, node: Node) -> RecordedPrice | None:
        """Return what a node costs per hour, for a record; None where that is not known without asking."""
        kind = catalogue().get(node.accelerator)
        if kind is None:
            return None
        if _is_reserved(node):
            return RecordedPrice.of(RESERVED)
        price = own_price(self._own, kind, node.zone, spot=node.spot)
        rates = self._kept_rates(kind.generation) if price is None else None
        price = rates.price(kind, node.zone, spot=node.spot) if rates else price
        return RecordedPrice.of(price.times(len(node.parts))) if price and price.is_known else None


def _is_reserved(item: Node | QueuedResource | Tpu) -> bool:
    if isinstance(item, Node):
        return item.spec.reserved
    return isinstance(item, QueuedResource) and bool(item.reservation)


def _never_failing(read_rates: Callable[[str], RateList]) -> Callable[[str], RateList | Price]:
    def read(generation: str) -> RateList | Price:
        try:
            return read_rates(generation)
        except TpuctlError as error:
            return unknown(error.message, error.hint)

    return read


NODE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class UpPlan:
    """What `up` will do: create one of `creations`, or use what exists."""

    options: UpOptions
    search: Search
    creations: tuple[Creation, ...]
    """One for each zone, in the order in which they are tried."""
    candidates: tuple[Allocation, ...]
    """What exists of this name, the oldest first: several are candidates of an earlier command."""
    ended: tuple[Allocation, ...]
    """What is deleted first, since it gives nobody a TPU any more: preempted, suspended or failed.

    Beside a TPU that is used, only what the same search has left in another zone.
    """

    @property
    def existing(self) -> Allocation | None:
        """What is used, or None where one is created."""
        return self.candidates[0] if self.candidates else None

    @property
    def not_applied(self) -> tuple[str, ...]:
        """The options about labels and metadata that what exists does not have, and does not get."""
        if self.existing is None:
            return ()
        item = self.existing.nodes[0] if self.existing.nodes else self.existing.queued_resource
        assert item
        pairs = (
            ("--label", self.options.labels, item.labels),
            ("--metadata", self.options.metadata, item.metadata),
        )
        return self.options.lifetime.missing(item.metadata) + tuple(
            f"{option} {key}"
            for option, options, existing in pairs
            for key, value in options.items()
            if existing.get(key) != value
        )

    @property
    def stopped(self) -> Node | None:
        """The node to be started, if that is what exists."""
        nodes = self.existing.nodes if self.existing else ()
        return next((node for node in nodes if node.state is NodeState.STOPPED), None)

    @property
    def creation(self) -> Creation:
        """The first that is tried."""
        return self.creations[0]

    @property
    def request(self) -> NodeRequest:
        """The node to create first, or the pattern of several."""
        return self.creation.request if isinstance(self.creation, CreateNode) else self.creation.request.node

    @property
    def hosts(self) -> int:
        """Of one slice; 0 for a type that the catalogue does not know."""
        return self.options.type.hosts

    @property
    def chips(self) -> int:
        """Of one slice; 0 for a type that the catalogue does not know."""
        return self.options.type.chips


def default_name(user: str, accelerator: str) -> str:
    """Return the name of a user's node of a type when none is given: always the same, so `up` finds it."""
    return re.sub(r"[^-a-z0-9]", "-", f"{user}-{accelerator}".lower()).lstrip("-0123456789") or "tpu"


def plan_up(provider: Provider, ssh_key: SshKey, options: UpOptions, search: Search) -> UpPlan:
    """Check the options and return what is to be done; sends reads only.

    Raises UsageError for a type or runtime that no zone offers, StateError when the name belongs to a node of
    another type or to several, and DeadlineError where a zone that did not answer may hold one.
    """
    if not NODE_NAME.fullmatch(options.name):
        raise UsageError(
            f"'{options.name}' cannot name a node.",
            hint="Use lower-case letters, digits and dashes, a letter first, 63 at most.",
        )
    options = replace(options, queued=True) if search.race else options
    check_search(search, is_queued=options.is_queued)
    for zone in search.zones:
        _check_spelling(zone)
    race = race_id(options.owner) if len(search.zones) > 1 else ""
    near = siblings(provider, options.name, search.zones, race)
    require_candidates(options.name, near.live)
    if near.unreachable and not near.live:
        raise no_answer(near.unreachable, f"'{options.name}'")
    if near.live:
        require_in_zones(near.secured or near.live[0], search.zones)
    for item in near.live:
        _require_same(item, options)
    for item in near.ended:
        _require_own(item, options)
    creations = _creations(provider, ssh_key, options, search, near)
    return UpPlan(options, search, tuple(creations), near.live, _deletable(near))


def _deletable(near: Siblings) -> tuple[Allocation, ...]:
    """Return what has ended and is deleted: all, or beside a TPU that lives the candidates of its search."""
    if not near.live:
        return near.ended
    race = near.live[0].race
    return tuple(item for item in near.ended if race and item.race == race)


def _creations(
    provider: Provider, ssh_key: SshKey, options: UpOptions, search: Search, near: Siblings
) -> list[Creation]:
    """Return the creation for each zone that may be tried: for a TPU that exists, its own zone alone.

    Left out are zones of a region or of `any` that do not offer the type.
    """
    existing = [item for item in near.live[:1] if item.has_capacity]
    zones = [item.zone for item in existing] or search.zones
    if existing and not options.runtime and not (options.framework and options.type.is_known):
        first = existing[0].nodes[0] if existing[0].nodes else existing[0].queued_resource
        options = replace(options, runtime=first.runtime if first else None)
    results = fanout(lambda zone: planned_creation(provider, ssh_key, options, zone), zones)
    for result in results:
        is_other = not isinstance(result.error, (UsageError, ConfigError))
        is_named = not search.named or result.item in search.named
        is_last = not any(other.value for other in results)
        if result.error and (is_other or is_named or is_last):
            raise result.error
    creations = [result.value for result in results if result.value]
    if len(search.zones) == 1:
        return creations
    race = race_id(options.owner)
    candidates = [as_candidate(item, race) for item in creations]
    for candidate in candidates:
        provider.check(candidate)  # again: it has more labels
    return candidates


def _require_same(item: Allocation, options: UpOptions) -> None:
    """Raise StateError for a TPU that is not what the options name explicitly."""
    queued = item.queued_resource
    first = item.nodes[0] if item.nodes else queued
    texts = differences(first, options) if first else []
    slices = len(queued.nodes) if queued else 1
    if options.slices != slices:
        texts.append(f"has {slices} slice{'s' if slices > 1 else ''}")
    kind = "Node" if item.nodes else "Queued resource"
    owner = item.owner or "somebody else"
    if texts:
        is_own = item.is_owned_by(options.owner)
        raise StateError(
            f"{kind} '{item.name}' exists and {' and '.join(texts)}.",
            hint=f"Give the new one another name with --name, or delete the old one: {item.deletion}"
            if is_own
            else f"Give the new one another name with --name: it belongs to {owner}.",
        )
    if any(node.state is NodeState.STOPPED for node in item.nodes) and not item.is_usable_by(options.owner):
        raise StateError(
            f"{kind} '{item.name}' in {item.zone} is stopped, and belongs to {owner}.",
            hint=f"Give yours another name with --name. Start it, so that it bills: tpuctl start {item.name}",
        )
    for node in item.nodes:
        if not (node.state.becomes_ready or node.state is NodeState.STOPPED):
            require_running(node)


def _require_own(item: Allocation, options: UpOptions) -> None:
    """Raise PreemptedError or StateError for what has ended and belongs to somebody else: it stays."""
    if item.is_owned_by(options.owner):
        return
    for node in item.nodes:
        require_running(node)
    raise StateError(
        f"'{item.name}' in {item.zone} has ended, and belongs to {item.owner or 'somebody else'}.",
        hint="Give yours another name with --name, or ask its owner to delete it.",
    )


def planned_creation(provider: Provider, ssh_key: SshKey, options: UpOptions, zone: str) -> Creation:
    """Return the change that creates what the options request in a zone; sends reads only.

    Raises UsageError for a type or runtime that the zone does not offer, ConfigError for one that its network
    does not reach.
    """
    subnetwork_in(zone, options.subnetwork, options.subnetworks)
    _check_zone(provider, options.type, zone)
    return creation(provider, options, zone, _runtime(provider, options, zone), ssh_key)


class NoFrameworkError(UsageError):
    """Nothing says which framework a slice of several hosts is for, and its image serves not all."""

    def __init__(self, accelerator: Accelerator) -> None:
        super().__init__(
            f"{accelerator.type} has {accelerator.hosts} hosts: TensorFlow needs an image there that JAX and "
            "PyTorch cannot use, and nothing says which of them it is for.",
            hint="Say it: --framework jax, pytorch or tensorflow. For a project: framework in its "
            "tpuctl.toml; for a script: framework in its header.",
            accelerator=accelerator.type,
        )


def _check_spelling(zone: str) -> None:
    """Raise UsageError for a zone in a region that nobody knows, if it is nearly another."""
    if accelerators.region(zone) not in map(accelerators.region, accelerators.zones()):
        close = nearest(zone, accelerators.zones())
        if close:
            raise UsageError(
                f"There is no zone '{zone}' with TPUs.", hint=f"Did you mean {close[0]}?", zone=zone
            )


def _check_zone(provider: Provider, accelerator: Accelerator, zone: str) -> None:
    """The zone's own list decides; the catalogue only names alternatives."""
    if accelerator.type not in provider.list_accelerator_types(zone):
        accelerators.known(accelerator.type)  # else it is most likely a slip
        raise UsageError(
            f"{accelerator.type} is not offered in {zone}.",
            hint=accelerator.places,
            zone=zone,
            accelerator=accelerator.type,
        )


def _runtime(provider: Provider, options: UpOptions, zone: str) -> str:
    offered = provider.list_runtimes(zone)
    if not options.runtime:
        if not options.framework and options.type.hosts > 1:
            raise NoFrameworkError(options.type)
        runtime = provider.default_runtime(options.type, options.framework, offered)
        if runtime:
            return runtime
        raise UsageError(
            f"Which runtime version {options.accelerator} needs is not known.",
            hint=f"Name one of those that {zone} has with --runtime: tpuctl runtimes --zone {zone}",
            accelerator=options.accelerator,
        )
    if options.runtime not in offered:
        close = nearest(options.runtime, offered)
        raise UsageError(
            f"{zone} has no runtime version '{options.runtime}'.",
            hint=f"The nearest are {', '.join(close or offered[:3])}.",
            runtime=options.runtime,
        )
    return options.runtime


def differences(node: Node | QueuedResource, options: UpOptions) -> list[str]:
    """Return how a node differs from what the options name explicitly."""
    texts = []
    if node.accelerator != options.accelerator:
        texts.append(f"is a {node.accelerator}")
    if options.spot and not node.spot:
        texts.append("is not spot")
    if options.runtime and options.runtime != node.runtime:
        texts.append(f"has the runtime {node.runtime}")
    for mark in () if options.lifetime.is_net else options.lifetime.marks:
        if mark not in node.metadata:
            texts.append(f"has no {mark.replace('tpuctl-', '--')}")
    return texts
