"""Tries one zone after another, and again for as long as the user waits.

- Defines how `up` looks for capacity: in which zones, in one after the other or in all at once, how long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import inf

from tpuctl import accelerators, clock, durations
from tpuctl.accelerators import Accelerator
from tpuctl.catalogue.regions import BucketLocation, nearest_first
from tpuctl.cloud.provider import Provider
from tpuctl.errors import (
    ConfigError,
    ConflictError,
    DeadlineError,
    NotFoundError,
    QuotaError,
    ServiceError,
    StockoutError,
    TpuctlError,
    UsageError,
    nearest,
)
from tpuctl.flows.nodes.down import DownPlan, down
from tpuctl.flows.nodes.lookup import Allocation, find_node, find_queued_resource
from tpuctl.flows.nodes.placement.creation import (
    ROUNDS,
    NoCapacityError,
    NotBegunError,
    Patience,
    Siblings,
    await_creation,
    await_existing,
    begin,
    may_pass,
    name_of,
    older_rival,
    renewed,
    require_in_zones,
    siblings,
    zone_of,
)
from tpuctl.flows.nodes.placement.race import Race
from tpuctl.flows.progress import Report
from tpuctl.nodes import (
    OWNER_LABEL,
    CreateQueuedResource,
    Creation,
    Node,
    QueuedResource,
    QueueState,
)
from tpuctl.nodes.candidates import RACE_LABEL, labels_in, race_in
from tpuctl.polling import poll, retry, time_left

ANY = "any"


@dataclass(frozen=True)
class Search:
    """Where and how long to look for capacity."""

    zones: tuple[str, ...]
    """In the order in which they are tried."""
    named: tuple[str, ...] = ()
    """What the user named: zones, regions or `any`; nothing where the configuration has the zone."""
    race: bool = False
    """Whether to wait in the queues of all zones at once, and to keep the first that gets its nodes."""
    wait: float = 0.0
    """Seconds for which to look again while there is no capacity; of a queue, 0 is for no limit."""
    detach: bool = False
    """Whether to leave as soon as the request is accepted."""
    left_out: tuple[str, ...] = ()
    """Zones of a region or of `any` that are not tried, since the bucket is in another region."""
    flaws: Mapping[str, str] = field(default_factory=dict)
    """Zone of a region or of `any` that is tried last -> what it lacks: `no quota` or `no price`."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of `up` that make this search."""
        zones = (word for name in self.named for word in ("--zone", name))
        wait = ("--wait-capacity", durations.text(self.wait)) if self.wait else ()
        return (*zones, *(("--race",) if self.race else ()), *wait)


def check_search(search: Search, *, is_queued: bool) -> None:
    """Raise UsageError for options that contradict each other."""
    if search.race and len(search.zones) < 2:
        elsewhere = f" {len(search.left_out)} are in other regions than the bucket: --cross-region"
        raise UsageError(
            "--race takes several zones.",
            hint=f"Name them with --zone, or pass --zone any.{elsewhere if search.left_out else ''}",
        )
    if search.detach and len(search.zones) > 1:
        raise UsageError(
            "--detach leaves at once, and with several zones somebody has to wait, and cancel the rest.",
            hint="Name one zone, or leave --detach out.",
        )
    if search.detach and search.wait and not is_queued:
        raise UsageError("--detach leaves at once, and --wait-capacity waits.", hint="Pass --queued instead.")


@dataclass(frozen=True)
class Terms:
    """What is known of a type in a zone before anything is created."""

    flaw: str = ""
    """`no quota` or `no price`: nobody has it there; empty for neither."""
    spot_price: Decimal = Decimal(0)
    """Per hour; 0 where it is unknown, or does not matter."""


def expand(
    named: Sequence[str],
    accelerator: Accelerator,
    near: BucketLocation | None = None,
    terms: Callable[[Sequence[str]], Mapping[str, Terms]] = lambda zones: {},
) -> tuple[str, ...]:
    """Return the zones that names mean: of zones, of regions, or `any` for all that the catalogue has.

    The names' order is kept. Of the zones of a region or of `any`, those come first that lack nothing, of
    these the ones near the bucket, then those that Google documents, then the cheapest spot TPUs. Raises
    UsageError for a region without the type.
    """
    zones: list[str] = []
    for name in named:
        zones += [name] if is_zone(name) else _zones_of(name, accelerator, near, terms)
    return tuple(dict.fromkeys(zones))


def is_zone(name: str) -> bool:
    """Whether a name is that of a zone, not of a region or `any`."""
    return name != ANY and "-" in name and not name[-1].isdigit()


