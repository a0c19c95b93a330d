"""What the commands of offers and costs say line by line, of prices and sums that few clouds have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.catalogue.prices import Price
from tpuctl.catalogue.quotas import Quota
from tpuctl.cli.offers import offer_cells, quota_fields
from tpuctl.client.runs import steps
from tpuctl.flows.costs.bills import Entry
from tpuctl.flows.costs.report import CostReport

Tpuctl = Callable[..., CommandResult]
SINCE, UNTIL = "2026-01-01T00:00:00Z", "2026-01-31T00:00:00Z"
PRICE = Price(Decimal(8), "USD", "Cloud Billing Catalog", "2026-01-30T01:02:03Z")
UNKNOWN = Price(None, reason="nobody knows it")
RUN = Entry(
    "r1", 1, "n1", "us-east1-d", "7", "ada", "2026-01-02T00:00:00Z", "2026-01-02T01:30:00Z", 5400.4, PRICE,
    False, Price(Decimal("12.006"), "USD"), {"team": "vision", "stage": "dev"},
)  # fmt: skip
AGAIN = replace(RUN, attempt=2, began="2026-01-03T00:00:00Z", ended="2026-01-03T01:00:00Z", is_present=True)
IDLE = replace(RUN, run="", attempt=0, began="2026-01-02T01:30:00Z", ended=UNTIL, labels={}, goes_on=True)
LOST = Entry("r2", 1, "", "", "", "bob", "", "2026-01-01T05:00:00Z", None, UNKNOWN, False, UNKNOWN)


@pytest.fixture
def cost(tpuctl: Tpuctl, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch) -> Tpuctl:
    """The command, where given spans were used."""

    def shown(entries: tuple[Entry, ...], *options: str, gaps: tuple[str, ...] = ()) -> CommandResult:
        report = CostReport(SINCE, UNTIL, entries, gaps)
        monkeypatch.setattr(steps, "costs", lambda context, since: report)
        return tpuctl("cost", *options)

    return shown


def notes(result: CommandResult) -> list[str]:
    """Return what was said on stderr, except that the target is the simulator."""
    return [line for line in result.err.splitlines() if not line.startswith("[sim]")]


def test_a_run_has_its_attempts_time_cost_and_where_its_prices_are_from(cost: Tpuctl) -> None:
    shown = cost((RUN, AGAIN, LOST), gaps=("one zone is silent.",))
    header, lost, run = shown.out.splitlines()
    assert header.split("  ")[0].strip() == "RUN"
    assert header.split() == ["RUN", "ATTEMPTS", "TIME", "COST", "PRICE", "FROM"]
    assert lost.split() == ["r2", "1", "0s", "unknown", "-"]
    assert run.split()[:2] == ["r1", "2"]
    assert run.endswith("Cloud Billing Catalog, 2026-01-30; Cloud Billing Catalog, 2026-01-30, present price")
    assert notes(shown) == [
        "Warning: one zone is silent.",
        "Unknown: nobody knows it.",
        f"Estimate since {SINCE}, no bill: at least 24.01 USD.",
        "Next: tpuctl describe r1",
    ]


def test_the_next_command_is_about_the_tpu_that_is_idle_now(cost: Tpuctl) -> None:
    assert notes(cost((RUN, IDLE)))[-1] == "Next: tpuctl describe n1"
    assert notes(cost((replace(IDLE, goes_on=False),)))[-1] == "Next: tpuctl runs"
    works = replace(RUN, run="r3", goes_on=True, ended=UNTIL)
    assert notes(cost((RUN, works)))[-1] == notes(cost((works, RUN)))[-1] == "Next: tpuctl describe r3"


def test_a_run_with_two_labels_counts_once(cost: Tpuctl) -> None:
    shown = cost((RUN,), "--by", "label")
    assert shown.out.split()[0] == "LABEL"
    assert len(shown.out.splitlines()) == 3
    assert notes(shown)[0] == (
        f"Estimate since {SINCE}, no bill: 12.01 USD (a run with two labels counts once)."
    )


def test_without_any_use_there_is_no_sum(cost: Tpuctl) -> None:
    assert notes(cost(())) == [f"Nothing was used since {SINCE}.", "Next: tpuctl runs"]


def test_the_json_of_costs_has_null_for_what_nobody_knows(cost: Tpuctl) -> None:
    shown = cost((RUN, IDLE, LOST), "--json", gaps=("a gap.",)).json
    assert (shown["since"], shown["until"], shown["missing"]) == (SINCE, UNTIL, ["a gap."])
    assert shown["total"] == {"amounts": {"USD": "24.01"}, "unknown": ["nobody knows it"]}
    run, idle, lost = shown["entries"]
    assert {name: run[name] for name in ("run", "attempt", "node", "zone", "uid", "user", "seconds")} == {
        "run": "r1", "attempt": 1, "node": "n1", "zone": "us-east1-d", "uid": "7", "user": "ada",
        "seconds": 5400,
    }  # fmt: skip
    assert (run["began"], run["ended"], run["labels"]) == (
        RUN.began,
        RUN.ended,
        {"team": "vision", "stage": "dev"},
    )
    assert (run["cost"]["amount"], run["price_per_hour"]["amount"]) == ("12.01", "8")
    assert run["is_present_price"] is False
    assert [idle[name] for name in ("run", "attempt", "ended")] == [None, None, None]
    nothing = ("node", "zone", "uid", "began", "seconds")
    assert [lost[name] for name in nothing] == [None] * len(nothing)
    assert lost["cost"] == {
        "amount": None, "currency": "", "source": "", "as_of": "", "reason": "nobody knows it",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("zones", "text"),
    [([], "-"), (["a"], "a"), (list("abcd"), "a, b, c, d"), (list("abcde"), "a, b, c, d and 1 more")],
)
def test_four_zones_are_named_and_more_are_counted(zones: list[str], text: str) -> None:
    assert offer_cells({"sources": ["API", "catalogue"], "zones": zones}) == ("API, catalogue", text)


def test_a_quota_has_its_limit_and_why_there_is_none() -> None:
    assert quota_fields(Quota(8, "chips")) == {"limit": 8, "unit": "chips", "reason": ""}
