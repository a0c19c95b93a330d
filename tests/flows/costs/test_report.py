"""The estimate of what was spent: runs and idle time, in a window, by run, node, user and label."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.flows.nodes.memory_provider import MemoryProvider
from tests.flows.nodes.memory_provider import node as made
from tests.flows.runs.records import CREATED, TPU, write_run
from tests.running_simulator import RunningSimulator
from tpuctl import clock, runs
from tpuctl.catalogue.prices import Price, unknown
from tpuctl.catalogue.recorded_price import RecordedPrice
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import DeadlineError
from tpuctl.flows.costs.bills import Entry, grouped
from tpuctl.flows.costs.report import CostReport, lives, shared, take_costs
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.nodes import History, Node, NodeState, PastChange
from tpuctl.recovery import Machine
from tpuctl.runs import Run, Tpu, Verdict

TWO = Price(Decimal(2), "USD", "the list", "2026-06-01T00:00:00Z")
EIGHT = RecordedPrice("8", "USD", "the list", "2026-01-01T00:00:00Z")


class Site:
    """A bucket with runs that have ended, and the nodes of a provider."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.provider = MemoryProvider()
        self.now = bucket.now().replace(microsecond=0)
        bucket.now = lambda: self.now  # type: ignore[method-assign]
        self.warnings: list[str] = []

    def ago(self, hours: float) -> str:
        return clock.iso(self.now - timedelta(hours=hours))

    def node(self, name: str, hours: float, **labels: str) -> Node:
        plain = made(name)
        node = replace(
            plain, id=replace(plain.id, uid=f"u-{name}"), created=self.ago(hours),
            labels={**plain.labels, **labels},
        )  # fmt: skip
        self.provider.nodes[name] = node
        return node

    def run(
        self, name: str, node: Node, begun: float, ended: float, price: RecordedPrice | None = EIGHT,
        outcome: str = runs.SUCCEEDED, cause: str = "", **labels: str,
    ) -> None:  # fmt: skip
        run = StoredRun(self.bucket, name)
        machine = Machine("v3-8", (node.zone,), False, "base", "ada@example.com", labels=labels)
        record = Run(
            name, CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-8", (), {}, machine=machine
        )
        run.create(record)
        tpu = msgspec.structs.replace(TPU, name=node.name, uid=node.id.uid, zone=node.zone)
        run.end(
            Verdict(
                name, outcome, 1, self.ago(ended), "said", basis=runs.BY_WORKERS, tpu=tpu, price=price,
                started=self.ago(begun), begun=self.ago(begun), ended=self.ago(ended), cause=cause,
            )
        )  # fmt: skip

    def report(self, hours: float = 24, price: Price = TWO) -> CostReport:
        def price_of(node: Node | Tpu) -> Price:
            return price

        since = self.now - timedelta(hours=hours)
        return take_costs(
            self.bucket, self.provider, Witnesses(self.provider), price_of, since, self.warnings.append
        )  # type: ignore[arg-type]


@pytest.fixture
def site(bucket: Bucket) -> Site:
    return Site(bucket)


def sums(report: CostReport, by: str) -> dict[str, str]:
    return {group.key: group.total.short for group in grouped(report.entries, by)}  # type: ignore[arg-type]


def test_two_runs_one_after_the_other_and_the_time_between(site: Site) -> None:
    node = site.node("n1", 10, team="vision")
    site.run("r1", node, 9, 7)
    site.run("r2", node, 6, 5)
    report = site.report()
    assert sums(report, "run") == {
        "no run, n1 in us-central1-b": "56.00 USD",  # 1 + 1 + 5 of 10 hours
        "r1": "16.00 USD",
        "r2": "8.00 USD",
    }
    assert report.total.short == "80.00 USD"
    assert sums(report, "node") == {"n1 in us-central1-b": "80.00 USD"}
    assert report.gaps == []


def test_a_listing_tells_what_runs_have_cost_that_have_ended(site: Site, simulator: RunningSimulator) -> None:
    """What an earlier version wrote has to be read, and is the same."""
    node = site.node("n1", 10)

    def requests() -> int:
        return len(simulator.events.find(kind="request", service="storage"))

    def report() -> tuple[CostReport, int]:
        before = requests()
        return site.report(), requests() - before

    for number in range(3):
        site.run(f"r{number}", node, 9 - number, 8.5 - number, None if number else EIGHT, team="vision")
    listed, few = report()
    for number in range(3):
        for name in ("run.json", "verdict.json"):
            item = site.bucket.stat(f"runs/r{number}/{name}")
            assert item
            site.bucket.replace(item, site.bucket.read(item.name), item.content_type)
    read, many = report()
    assert listed.entries == read.entries
    assert sums(listed, "label").keys() == {"team=vision", "no label"}
    assert (few, many) == (1, 1 + 2 * 3)
    assert site.warnings == []


