"""Which nodes the runs of a bucket use: what nobody knows is no reason to delete one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.runs.evidence.memory_bucket import START, MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, TPU
from tpuctl import clock, runs
from tpuctl.bucket_layout import NodePaths
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import StateError
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.lookup import Usage
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.keeper import records
from tpuctl.host.worker.records import encode as encode_status
from tpuctl.runs import Run, Verdict, encode, verdict_type

NODE = node(id=TPU.id)
OTHER = replace(NODE, id=replace(NODE.id, name="n2", uid="8"))


class Site:
    """Runs that were started on the node n1."""

    def __init__(self) -> None:
        self.memory = MemoryBucket()
        self.bucket = cast("Bucket", self.memory)

    def submit(self, name: str, *uids: str) -> None:
        """Record a run with an attempt on each of these nodes."""
        run = StoredRun(self.bucket, name)
        run.create(Run(name, CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {}))
        for number, uid in enumerate(uids or (TPU.uid,), start=1):
            tpu = msgspec.structs.replace(TPU, uid=uid)
            run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=number, tpu=tpu))

    def end(self, name: str, decided: str, **fields: Any) -> None:
        verdict = Verdict(name, runs.SUCCEEDED, 1, decided, "all ended", 0, runs.BY_WORKERS, **fields)
        self.memory.time = max(self.memory.time, clock.parse(decided))
        self.memory.put(f"runs/{name}/verdict.json", encode(verdict), verdict_type(verdict))

    def used(self) -> frozenset[str]:
        """Return what is used with an age of an hour, three hours after the bucket's first object."""
        self.memory.time = START + timedelta(hours=3)
        witnesses = Witnesses(MemoryProvider(NODE))
        now, age = START + timedelta(hours=3), timedelta(hours=1)
        return Usage(self.bucket, witnesses, now, age, print).used([NODE, OTHER])


@pytest.fixture
def site() -> Site:
    """No run is recorded."""
    return Site()


def test_a_node_without_a_run_is_not_used(site: Site) -> None:
    assert site.used() == frozenset()


@pytest.mark.parametrize(
    ("decided", "is_used"),
    [("2026-01-01T14:00:01Z", True), ("2026-01-01T14:00:00Z", False), ("2026-01-01T12:00:00Z", False)],
)
def test_a_run_uses_its_node_for_the_age_after_its_end(site: Site, decided: str, is_used: bool) -> None:
    site.submit("r1")
    site.end("r1", decided)
    assert site.used() == (frozenset({TPU.uid}) if is_used else frozenset())


def test_runs_that_have_ended_before_cost_no_request(site: Site) -> None:
    site.submit("works")
    counts = []
    for number in range(40):
        site.submit(f"r{number}")
        site.end(f"r{number}", "2026-01-01T12:00:00Z")
        if number in (9, 39):
            counts.append(site.memory.requests(site.used))
            assert site.used() == {TPU.uid}
            site.memory.time = START
    assert counts[0] == counts[1]


def test_one_of_several_is_enough(site: Site) -> None:
    for name in ("r1", "r2"):
        site.submit(name)
    site.end("r2", "2026-01-01T12:00:00Z")
    site.end("r1", "2026-01-01T14:30:00Z")
    assert site.used() == {TPU.uid}


def test_a_run_that_goes_on_elsewhere_uses_that_node_alone(site: Site) -> None:
    site.submit("r1", TPU.uid, "8")
    site.memory.put(f"{NodePaths.of(OTHER.id).runs}r1/2.json", b"{}")
    site.end("r1", "2026-01-01T14:30:00Z")
    assert site.used() == {"8"}


def test_a_node_of_another_bucket_counts_as_used(site: Site) -> None:
    warnings = list[str]()
    usage = Usage(site.bucket, Witnesses(MemoryProvider(NODE)), START, timedelta(), warnings.append)
    elsewhere = replace(NODE, metadata={records.BUCKET: "other"})
    here = replace(OTHER, metadata={records.BUCKET: site.bucket.name})
    assert usage.used([elsewhere, here]) == {TPU.uid}
    assert warnings == [
        "n1 is left alone: its runs are recorded in gs://other. To include it: --bucket other."
    ]


def test_a_worker_at_work_uses_its_node_whatever_records_there_are(site: Site) -> None:
    site.memory.time = START + timedelta(hours=3)
    site.memory.put("runs/r1/attempts/1/workers/0/status.json", encode_status(STATUS))
    assert site.used() == {TPU.uid}


def test_a_name_without_an_attempt_uses_nothing(site: Site) -> None:
    site.memory.put(f"{NodePaths.of(TPU.id).runs}ghost/1.json", b"{}")
    assert site.used() == frozenset()


@pytest.mark.parametrize("name", ["attempts/1/attempt.json", "verdict.json"])
def test_one_that_cannot_be_read_is_an_error(site: Site, name: str) -> None:
    site.submit("r1")
    site.memory.put(f"runs/r1/{name}", b"{")
    with pytest.raises(StateError) as error:
        site.used()
    assert error.value.message.startswith(
        f"Run 'r1' cannot be read, so nobody knows whether its TPU is in use: runs/r1/{name} "
    )
    assert error.value.hint == "Delete its folder from the bucket, or leave --without-run away."
