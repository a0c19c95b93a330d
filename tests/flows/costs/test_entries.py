"""Spans of time that nodes billed: cut at a window, and summed by run, node, user or label."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from tpuctl.catalogue.prices import Price, unknown
from tpuctl.flows.costs.bills import By, Entry, grouped

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