def test_a_run_without_a_recorded_price_and_an_unused_node_have_the_present_one(site: Site) -> None:
    site.run("r1", site.node("n1", 3), 3, 0, price=None)
    site.node("n2", 4)
    report = site.report()
    assert sums(report, "run") == {"no run, n2 in us-central1-b": "8.00 USD", "r1": "6.00 USD"}
    assert all(entry.is_present for entry in report.entries)


def test_only_what_is_in_the_window_counts(site: Site) -> None:
    node = site.node("n1", 50)
    site.run("old", node, 49, 48)
    site.run("r1", node, 30, 20)
    report = site.report(hours=24)
    assert sums(report, "run") == {"r1": "32.00 USD", "no run, n1 in us-central1-b": "160.00 USD"}
    assert {entry.began for entry in report.entries} == {site.ago(24), site.ago(20)}


def test_by_user_and_by_label(site: Site) -> None:
    node = site.node("n1", 5, team="vision", stage="test")
    site.run("r1", node, 5, 4, team="vision")
    report = site.report()
    assert sums(report, "label") == {"team=vision": "40.00 USD", "stage=test": "32.00 USD"}
    assert report.total.short == "40.00 USD", "an entry with two labels counts once"
    assert sums(report, "user") == {"ada@example.com": "8.00 USD", node.owner or "unknown": "32.00 USD"}


def test_a_node_that_is_gone_counts_while_the_provider_remembers_it(site: Site) -> None:
    gone = site.node("n1", 6)
    del site.provider.nodes["n1"]
    site.run("r1", gone, 5, 4)
    (before,) = site.report().gaps
    assert before == "When 'n1' ended is not known: of it only the time up to its last run is counted."
    assert sums(site.report(), "run") == {"r1": "8.00 USD"}
    site.provider.past_changes = [
        PastChange(gone.zone, "n1", "create", site.ago(6), site.ago(6), node=gone),
        PastChange(gone.zone, "n1", "delete", site.ago(3), site.ago(3)),
    ]
    report = site.report()
    assert report.gaps == []
    assert sums(report, "node") == {"n1 in us-central1-b": "24.00 USD"}


@pytest.mark.parametrize(("outcome", "cause"), [(runs.PREEMPTED, ""), (runs.STOPPED, runs.PREEMPTED)])
def test_a_tpu_that_was_preempted_costs_nothing_until_it_is_deleted(
    site: Site, outcome: str, cause: str
) -> None:
    lost = site.node("n1", 10)
    site.run("r1", lost, 9, 7, outcome=outcome, cause=cause)
    site.provider.past_changes = [
        PastChange(lost.zone, "n1", "create", site.ago(10), site.ago(10), node=lost),
        PastChange(lost.zone, "n1", "delete", site.ago(1), site.ago(1)),
    ]
    del site.provider.nodes["n1"]
    assert sums(site.report(), "run") == {"no run, n1 in us-central1-b": "8.00 USD", "r1": "16.00 USD"}


def test_a_provider_that_does_not_answer_leaves_the_runs_and_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.run("r1", made("n1"), 2, 1)
    site.provider.unreachable = ("us-east1-d",)

    def fail(name: str | None, zone: str | None = None) -> History:
        raise DeadlineError("The API did not answer.")

    monkeypatch.setattr(site.provider, "history", fail)
    report = site.report()
    assert sums(report, "run") == {"r1": "8.00 USD"}
    assert "No answer from us-east1-d: TPUs there are missing." in report.gaps
    assert "TPUs that are gone are missing: The API did not answer." in report.gaps


def test_what_has_no_price_is_named_and_the_rest_is_the_least(site: Site) -> None:
    site.run("r1", site.node("n1", 2), 2, 1)
    report = site.report(price=unknown("there is no list"))
    assert report.total.short == "16.00 USD", "the node has the price of the run on it"
    site.node("n2", 2)
    report = site.report(price=unknown("there is no list"))
    assert report.total.short == "at least 16.00 USD"
    assert report.total.reasons == ("there is no list",)


