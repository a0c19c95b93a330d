"""The command cost."""

from __future__ import annotations

from typing import get_args

import click

from tpuctl import durations
from tpuctl.catalogue.totals import Total
from tpuctl.cli import output
from tpuctl.cli.nodes.table import show_restarts
from tpuctl.cli.price_fields import price_fields
from tpuctl.cli.session import Session, with_session
from tpuctl.cli.value_types import DURATION
from tpuctl.client.runs import steps
from tpuctl.flows.costs.bills import BillReport
from tpuctl.flows.costs.entries import By, Entry, Group, grouped
from tpuctl.flows.costs.report import CostReport


@click.command()
@click.option(
    "--since", type=DURATION, default="30d", show_default=True, metavar="DURATION",
    help="Time that is looked at, such as 12h or 7d.",
)  # fmt: skip
@click.option(
    "--by", type=click.Choice(get_args(By)), default="run", show_default=True,
    help="What to add up by.",
)  # fmt: skip
@click.option(
    "--now", "is_now", is_flag=True,
    help="List what bills now in the whole project instead, also what tpuctl did not make.",
)  # fmt: skip
@with_session
def cost(session: Session, since: int, by: By, is_now: bool) -> None:
    """Estimate what runs have cost, and the time in which no run used a TPU.

    An estimate, by the time on each TPU and the list price then: no bill. Disks, traffic, discounts and
    contracts are not in it; neither is what waits in a queue, nor a TPU that is stopped.

    \b
    Example:
      tpuctl cost --since 7d --by user
      tpuctl cost --now
    """
    if is_now:
        _show_bills(session, steps.bills(session.context))
        show_restarts(session)
        return
    report = steps.costs(session.context, since)
    groups = grouped(report.entries, by)
    if session.as_json:
        _print_cost(report, groups, by)
        return
    _show(report, groups, by)


def _show(report: CostReport, groups: list[Group], by: By) -> None:
    rows = [
        (group.key, group.attempts or "", durations.text(group.seconds), group.total.short, _prices(group))
        for group in groups
    ]
    output.table((by.upper(), "ATTEMPTS", "TIME", "COST", "PRICE FROM"), rows)
    for gap in report.gaps:
        output.note(f"Warning: {gap}")
    for reason in report.total.reasons:
        output.note(f"Unknown: {reason}.")
    if not rows:
        output.note(f"Nothing was used since {report.since}.")
        output.hint("tpuctl runs")
        return
    words = f"Estimate since {report.since}, no bill: {report.total.short}"
    output.note(f"{words} (a run with two labels counts once)." if by == "label" else f"{words}.")
    idle = next((entry for entry in report.entries if entry.goes_on and not entry.run), None)
    last = max((entry for entry in report.entries if entry.run), key=lambda entry: entry.ended, default=None)
    shown = idle.node if idle else last.run if last else ""
    output.hint(f"tpuctl describe {shown}" if shown else "tpuctl runs")


def _show_bills(session: Session, report: BillReport) -> None:
    total = report.total
    if session.as_json:
        output.json({
            "bills": [
                {
                    "kind": bill.kind, "name": bill.name, "place": bill.place, "what": bill.what,
                    "owner": bill.owner, "price_per_hour": price_fields(bill.price) if bill.price else None,
                }
                for bill in report.bills
            ],
            "total_per_hour": _total(total),
            "missing": report.gaps,
        })  # fmt: skip
        return
    rows = [
        (bill.kind, bill.name, bill.place, bill.what, bill.price.short if bill.price else "-", bill.owner)
        for bill in report.bills
    ]
    output.table(("KIND", "NAME", "PLACE", "WHAT", "PER HOUR", "OWNER"), rows)
    for gap in report.gaps:
        output.note(f"Warning: {gap}")
    for reason in total.reasons:
        output.note(f"Unknown: {reason}.")
    output.note(
        f"TPUs cost {total.short} per hour; disks, addresses and storage bill besides."
        if rows
        else "Nothing that bills was seen."
    )
    if any(bill.kind in ("TPU", "queued resource") for bill in report.bills):
        output.hint("tpuctl down NAME")


def _prices(group: Group) -> str:
    """Return where the prices of a group are from, and which of them are today's."""
    origins = dict.fromkeys(
        f"{entry.price.origin}{', present price' * entry.is_present}"
        for entry in group.entries
        if entry.price.is_known
    )
    return "; ".join(origins) or "-"


def _print_cost(report: CostReport, groups: list[Group], by: By) -> None:
    output.json(
        {
            "since": report.since,
            "until": report.until,
            "by": by,
            "is_estimate": True,
            "total": _total(report.total),
            "groups": [
                {
                    by: group.key, "attempts": group.attempts, "seconds": round(group.seconds),
                    "cost": _total(group.total),
                }
                for group in groups
            ],
            "entries": [_cost_fields(entry) for entry in report.entries],
            "missing": list(report.gaps),
        }
    )  # fmt: skip


def _total(total: Total) -> dict[str, object]:
    """Return a sum: an amount in each currency, and why some costs are unknown."""
    amounts = {currency: f"{amount:.2f}" for currency, amount in total.amounts}
    return {"amounts": amounts, "unknown": list(total.reasons)}


def _cost_fields(entry: Entry) -> dict[str, object]:
    return {
        "run": entry.run or None, "attempt": entry.attempt or None, "node": entry.node or None,
        "zone": entry.zone or None, "uid": entry.uid or None, "user": entry.user,
        "labels": dict(entry.labels),
        "began": entry.began or None, "ended": None if entry.goes_on else entry.ended,
        "seconds": None if entry.seconds is None else round(entry.seconds),
        "price_per_hour": price_fields(entry.price), "is_present_price": entry.is_present,
        "cost": price_fields(entry.cost.rounded()),
    }  # fmt: skip
