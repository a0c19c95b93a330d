"""Which runs `runs gc` removes."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import node
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, pass_time, write_run, write_status
from tests.flows.runs.upkeep.records import ended, write_ended_run
from tests.flows.runs.upkeep.test_removal import BY, Nodes, plan, witnesses
from tpuctl import runs
from tpuctl.catalogue.prices import unknown
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import ConfigError
from tpuctl.flows.runs.stored_run import CLOSE_AFTER, StoredRun
from tpuctl.flows.runs.upkeep.collection import Collection, Rule, plan_collection, tagging, update
from tpuctl.flows.runs.upkeep.removal import RemovalPlan, _mark
from tpuctl.host.worker.records import FINISHED, encode
from tpuctl.nodes import RESTART_LABEL, RUN_LABEL, NodeList, NodeState
from tpuctl.recovery import Machine
from tpuctl.runs import Run
from tpuctl.upkeep import TagChange

MACHINE = Machine("v3-32", ("z",), False, "base", BY)


def collect(bucket: Bucket, rule: Rule) -> Collection:
    return plan_collection(bucket, witnesses(), lambda tpu: unknown("a test"), rule)


def names(collection: Collection) -> list[str]:
    return [plan.run.name for plan in collection.plans]


def test_the_newest_the_tagged_and_those_that_go_on_stay(bucket: Bucket) -> None:
    write_run(bucket, "goes-on")
    write_status(StoredRun(bucket, "goes-on").attempt(1), 0, "running")
    for name in ("z-first", "pinned", "second", "a-last"):
        write_ended_run(bucket, name)
    update(StoredRun(bucket, "pinned"), tagging(TagChange.parse(["keep"])))
    collection = collect(bucket, Rule(1))
    assert names(collection) == ["z-first", "second"]
    assert collection.tagged == ["pinned"]
    (refusal,) = collection.refused
    assert "Run 'goes-on' has not ended" in refusal.message
    assert names(collect(bucket, Rule(20))) == []
    assert names(collect(bucket, Rule(0))) == ["z-first", "second", "a-last"]


def test_runs_that_have_ended_long_ago_are_judged_by_one_listing() -> None:
    memory, plans = MemoryBucket(), list[RemovalPlan]()
    bucket = cast("Bucket", memory)
    for name in ("r1", "r2", "r3"):
        run = StoredRun(bucket, name)
        run.create(Run(name, CREATED, BY, "job.py", (), "0" * 64, "jax", "v3-32", (), {}, machine=MACHINE))
        run.create_attempt(msgspec.structs.replace(ATTEMPT, workers=(0,)))
        memory.put(run.paths.status(1, 0), encode(replace(STATUS, state=FINISHED, exit_code=0)))
        run.end(ended(name))
    memory.pass_time(CLOSE_AFTER)
    assert memory.requests(lambda: collect(bucket, Rule(0, BY))) > 10, "a worker may write its last word"
    memory.pass_time(1)
    assert memory.requests(lambda: plans.extend(collect(bucket, Rule(0, BY)).plans)) == 1
    assert [(plan.run.name, plan.state, plan.attempts) for plan in plans] == [
        (name, "succeeded", (1,)) for name in ("r1", "r2", "r3")
    ]
    assert memory.requests(lambda: collect(bucket, Rule(0, "bob@example.com"))) == 1
    assert plans[0].submitter == BY
    memory.put("runs/r2/attempts/2/lease.json", b"{")
    memory.put("runs/r3/attempts/1/workers/0/status.json", encode(STATUS))
    assert names(collect(bucket, Rule(0, BY))) == ["r1", "r2"], "what has just been written is read"


def test_age_is_by_the_buckets_clock(bucket: Bucket) -> None:
    write_ended_run(bucket, "r1")
    assert names(collect(bucket, Rule(0, age=60.0))) == []
    pass_time(bucket, 61.0)
    assert names(collect(bucket, Rule(0, age=60.0))) == ["r1"]


def test_runs_of_others_stay_and_do_not_count(bucket: Bucket) -> None:
    for name in ("of-ada", "own"):
        write_ended_run(bucket, name)
    record = msgspec.structs.replace(
        StoredRun(bucket, "own").record, run="here", submitter=runs.submitter(), created=CREATED
    )
    StoredRun(bucket, "here").create(record)
    pass_time(bucket, 601.0)
    assert names(collect(bucket, Rule(0, BY))) == ["here"]
    assert names(collect(bucket, Rule(1, BY))) == []
    assert names(collect(bucket, Rule(0))) == ["of-ada", "own", "here"]


def test_of_two_owners_on_one_machine_each_has_runs_of_their_own(bucket: Bucket) -> None:
    for owner in ("ada@example.com", "bob@example.com", ""):
        name = f"of-{owner.partition('@')[0]}".rstrip("-")
        run = write_ended_run(bucket, f"{name}-1")
        machine = Machine("v3-8", ("z",), False, "base", owner)
        record = msgspec.structs.replace(run.record, run=name, submitter=runs.submitter(), machine=machine)
        StoredRun(bucket, name).create(record)
    pass_time(bucket, 601.0)
    assert names(collect(bucket, Rule(0, "ada@example.com"))) == ["of-ada", "of"]
    assert names(collect(bucket, Rule(0, "bob@example.com"))) == ["of-bob", "of"]


def test_a_run_that_cannot_be_read_is_nobodys_and_one_with_unreadable_tags_stays(bucket: Bucket) -> None:
    for name in ("unread", "tagged"):
        write_ended_run(bucket, name)
    bucket.upload("runs/unread/run.json", [b"{}"], "application/json")
    bucket.upload("runs/tagged/notes.json", [b"{}"], "application/json")
    assert names(collect(bucket, Rule(0, BY))) == []
    assert names(collect(bucket, Rule(0))) == ["unread"]


def test_what_was_begun_is_completed(bucket: Bucket) -> None:
    _mark(plan(write_ended_run(bucket, "r1")), BY)
    assert names(collect(bucket, Rule(20, "bob"))) == ["r1"]


def test_runs_stay_whose_tpus_bill_or_may_bill(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("r1", "r2", "r3", "r4"):
        write_ended_run(bucket, name)
    labels = {**node().labels, RESTART_LABEL: "r1", RUN_LABEL: "r2"}
    nodes = NodeList(
        (
            node("n1", labels=labels),
            node("n2", labels={RUN_LABEL: "r3"}),
            node("n3", labels={**labels, RESTART_LABEL: "r4"}, state=NodeState.PREEMPTED),
        )
    )
    monkeypatch.setattr(Nodes, "list_nodes", lambda *_: nodes)
    collection = collect(bucket, Rule(0))
    assert names(collection) == ["r3", "r4"], "n2 is not of tpuctl, n3 does not bill"
    made = f"n1 in {node().zone} was made for it, and goes on billing until 'tpuctl down n1'."
    assert [error.message for error in collection.refused] == [
        f"Run '{name}': {made}" for name in ("r1", "r2")
    ]


def test_none_is_removed_while_nobody_can_tell_whether_its_tpu_bills(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(nodes: Nodes, zone: str | None = None) -> NodeList:
        raise ConfigError("No permission.")

    write_ended_run(bucket, "r1")
    silent = NodeList((), ("z1", "z2"))
    for answer, why in ((lambda *_: silent, "No answer from z1, z2."), (refuses, "No permission.")):
        monkeypatch.setattr(Nodes, "list_nodes", answer)
        collection = collect(bucket, Rule(0))
        assert names(collection) == []
        doubt = f"Run 'r1': Whether a TPU that was made for it still bills is unknown: {why}"
        assert [error.message for error in collection.refused] == [doubt]
