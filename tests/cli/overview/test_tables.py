"""The table of TPUs, cell by cell, without a cloud."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from tests.flows.nodes.memory_provider import ZONE as PLAYED_ZONE
from tests.flows.nodes.memory_provider import node, queued_resource
from tpuctl.cli.nodes.table import allocation_table, note_unlisted
from tpuctl.flows.nodes.lookup import Allocation, Inventory
from tpuctl.nodes import NodeState, QueueState, owner_label

Capture = pytest.CaptureFixture[str]
LOOKED_AT = datetime(2026, 1, 1, 3, tzinfo=UTC)
HEADINGS = ["NAME", "ZONE", "TYPE", "HOSTS", "STATE", "SPOT", "RUNTIME", "AGE", "OWNER"]


def cells(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in text.splitlines()]


def test_a_node_has_nine_cells_and_a_note_where_it_is_ill(capsys: Capture) -> None:
    ill = node("n2", NodeState.PREEMPTED, spot=True, labels={}, addresses=("10.0.0.1", "10.0.0.2"))
    allocation_table([Allocation((node(),)), Allocation((ill,))], LOOKED_AT)
    shown = capsys.readouterr()
    assert shown.err == ""
    assert cells(shown.out) == [
        [*HEADINGS, "NOTE"],
        ["n1", PLAYED_ZONE, "v3-8", "1", f"its {NodeState.READY}", "no", "image-2", "3h", owner_label("ada")],
        [
            "n2", PLAYED_ZONE, "v3-8", "2", f"its {NodeState.PREEMPTED}", "yes", "image-2", "3h", "-",
            "taken back by the provider: never runs again",
        ],
    ]  # fmt: skip


def test_a_request_is_listed_until_it_is_active(capsys: Capture) -> None:
    waits, has_all = (
        Allocation((), queued_resource()),
        Allocation((node(),), queued_resource(QueueState.ACTIVE)),
    )
    allocation_table([waits, has_all], LOOKED_AT, err=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    header, request, slice_ = cells(shown.err)
    assert header[:9] == HEADINGS
    assert (request[0], slice_[0]) == ("q1", "n1")
    assert request[3] == f"its {QueueState.WAITING}", "no hosts yet"
    assert len(cells(shown.err)) == 3


def test_zones_that_did_not_answer_are_named(capsys: Capture) -> None:
    note_unlisted(Inventory((), ("us-east1-d", "us-east5-a")))
    assert capsys.readouterr().err == (
        "Warning: no answer from us-east1-d: what is there is not listed, and may bill.\n"
        "Warning: no answer from us-east5-a: what is there is not listed, and may bill.\n"
    )
