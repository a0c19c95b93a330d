"""What attempts have cost: their time on a node, at the price that was recorded.

The price in the record of an attempt: what is known when a run is submitted, without asking for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider
from tests.flows.runs.records import ATTEMPT, STATUS, TPU, write_run
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.catalogue.prices import Price, unknown
from tpuctl.catalogue.recorded_price import RecordedPrice
from tpuctl.cloud.storage import Bucket
from tpuctl.config.files import state_folder
from tpuctl.flows.runs.attempt_costs import AttemptCost, RunCosts, known_costs, total
from tpuctl.flows.runs.description import cost_facts
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.state import RunState
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED, PREPARING, QUEUED, RUNNING, encode
from tpuctl.runs import Verdict

NOW = datetime(2026, 1, 1, 20, tzinfo=UTC)
SUBMITTED = "2026-01-01T12:00:00Z"
THEN = RecordedPrice("8.00", "USD", "the list", "2026-01-01T00:00:00Z")
ENDED = Verdict(
    "r1", runs.SUCCEEDED, 1, "2026-01-01T14:00:05Z", "said", basis=runs.BY_WORKERS, tpu=TPU, price=THEN,
    ended="2026-01-01T14:00:00Z", started="2026-01-01T12:00:00Z", begun="2026-01-01T12:30:00Z",
)  # fmt: skip


def now_twice(_: object) -> Price:
    return Price(Decimal(16), "USD", "the list", "2026-06-01T00:00:00Z")


def ended(**changes: object) -> Verdict:
    return msgspec.structs.replace(ENDED, **changes)


def costs_of(bucket: Bucket, *verdicts: Verdict, state: RunState | None = None) -> tuple[AttemptCost, ...]:
    """Return the costs of a run whose attempts ended so, the last one of all, unless it goes on."""
    run = StoredRun(bucket, "r1")
    for verdict in verdicts if state else verdicts[:-1]:
        run.keep_verdict(verdict)
    return known_costs(RunCosts(run, now_twice, SUBMITTED), state or RunState(verdicts[-1]), NOW)


def test_an_attempt_costs_its_time_on_the_node_at_the_price_then(bucket: Bucket) -> None:
    (attempt,) = costs_of(bucket, ENDED)
    assert (attempt.began, attempt.ended, attempt.seconds) == (ENDED.begun, ENDED.ended, 5400)
    assert attempt.cost.rounded().short == "12.00 USD"
    assert (attempt.source, attempt.is_present) == ("the list, 2026-01-01", False)


def test_without_a_recorded_price_the_present_one_counts_and_says_so(bucket: Bucket) -> None:
    (attempt,) = costs_of(bucket, ended(price=None))
    assert attempt.cost.rounded().short == "24.00 USD"
    assert attempt.source == "the list, 2026-06-01, at the present price"


@pytest.mark.parametrize(
    ("verdict", "seconds"),
    [
        (ended(begun=None), 7200),  # an earlier version: since it was recorded
        (ended(begun=None, started=""), 7200),  # since the run was
        (ended(begun=""), 0),  # it never left the line of its node
        (ended(begun="2026-01-01T11:00:00Z"), 7200),  # the host's clock is wrong
        (ended(begun="2026-01-02T11:00:00Z"), 7200),
        (ended(attempt=2, begun=None, started=""), None),
    ],
)
def test_the_time_begins_where_records_agree(bucket: Bucket, verdict: Verdict, seconds: float | None) -> None:
    assert costs_of(bucket, ended(attempt=1), verdict)[-1].seconds == seconds


def test_time_between_attempts_is_not_the_cost_of_the_run(bucket: Bucket) -> None:
    second = ended(
        attempt=2, started="2026-01-01T18:00:00Z", begun="2026-01-01T18:00:00Z", ended="2026-01-01T19:00:00Z"
    )
    attempts = costs_of(bucket, ENDED, second)
    assert [attempt.seconds for attempt in attempts] == [5400, 3600]
    assert total(attempts).price.rounded() == Price(Decimal("20.00"), "USD", "the list", THEN.as_of)


def test_two_currencies_are_not_added(bucket: Bucket) -> None:
    spent = total(costs_of(bucket, ENDED, ended(attempt=2, price=RecordedPrice("1.5", "EUR", "own"))))
    assert spent.short == "2.25 EUR + 12.00 USD"
    assert str(spent.price) == "unknown: it was paid in EUR and USD"


def test_what_is_not_known_is_said_and_the_rest_is_the_least(bucket: Bucket) -> None:
    attempts = costs_of(bucket, ended(attempt=2))
    assert total(attempts).short == "at least 12.00 USD"
    facts = {fact.name: fact.value for fact in cost_facts(attempts)}
    assert facts["not in the cost"] == "how attempt 1 ended is not recorded"
    assert facts["cost of attempt 1"] == "unknown"
    reserved = RecordedPrice("", reason="reserved capacity costs what its contract says")
    assert total(costs_of(bucket, ended(price=reserved))).short == "unknown"


def test_a_verdict_that_cannot_be_read_makes_the_cost_unknown(bucket: Bucket) -> None:
    bucket.upload(StoredRun(bucket, "r1").paths.attempt_verdict(1), [b"{"], "application/json")
    spent = total(costs_of(bucket, ended(attempt=2)))
    assert spent.short == "unknown"
    assert "attempts/1/verdict.json" in spent.reasons[0]


def test_a_run_without_an_attempt_costs_nothing(bucket: Bucket) -> None:
    assert RunCosts(StoredRun(bucket, "r1"), now_twice, SUBMITTED).attempts(None, NOW) == ()


def states(bucket: Bucket, *states: str) -> Iterator[RunState]:
    """Yield what is known of a priced run while its worker passes through states."""
    run = StoredRun(bucket, "r1")
    run.create(write_run(bucket, "template").record.__replace__(run="r1"))
    run.create_attempt(msgspec.structs.replace(ATTEMPT, workers=(0,), price=THEN))
    for state in states:
        started = "" if state == QUEUED else bucket.now().strftime("%Y-%m-%dT%H:%M:%SZ")  # as workers do
        code = 0 if state == FINISHED else None
        status = replace(STATUS, state=state, started=started, exit_code=code, ahead=int(state == QUEUED))
        bucket.upload(run.paths.status(1, 0), [encode(status)], "application/json")
        yield settle(StoredRun(bucket, "r1"), Witnesses(MemoryProvider()))


def test_waiting_in_line_bills_nothing_and_running_bills_until_now(bucket: Bucket) -> None:
    queued, preparing, running, over = states(bucket, QUEUED, PREPARING, RUNNING, FINISHED)
    later = bucket.now() + timedelta(days=365)
    run = RunCosts(StoredRun(bucket, "r1"), now_twice, SUBMITTED)
    (waiting,) = run.attempts(queued, later)
    assert (waiting.seconds, waiting.began, waiting.ended) == (0, "", "")
    for state in (preparing, running):
        (attempt,) = run.attempts(state, later)
        assert attempt.seconds is not None
        assert attempt.seconds > 300 * 86400
        assert attempt.price == THEN.price
    (last,) = run.attempts(over, later)
    assert last.seconds is not None
    assert last.seconds < 600, "it has ended"
    assert last.price == THEN.price, "the verdict has the price of the attempt"
    assert over.verdict
    assert over.verdict.begun


def test_a_price_that_nobody_can_know_takes_nothing_from_a_sum_of_no_time() -> None:
    never = AttemptCost(2, TPU, "", "", 0.0, unknown("nobody knows"))
    assert total([never]).short == "0.00"


Command = Callable[..., CommandResult]
HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
ZONE = "europe-west4-a"


@pytest.fixture
def job(node: str) -> str:
    """A script for the node, which ends at once."""
    Path("job.py").write_text(HEADER)
    return "job.py"


@pytest.mark.daily
def test_submit_records_the_price_that_is_known_and_asks_nobody(
    tpuctl: Command, job: str, bucket: Bucket, simulator: RunningSimulator
) -> None:
    hourly = tpuctl("price", "v3-8", "--zone", ZONE, "--json").json["prices"][0]["on_demand"]
    asked = len(simulator.events.find(service="billing"))
    assert tpuctl("submit", job, "--name", "r1").code == 0
    assert tpuctl("wait", "r1").code == 0
    assert len(simulator.events.find(service="billing")) == asked
    run = StoredRun(bucket, "r1")
    attempt = run.last_attempt().record
    assert attempt.price is not None
    assert attempt.price.amount == hourly["amount"]
    assert attempt.price.as_of == hourly["as_of"]
    verdict = run.verdict()
    assert verdict is not None
    assert verdict.price == attempt.price
    assert verdict.begun
    assert attempt.created <= verdict.begun <= verdict.decided
    Path("tpuctl.toml").write_text("[prices]\n'v3-8' = 1000000\n")
    facts = tpuctl("describe", "r1", "--json").json["run"]["facts"]
    (price,) = (fact for fact in facts if fact["name"] == "price per hour of attempt 1")
    assert price["from"] == f"{hourly['source']}, {hourly['as_of'][:10]}"


def test_without_a_known_price_none_is_recorded_and_the_present_one_is_said_to_be_it(
    tpuctl: Command, job: str, bucket: Bucket
) -> None:
    for file in (state_folder() / "prices" / "sim").glob("*"):
        file.unlink()
    assert tpuctl("submit", job, "--name", "r1").code == 0
    assert StoredRun(bucket, "r1").last_attempt().record.price is None
    assert tpuctl("wait", "r1").code == 0
    facts = tpuctl("describe", "r1", "--json").json["run"]["facts"]
    (price,) = (fact for fact in facts if fact["name"] == "price per hour of attempt 1")
    assert price["from"].endswith(", at the present price")


def test_the_price_of_the_configuration_is_recorded(tpuctl: Command, job: str, bucket: Bucket) -> None:
    Path("tpuctl.toml").write_text("[prices]\ncurrency = 'EUR'\n'v3-8' = 12.5\n")
    assert tpuctl("submit", job, "--name", "r1").code == 0
    price = StoredRun(bucket, "r1").last_attempt().record.price
    assert price is not None
    assert (price.amount, price.currency, price.source) == ("12.5", "EUR", "tpuctl.toml, line 3")
