"""Which runs `runs gc` removes.

Whether a run has ended for sure: what keeps it from being removed, and what does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, TPU, pass_time, write_run, write_status
from tests.flows.runs.upkeep.records import ended, write_ended_run
from tests.flows.runs.upkeep.test_removal import BY, Nodes, plan, witnesses
from tpuctl import runs
from tpuctl.catalogue.prices import unknown
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import ConfigError
from tpuctl.flows.runs.evidence.decision import HostState, HostWord
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.state import ABANDONED
from tpuctl.flows.runs.stored_run import CLOSE_AFTER, StoredRun
from tpuctl.flows.runs.upkeep.collection import Collection, Rule, plan_collection, tagging, update
from tpuctl.flows.runs.upkeep.removal import (
    REST,
    RemovalPlan,
    StillNeededError,
    _mark,
    ended_state,
    unstarted_state,
)
from tpuctl.host.worker.records import FINISHED, RUNNING, encode
from tpuctl.host.worker.records import encode as encode_word
from tpuctl.nodes import RESTART_LABEL, RUN_LABEL, NodeList, NodeState
from tpuctl.recovery import Lease, Machine
from tpuctl.runs import BY_MACHINE, BY_SILENCE, BY_WORKERS, Attempt, Run, Verdict
from tpuctl.runs import encode as encode_run
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


RECORD = Run("r1", CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {})
PAIR = msgspec.structs.replace(ATTEMPT, workers=(0, 1))
FAILED = Verdict("r1", runs.FAILED, 1, CREATED, "because", 1, BY_WORKERS, tpu=TPU)


class PlayedWitnesses(Witnesses):
    """Hosts whose answers are known beforehand."""

    def __init__(self, state: NodeState, answers: Sequence[HostState]) -> None:
        super().__init__(MemoryProvider(node(TPU.name, state, id=TPU.id)))
        self._host_states = answers
        self.asked: list[int] = []

    def hosts(self, run: str, attempt: Attempt, workers: Sequence[int]) -> dict[int, HostWord]:
        self.asked += workers
        return {worker: HostWord(self._host_states[worker]) for worker in workers if self._host_states}


class Site:
    """The run r1 in a bucket in memory."""

    def __init__(self) -> None:
        self.memory = MemoryBucket()
        self.run = StoredRun(cast("Any", self.memory), "r1")
        self.node = NodeState.READY
        self.hosts: tuple[HostState, ...] = ()

    def submit(self, attempt: Attempt | None = PAIR) -> None:
        self.run.create(RECORD)
        if attempt:
            self.run.create_attempt(attempt)

    def say(self, worker: int, state: str) -> None:
        status = replace(STATUS, worker=worker, state=state)
        self.memory.put(self.run.paths.status(1, worker), encode_word(status))

    def end(self, verdict: Verdict = FAILED, *words: str) -> None:
        """Submit the run, write what its workers said last, and the verdict."""
        self.submit()
        for worker, state in enumerate(words):
            self.say(worker, state)
        self.run.end(verdict)

    @property
    def witnesses(self) -> PlayedWitnesses:
        return PlayedWitnesses(self.node, self.hosts)

    def outcome(self, *, writes: bool = True) -> str | None:
        """Return how the run has ended."""
        state = ended_state(StoredRun(cast("Any", self.memory), "r1"), self.witnesses, writes=writes)
        return state.verdict.outcome if state and state.verdict else None

    def refusal(self, *, writes: bool = True) -> tuple[str, str]:
        """Return message and hint of what keeps the run."""
        with pytest.raises(StillNeededError) as caught:
            self.outcome(writes=writes)
        assert caught.value.facts["run"] == "r1"
        return caught.value.message, caught.value.hint


@pytest.fixture
def site() -> Site:
    return Site()


class TestWithoutAnAttempt:
    def test_a_run_may_be_on_its_way_for_a_while(self, site: Site) -> None:
        site.submit(None)
        site.memory.pass_time(600)
        assert site.refusal() == (
            "Run 'r1' was submitted just now: its start may be on its way.", "End it first: tpuctl cancel r1",
        )  # fmt: skip
        site.memory.pass_time(1)
        assert site.outcome() is None
        assert unstarted_state(site.run) == ABANDONED

    def test_a_rest_without_a_record_is_no_run(self, site: Site) -> None:
        site.memory.put("runs/r1/outputs/x", b"x")
        assert site.outcome() is None
        assert unstarted_state(site.run) == REST

    def test_a_run_that_was_ended_before_is_over(self, site: Site) -> None:
        site.submit(None)
        site.run.end(Verdict("r1", runs.STOPPED, 1, CREATED, "stopped by ada", basis=BY_MACHINE))
        assert site.outcome() == runs.STOPPED

    def test_a_verdict_that_cannot_be_read_says_nothing_of_its_end(self, site: Site) -> None:
        site.submit(None)
        site.memory.put(site.run.paths.verdict, b"{")
        assert site.refusal()[0].startswith(
            f"Run 'r1' cannot be read, so nobody knows whether it has ended: {site.run.paths.verdict} "
        )


class TestVerdict:
    def test_of_all_workers_is_an_end(self, site: Site) -> None:
        site.end(FAILED, FINISHED, FINISHED)
        assert site.outcome() == runs.FAILED
        assert site.outcome(writes=False) == runs.FAILED

    def test_that_is_missing_is_none(self, site: Site) -> None:
        site.submit()
        site.say(0, RUNNING)
        site.say(1, RUNNING)
        assert site.refusal() == ("Run 'r1' has not ended (running).", "Stop it first: tpuctl cancel r1")
        assert site.refusal(writes=False) == (
            "Run 'r1' has not ended.", "Stop it first: tpuctl cancel r1"
        )  # fmt: skip

    def test_that_another_attempt_follows_is_none(self, site: Site) -> None:
        verdict = msgspec.structs.replace(FAILED, outcome=runs.PREEMPTED, basis=BY_MACHINE, restarts=True)
        site.end(verdict)
        assert site.refusal(writes=False) == (
            "Run 'r1' is to be started again (preempted).", "End it first: tpuctl cancel r1"
        )  # fmt: skip

    @pytest.mark.parametrize(("tpu", "name"), [(TPU, "n1"), (None, "its TPU")])
    def test_that_is_a_guess_is_none(self, site: Site, tpu: runs.Tpu | None, name: str) -> None:
        site.end(Verdict("r1", runs.LOST, 1, CREATED, "worker 0 was silent", basis=BY_SILENCE, tpu=tpu))
        assert site.refusal(writes=False) == (
            "Run 'r1' may go on: worker 0 was silent. Silence does not say that it has ended.",
            f"See: tpuctl why {name}\nEnd whatever runs there: tpuctl down {name}",
        )

    @pytest.mark.parametrize(
        ("seconds", "claimed", "is_over", "outcome"),
        [
            (60, 60, False, None), (61, 60, False, runs.FAILED), (0, 60, True, runs.FAILED),
            (61, 3600, False, runs.FAILED),
        ],
    )  # fmt: skip
    def test_counts_unless_somebody_starts_the_run_again(
        self, site: Site, seconds: float, claimed: int, is_over: bool, outcome: str | None
    ) -> None:
        site.end(FAILED, FINISHED, FINISHED)
        lease = Lease("r1", 2, "token", "bob@desk", claimed, is_over=is_over)
        site.memory.put(site.run.paths.lease(2), encode_run(lease))
        site.memory.pass_time(seconds)
        if outcome:
            assert site.outcome() == outcome
        else:
            assert site.refusal() == ("Run 'r1' is being started again by bob@desk.", "tpuctl wait r1")


class TestWorkers:
    MESSAGE = "Run 'r1' may go on: worker 1 did not say that the script ended."

    def test_that_did_not_say_that_they_ended_may_be_at_work(self, site: Site) -> None:
        site.end(FAILED, FINISHED, RUNNING)
        site.hosts = (HostState.ALIVE, HostState.ALIVE)
        assert site.refusal() == (self.MESSAGE, "See: tpuctl why n1")
        site.hosts = (HostState.ALIVE, HostState.NO_ANSWER)
        assert site.refusal()[0] == self.MESSAGE

    def test_that_nobody_asks_may_be_at_work(self, site: Site) -> None:
        site.end(FAILED, FINISHED, RUNNING)
        assert site.refusal()[0] == self.MESSAGE

    @pytest.mark.parametrize("state", [HostState.GONE, HostState.ABSENT])
    def test_whose_hosts_know_of_no_program_are_not(self, site: Site, state: HostState) -> None:
        site.end(FAILED, FINISHED, RUNNING)
        site.hosts = (HostState.ALIVE, state)
        assert site.outcome() == runs.FAILED

    @pytest.mark.parametrize("state", [NodeState.PREEMPTED, NodeState.DELETING])
    def test_whose_node_has_ended_are_not(self, site: Site, state: NodeState) -> None:
        site.end(FAILED, FINISHED, RUNNING)
        site.node = state
        assert site.outcome() == runs.FAILED

    def test_that_were_silent_for_long_after_a_final_verdict_are_not(self, site: Site) -> None:
        site.end(FAILED, FINISHED, RUNNING)
        site.memory.pass_time(7200)
        assert site.refusal()[0] == self.MESSAGE
        site.memory.pass_time(1)
        assert site.outcome() == runs.FAILED

    def test_of_an_attempt_that_cannot_be_read_count_for_a_while(self, site: Site) -> None:
        site.end(FAILED)
        site.memory.put(site.run.paths.attempt(1), b"{}")
        site.memory.pass_time(7200)
        assert site.refusal(writes=False)[0].startswith(
            f"Run 'r1' cannot be read: {site.run.paths.attempt(1)} "
        )
        site.memory.pass_time(1)
        assert site.outcome(writes=False) == runs.FAILED
