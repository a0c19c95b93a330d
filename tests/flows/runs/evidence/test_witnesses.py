"""What the record of a node's keeper says about its end."""

from __future__ import annotations

from typing import cast

import pytest

from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import TPU
from tpuctl.bucket_layout import NodePaths
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.evidence.witnesses import end_by_keeper
from tpuctl.nodes import NodeId

NODE = NodeId(TPU.project, TPU.zone, TPU.name, TPU.uid)
EXPIRED = "the node was deleted: its keeper recorded the end of its --ttl"
IDLED = "the node was deleted: its keeper recorded that nobody used it for its --idle"


def recorded(*names: str) -> str:
    """Return what is said of records that were written in this order."""
    bucket = MemoryBucket()
    for name in names:
        bucket.put(NodePaths(NODE.project, NODE.zone, NODE.name, NODE.uid).keeper + name, b"{}")
    return end_by_keeper(cast("Bucket", bucket), NODE)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ((), ""),
        (("expired-2026-01-01T12:00:00Z.json",), EXPIRED),
        (("idle-2026-01-01T12:00:00Z.json",), IDLED),
        (("bored-2026-01-01T12:00:00Z.json",), ""),
        (("expired.json",), ""),
    ],
)
def test_the_reason_is_that_of_the_record(names: tuple[str, ...], sentence: str) -> None:
    assert recorded(*names) == sentence


def test_the_last_of_several_reasons_ended_it() -> None:
    """Each deletion that failed has left one."""
    idle, expired = "idle-2026-01-01T12:00:00Z.json", "expired-2026-01-02T12:00:00Z.json"
    assert recorded(idle, expired) == EXPIRED
    assert recorded(expired, idle) == IDLED
    assert recorded(idle, "bored-2026-01-03T12:00:00Z.json") == ""


@pytest.mark.parametrize("failures", [1, 30, 300])
def test_it_is_told_after_many_deletions_that_failed(failures: int) -> None:
    days = [f"idle-2026-{1 + day // 28:02}-{1 + day % 28:02}T12:00:00Z.json" for day in range(failures)]
    assert recorded(*days, "expired-2027-01-01T12:00:00Z.json") == EXPIRED
    assert recorded("expired-2025-01-01T12:00:00Z.json", *days) == IDLED
    extended = [day.replace("idle", "expired") for day in days]
    assert recorded(*extended, "idle-2027-01-01T12:00:00Z.json") == IDLED


def test_a_folder_that_somebody_has_filled_costs_one_page() -> None:
    bucket = MemoryBucket()
    most = []
    listing = bucket.objects

    def objects(prefix: str, **options: int) -> list[object]:
        most.append(options["most"])
        return [*listing(prefix, most=options["most"])]

    bucket.objects = objects  # type: ignore[assignment, method-assign]
    assert end_by_keeper(cast("Bucket", bucket), NODE) == ""
    assert len(most) == 1
    assert most[0] <= 1000
