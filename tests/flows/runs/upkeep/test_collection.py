"""Which runs `runs gc` removes."""

from __future__ import annotations

import msgspec

from tests.flows.runs.records import CREATED, pass_time, write_run, write_status
from tests.flows.runs.upkeep.records import write_ended_run
from tests.flows.runs.upkeep.test_removal import BY, plan, witnesses
from tpuctl import runs
from tpuctl.catalogue.prices import unknown
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.upkeep.collection import Collection, Rule, plan_collection
from tpuctl.flows.runs.upkeep.notes import tagging, update
from tpuctl.flows.runs.upkeep.removal import _mark
from tpuctl.recovery.records import Machine
from tpuctl.upkeep.notes import TagChange


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
