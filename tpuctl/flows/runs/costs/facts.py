"""Says what a run has cost as facts: the time and the price of each attempt, and the sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tpuctl import durations
from tpuctl.flows.facts import Fact
from tpuctl.flows.runs.costs.attempts import AttemptCost, total


def cost_facts(attempts: Sequence[AttemptCost]) -> Iterator[Fact]:
    """Yield time, price and cost of each attempt, then what is missing in the sum, and the sum."""
    for attempt in attempts:
        yield from _attempt_facts(attempt)
    spent, count = total(attempts), len(attempts)
    for reason in spent.reasons:
        yield Fact("not in the cost", reason, "bucket")
    yield Fact("cost", spent.short, f"estimate, of {count} attempt{'s' * (count != 1)}: docs/prices.md")


def _attempt_facts(attempt: AttemptCost) -> Iterator[Fact]:
    of = f"of attempt {attempt.attempt}"
    if attempt.seconds is not None:
        until = f" to {attempt.ended}" if attempt.ended else ", so far"
        when = f"{attempt.began}{until}" if attempt.began else "it never left the line of its node"
        yield Fact(f"time {of}", durations.text(attempt.seconds), when)
    price = attempt.price
    yield Fact(f"price per hour {of}", price.short if price.is_known else str(price), attempt.source)
    yield Fact(f"cost {of}", attempt.cost.rounded().short, "time and price")
