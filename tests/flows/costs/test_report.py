"""The estimate of what was spent, in a window by run, node, user or label.

When nodes billed, and what is idle.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.flows.nodes.memory_provider import ZONE, MemoryProvider
from tests.flows.nodes.memory_provider import node as made
from tests.flows.runs.records import CREATED, TPU, write_run
from tests.running_simulator import RunningSimulator
from tpuctl import clock, runs
from tpuctl.catalogue.prices import Price, unknown
from tpuctl.catalogue.recorded_price import RecordedPrice
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import DeadlineError, StateError
from tpuctl.flows.costs.bills import By, Entry, grouped
from tpuctl.flows.costs.report import CostReport, NodeLife, lives, shared, take_costs, without
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


PRICE = Price(Decimal("3.6"), "USD")
ENTRY = Entry(
    "r1", 1, "n1", "z", "7", "ada", "2026-01-01T10:00:00Z", "2026-01-01T12:00:00Z", 7200.0, PRICE, False,
    PRICE.times(2),
)  # fmt: skip


class TestWindow:
    @pytest.mark.parametrize(
        ("start", "end", "seconds"),
        [
            ("2026-01-01T09:00:00Z", "2026-01-01T13:00:00Z", 7200),
            ("2026-01-01T10:00:00Z", "2026-01-01T12:00:00Z", 7200),
            ("2026-01-01T11:30:00Z", "2026-01-01T13:00:00Z", 1800),
            ("2026-01-01T09:00:00Z", "2026-01-01T10:00:01Z", 1),
            ("2026-01-01T09:00:00Z", "2026-01-01T10:00:00Z", None),
            ("2026-01-01T12:00:00Z", "2026-01-01T13:00:00Z", None),
        ],
    )
    def test_what_is_in_it_bills_for_its_seconds(self, start: str, end: str, seconds: int | None) -> None:
        part = ENTRY.within(start, end)
        assert (part.seconds if part else None) == seconds
        if part:
            assert part.cost.amount == Decimal("0.001") * part.seconds.__int__()  # type: ignore[union-attr]
            assert part.began == max(start, ENTRY.began)
            assert part.ended == min(end, ENTRY.ended)

    @pytest.mark.parametrize("changes", [{"seconds": None}, {"began": ""}])
    def test_what_nobody_knows_the_time_of_is_in_every_one(self, changes: dict[str, object]) -> None:
        entry = replace(ENTRY, **changes)  # type: ignore[arg-type]
        assert entry.within("2027-01-01T00:00:00Z", "2027-01-02T00:00:00Z") is entry


class TestGroups:
    UNUSED = replace(ENTRY, run="", attempt=0, began="2026-01-01T08:00:00Z", seconds=60.0, user="bob")
    SECOND = replace(
        ENTRY, attempt=2, began="2026-01-01T12:00:00Z", node="n2", seconds=None, cost=unknown("lost")
    )

    @pytest.mark.parametrize(
        ("by", "keys"),
        [
            ("run", ["no run, n1 in z", "r1"]),
            ("node", ["n1 in z", "n2 in z"]),
            ("user", ["bob", "ada"]),
            ("label", ["no label"]),
        ],
    )
    def test_they_are_in_order_of_their_first_time(self, by: By, keys: list[str]) -> None:
        assert [group.key for group in grouped([self.SECOND, ENTRY, self.UNUSED], by)] == keys

    def test_a_group_sums_what_is_known(self) -> None:
        (_, group) = grouped([self.SECOND, ENTRY, self.UNUSED], "run")
        assert (group.seconds, group.attempts, [entry.attempt for entry in group.entries]) == (
            7200,
            2,
            [1, 2],
        )
        assert group.total.amounts == (("USD", Decimal("7.2")),)
        assert grouped([self.UNUSED], "node")[0].attempts == 0

    def test_several_labels_are_several_groups(self) -> None:
        entry = replace(ENTRY, labels={"team": "vision", "cost": "7"})
        assert [group.key for group in grouped([entry], "label")] == ["cost=7", "team=vision"]

    def test_what_is_not_recorded_is_said(self) -> None:
        nowhere = replace(ENTRY, run="", node="", user="", began="")
        assert [group.key for group in grouped([nowhere], "run")] == ["no run, no record of the node"]
        assert [group.key for group in grouped([nowhere], "user")] == ["unknown"]

    def test_one_without_a_beginning_is_in_the_order_of_its_end(self) -> None:
        early = replace(ENTRY, run="early", began="", ended="2026-01-01T07:00:00Z")
        assert [group.key for group in grouped([ENTRY, early], "run")] == ["early", "r1"]


DAY = "2026-01-01T"
NOW = f"{DAY}20:00:00Z"


def at(hour: int) -> str:
    return f"{DAY}{hour:02}:00:00Z"


def node(uid: str, created: int, name: str = "n1", state: NodeState = NodeState.READY) -> Node:
    plain = made(name)
    return replace(plain, id=replace(plain.id, uid=uid), created=at(created), state=state)


def change(verb: str, hour: int, made_node: Node | None = None, name: str = "n1") -> PastChange:
    return PastChange(ZONE, name, verb, at(hour), at(hour), node=made_node)


def spans(existing: list[Node], *changes: PastChange) -> dict[str, list[tuple[str, str]]]:
    found = lives(existing, History(changes), NOW)
    return {life.node.id.uid: list(life.spans) for life in found}


def test_a_node_that_exists_bills_until_now() -> None:
    (life,) = lives([node("1", 10)], History(()), NOW)
    assert (life.spans, life.goes_on, life.open_since) == (((at(10), NOW),), True, "")


def test_one_that_is_stopped_does_not() -> None:
    stopped = node("1", 10, state=NodeState.STOPPED)
    assert spans([stopped], change("stop", 12)) == {"1": [(at(10), at(12))]}
    again = change("stop", 12), change("start", 15)
    assert spans([node("1", 10)], *again) == {"1": [(at(10), at(12)), (at(15), NOW)]}


def test_one_that_is_gone_billed_until_it_was_deleted_and_the_next_of_its_name_has_its_own_time() -> None:
    first, second = node("1", 10), node("2", 14)
    changes = [change("create", 10, first), change("delete", 12), change("create", 14, second)]
    assert spans([second], *changes) == {"1": [(at(10), at(12))], "2": [(at(14), NOW)]}
    both = {"1": [(at(10), at(12))], "2": [(at(14), at(15))]}
    assert spans([], *changes, change("delete", 15)) == both


def test_a_delete_that_failed_and_one_of_another_node_end_nothing() -> None:
    failed = replace(change("delete", 12), error=StateError("no"))
    other = change("delete", 12, name="n2")
    of_the_queue = replace(change("delete", 12), of_queued_resource=True)
    elsewhere = replace(change("delete", 12), zone="us-east1-d")
    for item in (failed, other, of_the_queue, elsewhere, change("delete", 9)):
        assert spans([node("1", 10)], item) == {"1": [(at(10), NOW)]}


def test_billing_begins_when_the_creation_is_done() -> None:
    slow = replace(change("create", 10, node("1", 10)), ended=at(11))
    assert spans([node("1", 10)], slow) == {"1": [(at(11), NOW)]}


def test_of_one_whose_end_nobody_remembers_the_time_up_to_the_last_run_counts() -> None:
    (life,) = lives([node("1", 10, state=NodeState.PREEMPTED)], History(()), NOW)
    assert (life.spans, life.open_since, life.goes_on) == ((), at(10), False)
    assert life.billed([(at(12), at(13)), (at(15), at(16))]) == [(at(10), at(16))]
    assert life.billed([]) == []
    assert life.billed([(at(8), at(9))]) == [], "of another node: its clock is wrong"


def test_time_that_two_runs_share_or_touch_is_not_idle() -> None:
    life = NodeLife(node("1", 10), ((at(10), at(14)), (at(15), at(18))))
    used = [(at(9), at(11)), (at(12), at(16)), (at(13), at(14)), (at(16), at(17))]
    assert list(without(life.billed(used), used)) == [(at(11), at(12)), (at(17), at(18))]
    assert list(without(life.spans, [(at(1), at(23))])) == []
    assert list(without(life.spans, [])) == list(life.spans)