def _zones_of(
    name: str,
    accelerator: Accelerator,
    near: BucketLocation | None,
    terms: Callable[[Sequence[str]], Mapping[str, Terms]],
) -> list[str]:
    offered = [zone for zone in accelerator.zones if name in (ANY, accelerators.region(zone))]
    if not offered:
        regions = sorted({accelerators.region(zone) for zone in accelerator.zones})
        close = nearest(name, [*regions, ANY], most=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        raise UsageError(
            f"No zone of '{name}' is known to offer {accelerator.type}.",
            hint=f"{hint}{accelerator.places}",
            zone=name,
        )
    known = terms(offered)
    offered.sort(key=lambda zone: known.get(zone, Terms()).spot_price)
    offered.sort(key=lambda zone: zone not in accelerator.documented)
    offered = nearest_first(offered, near)
    return sorted(offered, key=lambda zone: bool(known.get(zone, Terms()).flaw))


QUEUE_PATIENCE = 180.0
"""Seconds in the queue of one zone before the next zone is tried."""
LOOK_TIMEOUT = 60.0
"""Seconds for a zone to answer in which another command may have created the same."""


class _TakenError(ConflictError):
    """The name is that of a TPU that is being deleted; the next round may find it free."""


class Rounds:
    """The zones that are left to try; a zone that refuses for good is not tried again."""

    def __init__(
        self, provider: Provider, creations: Sequence[Creation], search: Search, report: Report
    ) -> None:
        self._provider = provider
        self._creations = {zone_of(creation): creation for creation in creations}
        self._search = search
        self._report = report
        self._owner = labels_in(creations[0]).get(OWNER_LABEL)
        self._refusals: list[TpuctlError] = []
        self._count = 0
        self._left = time_left(search.wait or inf)

    def run(self, existing: Allocation | None) -> Allocation:
        """Return the TPU, READY, or as it is with `detach`; `existing` is waited for first.

        Raises StockoutError or QuotaError of the only zone, or one that names all zones.
        """
        try:
            return retry(
                lambda: self._round(existing if self._count == 0 else None),
                on=NoCapacityError,
                timeout=self._search.wait,
                backoff=ROUNDS,
            )
        except NoCapacityError as error:
            raise self._summary(error.errors) from error

    def _round(self, existing: Allocation | None) -> Allocation:
        errors: list[TpuctlError] = []
        self._count += 1
        order = list(self._creations)
        if existing:
            order = [existing.zone, *(zone for zone in order if zone != existing.zone)]
        for zone in order:
            try:
                return self._try(zone, existing if existing and existing.zone == zone else None)
            except (StockoutError, ServiceError, _TakenError) as error:
                if isinstance(error, ServiceError) and self._may_exist(zone):
                    raise
                errors.append(error)
                failure: TpuctlError = error
            except NotBegunError as error:
                if not self._search.wait:
                    raise
                self._report(f"{clock.iso(clock.now())} {error.message}")
                raise NoCapacityError([error]) from error
            except (QuotaError, ConfigError, UsageError) as error:
                if not self._refuses_for_good(zone, error):
                    errors.append(error)
                failure = error
            self._delete_failed(zone)
            if len(order) > 1 and self._count == 1:
                is_stockout = isinstance(failure, StockoutError)
                self._report(f"no capacity in {zone}" if is_stockout else f"not in {zone}: {failure.message}")
        if not self._creations:
            raise self._summary(errors)
        if self._search.wait:
            zones = ", ".join(self._creations)
            self._report(f"{clock.iso(clock.now())} no capacity in {zones} (attempt {self._count})")
        raise NoCapacityError(errors)

    def _may_exist(self, zone: str) -> bool:
        """Whether something may be in a zone whose service has failed: then no other is created."""
        near = siblings(self._provider, name_of(self._creations[zone]), (zone,))
        return bool(near.live or near.unreachable)

    def _delete_failed(self, zone: str) -> None:
        """Delete what has failed in the queue of a zone before the next one is tried: it takes quota."""
        creation = self._creations.get(zone)
        if isinstance(creation, CreateQueuedResource):
            queued = find_queued_resource(self._provider, creation.request.id)
            if queued and queued.state is QueueState.FAILED and queued.labels == creation.request.node.labels:
                down(self._provider, DownPlan((Allocation((), queued),)), self._report)

    def _refuses_for_good(self, zone: str, error: TpuctlError) -> bool:
        """Take a zone that lacks the quota, the type or the permission out of the rounds.

        Raises the error of what the whole project lacks, or of a request that no zone would accept.
        """
        if may_pass(error):
            return False
        if not isinstance(error, QuotaError) and error.facts.get("scope") != "zone":
            raise error
        self._refusals.append(error)
        self._creations.pop(zone, None)
        return True

    def _try(self, zone: str, existing: Allocation | None) -> Allocation:
        if existing:
            try:
                if self._is_of_another_race(existing):
                    return self._join(existing)
                return await_existing(self._provider, existing, self._patience_with(existing), self._report)
            except NotFoundError:
                self._report(f"{existing.name} was deleted in {zone}")
        creation = self._request(zone)
        try:
            operation = begin(self._provider, creation, self._report)
        except ConflictError as error:
            near = siblings(self._provider, name_of(creation), (zone,))
            if near.live:
                return self._use(near.live[0])
            raise _TakenError(error.message, hint=error.hint, **error.facts) from error
        if self._search.detach:
            return self._look(creation)
        rival = self._rival(creation) if len(self._search.zones) > 1 else self._first(creation)
        if rival:
            return self._use(rival)
        return await_creation(self._provider, creation, operation, self._patience(zone), self._report)

    def _request(self, zone: str) -> Creation:
        """Return what is created in a zone: each round is another request."""
        creation = self._creations[zone]
        return renewed(creation) if self._count > 1 else creation

    def _use(self, rival: Allocation) -> Allocation:
        """Return what another command has requested, READY; raises StockoutError when it goes again."""
        self._report(f"{rival.name} is in {rival.zone} already: another command was first")
        require_in_zones(rival, self._search.zones)
        try:
            if self._is_of_another_race(rival) or (rival.race and rival.queued_resource):
                return self._join(rival)
            return await_existing(self._provider, rival, Patience(), self._report)
        except NotFoundError as error:
            raise StockoutError(f"{rival.name} is gone from {rival.zone} again.", zone=rival.zone) from error

    def _is_of_another_race(self, item: Allocation) -> bool:
        """Whether it may be deleted in favour of a candidate that this search does not look for."""
        own = {race_in(creation) for creation in self._creations.values()}
        return bool(item.race) and item.race not in own

    def _join(self, item: Allocation) -> Allocation:
        """Return the candidate that stays, once it is decided; raises StateError for one in another zone."""
        race = Race(self._provider, item.name, item.race, self._search.zones, self._report)
        return race.join(self._search.wait if len(self._search.zones) == 1 else 0.0)

    def _first(self, creation: Creation) -> Allocation | None:
        """Return what another owner or another search has created first in the only zone."""
        reported: list[str] = []

        def look() -> Node | QueuedResource | None:
            try:
                if isinstance(creation, CreateQueuedResource):
                    return find_queued_resource(self._provider, creation.request.id)
                return find_node(self._provider, creation.request.id)
            except DeadlineError:
                if not reported:
                    reported.append(
                        f"no answer about {name_of(creation)} from {zone_of(creation)}; asking again"
                    )
                    self._report(reported[0])
                raise

        item = retry(look, on=DeadlineError, timeout=LOOK_TIMEOUT)
        own = labels_in(creation)
        if item is None or all(item.labels.get(key) == own.get(key) for key in (OWNER_LABEL, RACE_LABEL)):
            return None
        near = siblings(self._provider, name_of(creation), (zone_of(creation),))
        return near.live[0] if near.live else None

    def _patience_with(self, existing: Allocation) -> Patience:
        """Take nothing of another owner out of its queue."""
        if existing.labels.get(OWNER_LABEL) == self._owner:
            return self._patience(existing.zone)
        return Patience(self._search.wait or inf, gives_up=False)

    def _patience(self, zone: str) -> Patience:
        """In the only zone for as long as the user waits; where there are others, for a while."""
        if len(self._search.zones) > 1:
            return Patience(QUEUE_PATIENCE)
        return Patience(self._left() if self._count > 1 else self._search.wait or inf)

    def _rival(self, creation: Creation) -> Allocation | None:
        """Return the TPU that another command created first, in another zone; one's own is deleted then."""
        near = poll(
            lambda: self._answers(creation),
            awaiting=f"an answer from {', '.join(self._search.zones)}",
            timeout=LOOK_TIMEOUT,
            hint="Another TPU of the same name may be there.",
        )
        in_zone = (item for item in near.live if item.zone == zone_of(creation))
        own = next((item for item in in_zone if item.race == race_in(creation)), None)
        if own is None:  # it has failed already, or somebody else was first
            return near.live[0] if near.live else None
        rival = older_rival(near, own)
        if rival:
            down(self._provider, DownPlan((own,)), self._report)
        return rival

    def _answers(self, creation: Creation) -> Siblings | None:
        near = siblings(self._provider, name_of(creation), self._search.zones, race_in(creation))
        return None if near.unreachable else near

    def _look(self, creation: Creation) -> Allocation:
        """Return what has just been requested, as it is."""

        def exists() -> Allocation | None:
            near = siblings(self._provider, name_of(creation), (zone_of(creation),))
            return next(iter((*near.live, *near.ended)), None)

        return poll(exists, awaiting=f"'{name_of(creation)}' to exist", timeout=LOOK_TIMEOUT)

    def _summary(self, errors: Sequence[TpuctlError]) -> TpuctlError:
        """Return the error of the only zone that was tried, or one that names all."""
        every = [*errors, *self._refusals]
        if len(every) == 1:
            return every[0]
        is_stockout = any(isinstance(error, StockoutError) for error in every)
        kind = StockoutError if is_stockout else type(every[0])
        failures = [error for error in errors if isinstance(error, ServiceError)]
        reasons = " ".join(error.message for error in (*failures, *self._refusals))
        zones = list(self._search.zones)
        message = f"There is no capacity in any of {', '.join(zones)}. {reasons}".strip()
        words = "\n".join(
            dict.fromkeys(str(error.facts["words"]) for error in every if "words" in error.facts)
        )
        facts = {"words": words} if words else {}
        return kind(message, hint="" if is_stockout else every[0].hint, zones=zones, **facts)
