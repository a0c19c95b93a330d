"""Waits in the queues of several zones at once, keeps the first that gets its nodes, and cancels the rest.

Two commands may run one race, and either may be killed. What keeps them from deleting each other's choice:
the oldest candidate with nodes stays, older ones are withdrawn only as long as they have no nodes, which the
provider decides, and younger ones are deleted. A candidate that comes late is younger than all others.
A TPU with nodes that an `up` in a single zone has created (it has no label of a race) is never deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tpuctl import clock, durations
from tpuctl.cloud.provider import Provider
from tpuctl.errors import (
    ConfigError,
    DeadlineError,
    NotFoundError,
    StateError,
    StockoutError,
    TpuctlError,
    joined_hints,
)
from tpuctl.flows.nodes.lookup import Allocation
from tpuctl.flows.nodes.placement.creation import (
    AGAIN,
    CREATE_TIMEOUT,
    ROUNDS,
    NoCapacityError,
    Patience,
    Siblings,
    await_existing,
    begin,
    may_pass,
    renewed,
    require_candidates,
    require_hope,
    require_in_zones,
    siblings,
    still_waits,
    wait_for,
    withdraw,
    zone_of,
)
from tpuctl.flows.progress import Report
from tpuctl.nodes import Creation, DeleteNode, DeleteQueuedResource, QueueState
from tpuctl.nodes.queued_resources import require_running
from tpuctl.parallel import fanout
from tpuctl.polling import Backoff, poll, retry, time_left

GONE_PATIENCE = 120.0
"""Seconds for the other candidates to be gone; from then on it suffices that they are being deleted."""
SETTLE_TIMEOUT = 2 * CREATE_TIMEOUT
"""Seconds for the other candidates to be deleted."""
SETTLE_BACKOFF = Backoff(1.0, 30.0)
"""Pauses between looks then: it takes minutes, or an hour where a zone is silent."""


class Race:
    """The candidates of one name, one in each zone; TPUs of other owners are none, whatever their name."""

    def __init__(
        self, provider: Provider, name: str, race: str, zones: Sequence[str], report: Report, owner: str = ""
    ) -> None:
        """Take `owner`, whose TPUs of this name are candidates too where no search has created them."""
        self._provider = provider
        self._name = name
        self._race = race
        self._owner = owner
        self._zones = zones
        self._report = report
        self._reported = ""

    def run(self, creations: Sequence[Creation], wait: float) -> Allocation:
        """Create the candidates that are missing, and return the one that stays, with its nodes READY.

        `wait`: seconds without capacity after which all are withdrawn: StockoutError; 0 for no limit. Where
        all have failed before, they are created anew in rounds until then; without it their error is raised.
        """
        left, requests = time_left(wait or inf), list(creations)

        def round_() -> None:
            try:
                self._begin(requests)
                if wait_for(self._secured, left()) is None:
                    self._withdraw_all(wait)
            except TpuctlError as error:
                self._delete_failed()
                if not may_pass(error):
                    raise
                if left() and wait:
                    self._report(f"{clock.iso(clock.now())} {error.message}")
                requests[:] = map(renewed, requests)
                raise NoCapacityError([error]) from error

        try:
            retry(round_, on=NoCapacityError, timeout=wait, backoff=ROUNDS)
        except NoCapacityError as failed:
            (error,) = failed.errors
            raise error from error.__cause__
        return self.settle()

    def _begin(self, creations: Sequence[Creation]) -> None:
        near = self._look()
        if near.secured is None:
            self._create([item for item in creations if zone_of(item) not in _zones_of(near)])

    def _delete_failed(self) -> None:
        """Take what has failed out of the queues: it counts against the quota, and is in the way."""
        for item in self._look().ended:
            if item.queued_resource and item.queued_resource.state is QueueState.FAILED:
                withdraw(self._provider, item.queued_resource.id)

    def join(self, wait: float = 0.0) -> Allocation:
        """Return the candidate that stays of those that other commands have created.

        Raises DeadlineError when none has its nodes after `wait` seconds; 0 for no limit.
        """
        if wait_for(self._secured, wait or inf) is None:
            raise still_waits(self._name, ", ".join(item.zone for item in self._look().live))
        return self.settle()

    def settle(self) -> Allocation:
        """Cancel all candidates but the one that stays, and return that, READY."""
        winner = wait_for(self._only_winner, GONE_PATIENCE) or poll(
            self._winner_of_leaving,
            awaiting=f"the other candidates of '{self._name}' to be deleted",
            timeout=SETTLE_TIMEOUT,
            backoff=SETTLE_BACKOFF,
            hint=joined_hints("They bill. See them: tpuctl ls", f"Delete all: tpuctl down {self._name}"),
        )
        require_in_zones(winner, self._zones)
        return await_existing(self._provider, winner, Patience(CREATE_TIMEOUT), self._report)

    def _create(self, creations: Sequence[Creation]) -> None:
        """Create all at once; raises the first error when none could be created and there is none."""
        results = fanout(lambda creation: begin(self._provider, creation, self._report), creations)
        errors = [(zone_of(result.item), result.error) for result in results if result.error]
        for zone, error in errors:
            self._report(f"not in {zone}: {error.message}")
        if errors and len(errors) == len(creations) and not self._look().live:
            raise _hopeful([error for _, error in errors])

    def _secured(self) -> Allocation | None:
        """Return the candidate that has its nodes; raises the error of one when all have failed."""
        near = self._look()
        winner = self._winner(near)
        if winner or near.unreachable:
            return winner
        states = ", ".join(f"{_state(item)} in {item.zone}" for item in near.live)
        self._say(f"{self._name} is {states}")
        return None

    def _only_winner(self) -> Allocation | None:
        """Return the candidate that stays, once it is the only one; cancel the others.

        Raises ConfigError where a permission is missing to cancel one: no other try will.
        """
        near = self._look()
        winner = near.secured
        if near.unreachable or winner is None:
            return None
        rivals = [item for item in near.live if item is not winner and _may_be_used(item)]
        others = [item for item in (*near.live, *near.ended) if item is not winner and item not in rivals]
        for result in fanout(lambda item: self._cancel(item, winner), others):
            if isinstance(result.error, ConfigError):
                raise result.error
            if result.error:
                self._say(f"{result.item.zone}: {result.error.message}")
        if not others:
            require_candidates(self._name, (winner, *rivals))
            return winner
        self._say(f"{winner.name} is in {winner.zone}; cancelling {', '.join(item.zone for item in others)}")
        return None

    def _winner_of_leaving(self) -> Allocation | None:
        """Return the candidate that stays, once the provider says that the others are being deleted.

        Raises its error where it was lost by then: deleted, or preempted.
        """
        near = self._look()
        winner = self._winner(near)
        staying = [item for item in (*near.live, *near.ended) if not item.is_leaving]
        if near.unreachable or winner is None or len(staying) > 1:
            return self._only_winner()
        zones = ", ".join(item.zone for item in near.ended)
        self._say(f"{self._name} is still being deleted in {zones}: it may bill until 'tpuctl ls' shows none")
        return winner

    def _cancel(self, item: Allocation, winner: Allocation) -> None:
        """Delete a younger candidate or one that has ended; withdraw an older one that has no nodes."""
        queued = item.queued_resource
        if queued is None:
            self._provider.begin(DeleteNode(item.nodes[0].id))
        elif queued.state is not QueueState.DELETING:
            is_younger = bool(item.race) and item.age_order > winner.age_order
            self._provider.begin(DeleteQueuedResource(queued.id, force=item.is_over or is_younger))

    def _withdraw_all(self, wait: float) -> None:
        """Take every candidate out of its queue; raises StockoutError unless one gets its nodes just now."""
        queued = [item.queued_resource for item in self._look().live if item.queued_resource]
        results = fanout(lambda item: withdraw(self._provider, item.id), queued)
        errors = [result.error for result in results if result.error]
        if errors:
            raise errors[0]
        if all(result.value for result in results):
            raise StockoutError(
                f"There was no capacity for '{self._name}' in any of {', '.join(self._zones)} within "
                f"{durations.text(wait)}; its requests are out of the queues again.",
                hint="Repeat the command to queue again.",
                zones=list(self._zones),
            )

    def _winner(self, near: Siblings) -> Allocation | None:
        """Return the oldest that has its nodes; raises the error of one when none can get them any more."""
        if near.live or near.unreachable:
            return near.secured
        failures = [item.queued_resource.failure for item in near.ended if item.queued_resource]
        if any(failures):
            raise _hopeful([failure for failure in failures if failure])
        for item in (item for item in near.ended if not item.is_leaving):
            for node in item.nodes:
                require_running(node)
            if item.queued_resource:
                require_hope(item.queued_resource)
        raise self._taken() or NotFoundError(
            f"The candidates of '{self._name}' were deleted meanwhile.", hint=AGAIN
        )

    def _taken(self) -> StateError | None:
        """Return the error for TPUs of other owners that have the name in the zones of the search."""
        others = [
            item
            for item in siblings(self._provider, self._name, self._zones).live
            if not self._is_candidate(item)
        ]
        if not others:
            return None
        zones = [item.zone for item in others]
        owners = sorted({item.owner or "somebody else" for item in others})
        return StateError(
            f"'{self._name}' in {', '.join(zones)} belongs to {' and '.join(owners)}, "
            "and there is no candidate of yours any more.",
            hint="Give yours another name with --name, or use one of these: 'tpuctl up' with "
            f"--name {self._name} --zone {zones[0]}.",
            zones=zones,
        )

    def _look(self) -> Siblings:
        try:
            near = siblings(self._provider, self._name, self._zones, self._race)
        except DeadlineError:
            near = Siblings((), (), tuple(self._zones))
        if near.unreachable:
            self._say(f"no answer from {', '.join(near.unreachable)}; asking again")
        return near.only(self._is_candidate)

    def _is_candidate(self, item: Allocation) -> bool:
        is_of_race = bool(self._race) and item.race == self._race
        return is_of_race or item.is_owned_by(self._owner)

    def _say(self, line: str) -> None:
        if line != self._reported:
            self._reported = line
            self._report(line)


def _hopeful(errors: Sequence[TpuctlError]) -> TpuctlError:
    """Return the first error that may pass, the first of all without one."""
    return next((error for error in errors if may_pass(error)), errors[0])


def _zones_of(near: Siblings) -> set[str]:
    return {item.zone for item in (*near.live, *near.ended)}


def _may_be_used(item: Allocation) -> bool:
    """Whether a command for a single zone has created it, with nodes: that command may have returned it."""
    return bool(item.nodes) and not item.race


def _state(item: Allocation) -> str:
    return item.queued_resource.provider_state if item.queued_resource else item.nodes[0].provider_state
