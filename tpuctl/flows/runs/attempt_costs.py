"""Estimates what the attempts of a run have cost: the time for which each used its node, at the price then.

The time begins when the last worker leaves the line of the node, or, before any has written anything, when
the attempt is recorded. It ends with the last word of a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tpuctl import clock, runs
from tpuctl.catalogue.prices import Price, unknown
from tpuctl.catalogue.recorded_price import RecordedPrice
from tpuctl.catalogue.totals import Total
from tpuctl.errors import TpuctlError
from tpuctl.flows.runs.state import RunState, line_left
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.runs import Tpu, Verdict

PriceOf = Callable[[Tpu], Price]
"""Returns what a node costs per hour now."""
NOT_ON_A_NODE = unknown("it has no node")
NO_TIME = "when attempt {number} began is not recorded"
NO_RECORD = "how attempt {number} ended is not recorded"


@dataclass(frozen=True)
class AttemptCost:
    """What one attempt has cost."""

    attempt: int
    tpu: Tpu | None
    """None where its node was not recorded."""
    began: str
    """ISO-8601, UTC; empty where it never used its node, or nobody knows when."""
    ended: str
    """ISO-8601, UTC; empty while it goes on."""
    seconds: float | None
    """For which it used its node; None where nobody knows."""
    price: Price
    """Of its node per hour."""
    is_present: bool = False
    """Whether that is the present price, because none was recorded at the time."""
    is_preempted: bool = False
    """Whether Google took the node back: its end is the end of the node, too."""

    @property
    def is_unused(self) -> bool:
        """Whether it has never used its node."""
        return self.seconds == 0 and not self.began

    @property
    def cost(self) -> Price:
        """The estimate, with every digit; nothing for no time at all."""
        if self.seconds is None:
            return self.price if not self.price.is_known else unknown(NO_TIME.format(number=self.attempt))
        return self.price.for_seconds(self.seconds)

    @property
    def source(self) -> str:
        """Where the price is from."""
        if not self.price.is_known:
            return "no price list"
        return f"{self.price.origin}{', at the present price' * self.is_present}"


def cost(price: Price | None, seconds: float) -> Price:
    """Return what some seconds cost at a price per hour, in cents; None is the price of nothing."""
    return NOT_ON_A_NODE if price is None else price.for_seconds(seconds).rounded()


def total(attempts: Sequence[AttemptCost]) -> Total:
    """Return what attempts have cost together; one that never used its node costs nothing."""
    return Total.of(attempt.cost for attempt in attempts if not attempt.is_unused or attempt.price.is_known)


class RunCosts:
    """Estimates the costs of one run's attempts."""

    def __init__(self, run: StoredRun, price_of: PriceOf, submitted: str) -> None:
        """Take `price_of` for attempts whose records have no price.

        `submitted` is when the run was recorded: its first attempt was then, if its record does not say when.
        """
        self._run = run
        self._price_of = price_of
        self._submitted = submitted

    def attempts(self, state: RunState | None, now: datetime) -> tuple[AttemptCost, ...]:
        """Return the cost of each attempt, in order; none of a run without an attempt.

        Raises tpuctl's errors where the bucket does not answer, or the end of an attempt cannot be read.
        """
        if state is None or not state.attempt:
            return ()
        ended = {verdict.attempt: verdict for verdict in self._run.earlier_verdicts(state.attempt)}
        numbers = self._run.attempts_before(state.attempt)
        earlier = [self._earlier(number, ended.get(number)) for number in numbers]
        if state.verdict:
            return (*earlier, self.of(state.verdict))
        return (*earlier, self._open(state, now))

    def _earlier(self, number: int, verdict: Verdict | None) -> AttemptCost:
        if verdict is None:
            return AttemptCost(number, None, "", "", None, unknown(NO_RECORD.format(number=number)))
        return self.of(verdict)

    def of(self, verdict: Verdict) -> AttemptCost:
        """Return the cost of the attempt of a verdict."""
        ended = verdict.ended or verdict.decided
        recorded = verdict.started or (self._submitted if verdict.attempt == 1 else "")
        began = self._began(verdict.begun, recorded, ended)
        cost = self._cost(verdict.attempt, verdict.tpu, verdict.price, began, ended, ended)
        return replace(cost, is_preempted=runs.PREEMPTED in (verdict.outcome, verdict.cause))

    def _open(self, state: RunState, now: datetime) -> AttemptCost:
        moment = clock.iso(now)
        begun = line_left(state.statuses) if any(state.statuses) else None
        began = self._began(begun, state.recorded, moment)
        return self._cost(state.last, state.tpu, state.price, began, "", moment)

    def _began(self, begun: str | None, recorded: str, ended: str) -> str | None:
        """Return when an attempt began to use its node: empty if never, None where nobody knows.

        A host whose clock is wrong is not believed.
        """
        if begun == "" or (begun and (recorded or begun) <= begun <= ended):
            return begun
        return recorded or None

    def _cost(
        self, number: int, tpu: Tpu | None, recorded: RecordedPrice | None, began: str | None, ended: str,
        until: str,
    ) -> AttemptCost:  # fmt: skip
        seconds = _seconds(began, until) if began else None if began is None else 0.0
        if recorded:
            return AttemptCost(number, tpu, began or "", ended, seconds, recorded.price)
        price = self._price_of(tpu) if tpu else NOT_ON_A_NODE
        return AttemptCost(number, tpu, began or "", ended, seconds, price, is_present=True)


def known_costs(costs: RunCosts, state: RunState | None, now: datetime) -> tuple[AttemptCost, ...]:
    """Return the costs of the attempts; where they cannot be read, one that says so."""
    try:
        return costs.attempts(state, now)
    except TpuctlError as error:
        number = state.attempt if state else 0
        return (AttemptCost(number, None, "", "", None, unknown(error.message)),)


def _seconds(began: str, ended: str) -> float:
    return max(0.0, (clock.parse(ended) - clock.parse(began)).total_seconds())