def test_a_record_that_cannot_be_read_hides_no_other(site: Site) -> None:
    site.run("r1", site.node("n1", 2), 2, 0)
    site.bucket.upload("runs/bad/run.json", [b"{"], "application/json")
    write_run(site.bucket, "r2")
    assert sums(site.report(), "run")["r1"] == "16.00 USD"
    assert any("runs/bad/run.json" in line for line in site.warnings)


def test_a_run_does_not_cost_what_another_has_paid_for_or_what_did_not_bill(site: Site) -> None:
    node = site.node("n1", 10)
    site.run("r1", node, 9, 7)
    site.run("r2", node, 9, 6)  # of an earlier version: its time in line is in its record
    site.run("r3", node, 8.5, 8)  # on other hosts of the slice
    site.run("r4", node, 12, 11)  # the clock of its host is wrong
    assert sums(site.report(), "run") == {
        "no run, n1 in us-central1-b": "56.00 USD",  # 1 + 6 of 10 hours
        "r1": "16.00 USD",
        "r2": "8.00 USD",
        "r3": "0.00 USD",
        "r4": "0.00 USD",
    }
    assert site.report().total.short == "80.00 USD"


START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTES = st.integers(0, 60)
SPANS = st.tuples(MINUTES, MINUTES).map(sorted)


def minute(number: int) -> str:
    return clock.iso(START + timedelta(minutes=number))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Node], History]:
    """Nodes of one name, one after the other: made, stopped, started and deleted, as far as that is known."""
    existing, changes, times = list[Node](), list[PastChange](), sorted(draw(st.lists(MINUTES, max_size=8)))
    current: Node | None = None
    for number, time in enumerate(times):
        if current is None:
            plain = made("n1")
            current = replace(plain, id=replace(plain.id, uid=f"u{len(changes)}"), created=minute(time))
            change = PastChange(current.zone, "n1", "create", minute(time), minute(time), node=current)
        else:
            verb = draw(st.sampled_from(["stop", "start", "delete"]))
            change = PastChange(current.zone, "n1", verb, minute(time), minute(time))
            current = None if verb == "delete" else current
        if draw(st.integers(0, 4)) or number == len(times) - 1:  # else nobody remembers it
            changes.append(change)
    if current and draw(st.booleans()):
        existing.append(replace(current, state=draw(st.sampled_from([NodeState.READY, NodeState.PREEMPTED]))))
    return existing, History(tuple(changes))


@given(histories(), st.lists(st.tuples(SPANS, st.integers(0, 8), st.booleans()), max_size=6), SPANS)
def test_runs_and_idle_time_never_cost_more_than_the_tpu(
    history: tuple[list[Node], History], used: list[tuple[list[int], int, bool]], window: list[int]
) -> None:
    known = lives(*history, minute(60))
    runs = [
        Entry(
            f"r{number}", 1, "n1", "us-central1-b", f"u{node}", "ada", minute(began), minute(ended),
            (ended - began) * 60.0, TWO, False, TWO.for_seconds((ended - began) * 60.0),
            is_preempted=is_preempted,
        )
        for number, ((began, ended), node, is_preempted) in enumerate(used)
    ]  # fmt: skip
    shares = shared(runs, known, lambda _: TWO)
    assert {entry.run for entry in shares if entry.run} == {entry.run for entry in runs}, "each has a row"
    start, end = map(minute, window)
    shown = [part for entry in shares if (part := entry.within(start, end))]
    for uid in {entry.uid for entry in shares} | {life.node.id.uid for life in known}:
        of_node = [entry for entry in shown if entry.uid == uid]
        spans = sorted((entry.began, entry.ended) for entry in of_node if entry.began < entry.ended)
        assert all(before[1] <= after[0] for before, after in pairwise(spans)), "no second counts twice"
        billed = [life.billed([(e.began, e.ended) for e in runs if e.uid == uid]) for life in known
                  if life.node.id.uid == uid]  # fmt: skip
        for periods in billed:
            seconds = [
                (clock.parse(min(b, end)) - clock.parse(max(a, start))).total_seconds() for a, b in periods
            ]
            counted, most = sum(entry.seconds or 0 for entry in of_node), sum(max(0.0, s) for s in seconds)
            is_lost = any(entry.is_preempted for entry in runs if entry.uid == uid)
            assert counted <= most if is_lost else counted == most
            assert all(entry.cost == TWO.for_seconds(entry.seconds or 0) for entry in of_node)
