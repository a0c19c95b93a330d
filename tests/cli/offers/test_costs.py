"""What runs and TPUs have cost and what bills now, and what the commands of offers say line by line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
import requests

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.catalogue.prices import Price
from tpuctl.catalogue.quotas import Quota
from tpuctl.cli.offers import offer_cells, quota_fields
from tpuctl.client.runs import steps
from tpuctl.flows.costs.bills import Entry
from tpuctl.flows.costs.report import CostReport
from tpuctl.polling import poll

Tpuctl = Callable[..., CommandResult]
HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'


@pytest.fixture
def ended(tpuctl: Tpuctl, node: str) -> str:
    """A TPU on which a run has ended, and that was idle for a second at least."""
    Path("job.py").write_text(HEADER)
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    assert tpuctl("wait", "r1").code == 0

    def is_idle() -> bool | None:
        entries = tpuctl("cost", "--json").json["entries"]
        return any(entry["run"] is None for entry in entries) or None

    poll(is_idle, awaiting="idle time", timeout=60)
    return node


def test_runs_and_idle_time_are_told_also_of_a_tpu_that_is_gone(tpuctl: Tpuctl, ended: str) -> None:
    shown = tpuctl("cost")
    assert shown.code == 0, shown.err
    assert shown.out.split()[:5] == ["RUN", "ATTEMPTS", "TIME", "COST", "PRICE"]
    assert {line.split("  ")[0] for line in shown.out.splitlines()[1:]} == {
        "r1", f"no run, {ended} in europe-west4-a",
    }  # fmt: skip
    assert "made up by the simulator" in shown.out
    assert "Estimate since" in shown.err
    assert "no bill" in shown.err
    assert shown.err.splitlines()[-1] == f"Next: tpuctl describe {ended}"
    assert tpuctl("down", ended, "--yes").code == 0
    gone = tpuctl("cost", "--json").json
    assert gone["missing"] == []
    assert gone["is_estimate"] is True
    (run,) = (entry for entry in gone["entries"] if entry["run"] == "r1")
    assert (run["attempt"], run["node"], run["is_present_price"]) == (1, ended, False)
    idle = [entry for entry in gone["entries"] if entry["run"] is None]
    assert sum(entry["seconds"] for entry in idle) >= 1
    assert all(entry["ended"] and entry["uid"] == run["uid"] for entry in idle)
    assert tpuctl("cost").err.splitlines()[-1] == "Next: tpuctl describe r1"


def test_by_node_user_and_label(tpuctl: Tpuctl, ended: str) -> None:
    for by, key in (("node", f"{ended} in europe-west4-a"), ("label", "no label")):
        (group,) = tpuctl("cost", "--by", by, "--json").json["groups"]
        assert (group[by], group["attempts"]) == (key, 1)


def test_nothing_was_used(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    shown = tpuctl("cost", "--since", "1h")
    assert shown.code == 0
    assert "Nothing was used since" in shown.err
    assert tpuctl("cost", "--since", "never").code == 2


def make(simulator: RunningSimulator, place: str, **fields: object) -> str:
    """Make a resource of Compute Engine as gcloud does, and return its URL."""
    url = f"{simulator.simulator.endpoints['compute_rest']}/compute/v1/projects/sim-project/{place}"
    requests.post(url, json=fields, timeout=30).raise_for_status()
    return f"{url}/{fields['name']}"


@pytest.mark.daily
def test_everything_that_bills_is_listed_whoever_made_it(simulator: RunningSimulator, tpuctl: Tpuctl) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--data-disk", "data", "--yes").code == 0
    assert tpuctl("up", "v2-8", "--zone", "us-central1-b", "--name", "stopped", "--yes").code == 0
    assert tpuctl("stop", "stopped", "--yes").code == 0
    make(simulator, "zones/europe-west4-a/disks", name="data", sizeGb=200)
    spare = make(simulator, "zones/us-east1-d/disks", name="spare", type="zones/us-east1-d/diskTypes/pd-ssd")
    make(simulator, "regions/us-east1/addresses", name="front")
    make(simulator, "regions/us-east1/addresses", name="inner", addressType="INTERNAL")
    listed = tpuctl("cost", "--now", "--json").json
    seen = {(bill["kind"], bill["name"], bill["place"]): bill for bill in listed["bills"]}
    assert set(seen) == {
        ("TPU", "n1", "europe-west4-a"), ("TPU", "stopped", "us-central1-b"),
        ("disk", "data", "europe-west4-a"), ("disk", "spare", "us-east1-d"),
        ("address", "front", "us-east1"), ("bucket", "gs://sim-project-tpuctl", "europe-west4"),
    }  # fmt: skip
    assert seen["TPU", "n1", "europe-west4-a"]["what"] == "v3-8 READY, 1 external address"
    assert seen["TPU", "n1", "europe-west4-a"]["price_per_hour"]["amount"] == "9.768"
    assert "its boot disk bills" in seen["TPU", "stopped", "us-central1-b"]["what"]
    assert seen["disk", "data", "europe-west4-a"]["what"] == "200 GB pd-standard, attached to n1"
    assert seen["disk", "spare", "us-east1-d"]["what"] == "500 GB pd-ssd, attached to no TPU"
    assert "nothing uses it" in seen["address", "front", "us-east1"]["what"]
    assert listed["total_per_hour"]["amounts"] == {"USD": "9.77"}
    requests.delete(spare, timeout=30).raise_for_status()
    shown = tpuctl("cost", "--now")
    assert "spare" not in shown.out
    assert "TPUs cost 9.77 USD per hour; disks, addresses and storage bill besides." in shown.err
    assert "not looked at" in shown.err


def test_what_is_in_a_bucket_is_counted_with_former_versions(
    simulator: RunningSimulator, tpuctl: Tpuctl, cloud: object
) -> None:
    bucket = cloud.bucket  # type: ignore[attr-defined]
    bucket.create("a", b"x" * 1500)
    bucket.create("b/c", b"x" * 500)
    (held,) = tpuctl("cost", "--now", "--json").json["bills"]
    assert held["what"] == "2 kB in 2 objects"
    assert bucket.usage(1) == type(bucket.usage(1))(1, 1500, is_complete=False)


def test_what_cannot_be_looked_at_is_said_and_the_rest_is_listed(
    simulator: RunningSimulator, tpuctl: Tpuctl
) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
    simulator.faults.add("unreachable", zone="us-east1-d")
    simulator.faults.add("permission", method="storage.buckets.list")
    listed = tpuctl("cost", "--now", "--json").json
    assert listed["total_per_hour"] == {"amounts": {"USD": "9.77"}, "unknown": ["no answer from us-east1-d"]}
    assert "TPUs cost at least 9.77 USD per hour" in tpuctl("cost", "--now").err
    assert [bill["name"] for bill in listed["bills"]] == ["n1", "gs://sim-project-tpuctl"]
    missing = "\n".join(listed["missing"])
    assert "No answer from us-east1-d: what is there may bill." in missing
    assert "The buckets were not looked at: No permission" in missing


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
