"""Removal of runs: refused while one may go on, and never half done in anybody's eyes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, STATUS, pass_time, write_run, write_status
from tests.flows.runs.upkeep.records import WORKERS, ended, rest_of, write_ended_run
from tpuctl import runs
from tpuctl.catalogue.prices import Price, unknown
from tpuctl.cloud.ssh import Ssh
from tpuctl.cloud.storage import Bucket, Object
from tpuctl.errors import ConflictError, HostError, NotFoundError
from tpuctl.flows.runs.attempt_costs import NOT_ON_A_NODE
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.lookup import find_run, half_removed, listed_runs
from tpuctl.flows.runs.pull import pull
from tpuctl.flows.runs.recovery import lease
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.upkeep.removal import (
    BEGUN,
    RemovalPlan,
    StillNeededError,
    _mark,
    plan_removal,
    remove,
    requests,
)
from tpuctl.host.worker.records import FINISHED
from tpuctl.host.worker.records import encode as encode_word
from tpuctl.nodes import History, NodeList, NodeState, QueuedResourceList
from tpuctl.parallel import fanout, values
from tpuctl.runs import encode
from tpuctl.upkeep import REMOVAL_TYPE, Notes, Removal, encode_removal

BY = "ada@example.com"


class Nodes:
    """A provider of nodes that are all in one state; a mock, as no request makes a node silent at will."""

    def __init__(self, state: NodeState) -> None:
        self.state = state

    def get_node(self, node: object) -> Nodes:
        return self

    def history(self, name: str, zone: str) -> History:
        return History(())

    def list_nodes(self, zone: str | None = None) -> NodeList:
        return NodeList(())

    def list_queued_resources(self, zone: str | None = None) -> QueuedResourceList:
        return QueuedResourceList(())


def witnesses(state: NodeState = NodeState.READY) -> Witnesses:
    def get_ssh() -> Ssh:
        raise HostError("no host answers.")

    return Witnesses(Nodes(state), get_ssh)  # type: ignore[arg-type]


def plan(run: StoredRun, state: NodeState = NodeState.READY) -> RemovalPlan:
    return plan_removal(StoredRun(run.bucket, run.name), witnesses(state), lambda tpu: unknown("a test"))


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


@contextmanager
def killed_after(bucket: Bucket, most: int) -> Iterator[list[str]]:
    """Let so many requests through that change something, and none after them; yields their names."""
    sent: list[str] = []

    def limited(call: Callable[..., None]) -> Callable[..., None]:
        def send(item: Object, *content: object) -> None:
            if len(sent) >= most:
                raise Killed
            sent.append(item.name)
            call(item, *content)

        return send

    with pytest.MonkeyPatch.context() as patch:
        for method in ("replace", "remove"):
            patch.setattr(bucket, method, limited(getattr(bucket, method)))
        try:
            yield sent
        except Killed:
            pass


def test_everything_of_the_run_goes_and_nothing_else(bucket: Bucket) -> None:
    others = ("datasets/r1/1.0.0/manifest.json", "runs/r1-2/outputs/x", f"bundles/{'0' * 64}.tar.gz")
    for name in others:
        bucket.upload(name, [b"x"], "text/plain")
    run = write_ended_run(bucket, "r1")
    write_ended_run(bucket, "r11")
    neighbour = rest_of(bucket, "r11")
    bucket.upload("runs/r1/outputs/../../../datasets/r1/1.0.0/manifest.json", [b"x"], "text/plain")
    planned = plan(run)
    assert (planned.state, planned.submitter, planned.attempts) == ("succeeded", "ada@laptop", (1,))
    assert remove(planned, BY) == len(planned.objects)
    assert rest_of(bucket, "r1") == []
    assert all(bucket.stat(name) for name in others)
    assert rest_of(bucket, "r11") == neighbour
    assert [item.name for item in listed_runs(bucket)] == ["r11"]
    with pytest.raises(NotFoundError, match="There is no run 'r1'"):
        plan(run)


def test_a_removal_killed_at_any_request_leaves_the_run_whole_or_none_and_is_completed(
    bucket: Bucket,
) -> None:
    """What changes something: the mark, the note of the node, its objects, and the mark again."""
    for most in (0, 1, 2, 3, 7, 11, 100):
        run = write_ended_run(bucket, "r1")
        before, planned = rest_of(bucket, "r1"), plan(run)
        with killed_after(bucket, most) as sent:
            remove(planned, BY)
        names = [item.name for item in listed_runs(bucket)]
        assert names == (["r1"] if most == 0 else []), sent
        if names:
            assert rest_of(bucket, "r1") == before, "a run that is listed is whole"
        elif rest_of(bucket, "r1"):
            assert half_removed(bucket.objects("runs/")) == ["r1"]
            for read in (lambda: StoredRun(bucket, "r1").record, lambda: find_run(bucket, "r1")):
                with pytest.raises(NotFoundError, match="is being removed") as refusal:
                    read()
                assert "'tpuctl rm r1' completes it" in refusal.value.hint
            assert plan(run).state == BEGUN
        if rest_of(bucket, "r1"):
            remove(plan(run), BY)
        assert rest_of(bucket, "r1") == []
    assert 11 < len(sent) < 100, "the last one was not killed"


def test_the_name_is_taken_until_the_end(bucket: Bucket) -> None:
    run = write_ended_run(bucket, "r1")
    _mark(plan(run), BY)
    with pytest.raises(NotFoundError, match="is being removed"):
        run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=2))
    assert run.attempt_numbers() == [1], "an attempt that starts nothing leaves no record"
    warnings: list[str] = []
    assert listed_runs(bucket, warnings.append) == []
    assert warnings == ["Run 'r1' is being removed; 'tpuctl rm r1' completes it."]
    remove(plan(run), BY)
    assert write_run(bucket, "r1").attempt_numbers() == [1]


def test_a_copy_that_is_under_way_ends_with_what_it_had(bucket: Bucket, tmp_path: Path) -> None:
    run = write_ended_run(bucket, "r1")
    pull(run, tmp_path / "copy", lambda text: None)
    record = (tmp_path / "copy/run.json").read_bytes()
    _mark(plan(run), BY)
    with pytest.raises(NotFoundError, match="is being removed"):
        pull(StoredRun(bucket, "r1"), tmp_path / "copy", lambda text: None)
    assert (tmp_path / "copy/run.json").read_bytes() == record
    assert (tmp_path / "copy/outputs/deep/er/x").is_file()


def test_a_run_that_was_started_again_meanwhile_stays(bucket: Bucket) -> None:
    run = write_ended_run(bucket, "r1")
    planned, record = plan(run), bucket.read(run.paths.record)
    run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=2))
    before = rest_of(bucket, "r1")
    with pytest.raises(StillNeededError, match="started again meanwhile, as attempt 2"):
        remove(planned, BY)
    assert rest_of(bucket, "r1") == before
    assert bucket.read(run.paths.record) == record
    assert StoredRun(bucket, "r1").record


def test_another_run_of_the_name_stays(bucket: Bucket) -> None:
    run = write_ended_run(bucket, "r1")
    planned = plan(run)
    remove(planned, BY)
    write_ended_run(bucket, "r1")
    before = rest_of(bucket, "r1")
    with pytest.raises(StillNeededError, match="is another by now"):
        remove(planned, BY)
    assert rest_of(bucket, "r1") == before


def test_two_at_once_leave_nothing(bucket: Bucket) -> None:
    run = write_ended_run(bucket, "r1")
    for number in range(30):
        bucket.upload(f"runs/r1/outputs/{number}", [b"x"], "text/plain")
    plans = [plan(run) for _ in range(4)]
    values(fanout(lambda planned: remove(planned, BY), plans))
    assert rest_of(bucket, "r1") == []


@pytest.mark.parametrize("state", ["running", "preparing", "queued"])
def test_a_run_that_goes_on_is_refused(bucket: Bucket, state: str) -> None:
    run = write_run(bucket, "r1")
    for worker in WORKERS:
        write_status(run.attempt(1), worker, state)
    with pytest.raises(StillNeededError, match=f"Run 'r1' has not ended \\({state}\\)") as refusal:
        plan(run)
    assert refusal.value.hint == "Stop it first: tpuctl cancel r1"


def test_silence_is_no_end(bucket: Bucket) -> None:
    run = write_run(bucket, "r1")
    for worker in WORKERS:
        write_status(run.attempt(1), worker, "running")
    pass_time(bucket, 3600.0)
    with pytest.raises(StillNeededError, match="Silence does not say that it has ended") as refusal:
        plan(run)
    assert "tpuctl down n1" in refusal.value.hint
    assert plan(run, NodeState.GONE).state == "stopped", "once its node is gone, it has"


@pytest.mark.parametrize("node", [NodeState.READY, NodeState.UNKNOWN])
def test_a_worker_without_a_last_word_is_waited_for(bucket: Bucket, node: NodeState) -> None:
    run = write_ended_run(bucket, "r1", finished=(0, 1))
    with pytest.raises(StillNeededError, match="workers 2-3 did not say that the script ended"):
        plan(run, node)
    assert plan(run, NodeState.PREEMPTED).state == "succeeded"
    pass_time(bucket, 7201.0)
    assert plan(run, node).state == "succeeded", "what workers said is final after two hours"


def test_a_run_that_is_to_be_started_again_is_refused(bucket: Bucket) -> None:
    run = write_run(bucket, "r1")
    run.end(ended("r1", runs.PREEMPTED, runs.BY_MACHINE, restarts=True))
    with pytest.raises(StillNeededError, match="is to be started again"):
        plan(run)


def test_a_run_that_somebody_starts_again_is_refused(bucket: Bucket) -> None:
    run = write_ended_run(bucket, "r1")
    held = lease.take(run, 2, "bob@desk")
    assert isinstance(held, lease.HeldLease)
    with held, pytest.raises(StillNeededError, match="is being started again by bob@desk"):
        plan(run)
    assert plan(run).state == "succeeded"


def test_a_submission_may_be_on_its_way_for_ten_minutes(bucket: Bucket) -> None:
    record = write_run(bucket, "r0").record
    run = StoredRun(bucket, "r1")
    run.create(msgspec.structs.replace(record, run="r1"))
    with pytest.raises(StillNeededError, match="was submitted just now"):
        plan(run)
    pass_time(bucket, 601.0)
    planned = plan(run)
    assert planned.state == "abandoned"
    remove(planned, BY)
    assert rest_of(bucket, "r1") == []


def test_a_run_without_a_readable_record_can_be_removed(bucket: Bucket) -> None:
    run = write_ended_run(bucket, "r1")
    bucket.upload(run.paths.record, [b"{}"], "application/json")
    remove(plan(run), BY)
    bucket.upload("runs/r2/outputs/x", [b"x"], "text/plain")
    remove(plan(StoredRun(bucket, "r2")), BY)
    assert rest_of(bucket, "r1") + rest_of(bucket, "r2") == []


def test_a_rehearsal_names_each_request_and_sends_none(bucket: Bucket) -> None:
    run = write_ended_run(bucket, "r1")
    before = [(item.name, item.generation) for item in bucket.objects("")]
    planned = plan_removal(run, witnesses(), lambda tpu: unknown("a test"), is_rehearsal=True)
    sent = requests(bucket, [planned])
    assert [request.method for request in sent] == ["POST", *["DELETE"] * len(planned.objects)]
    assert "run.json" in sent[-1].url
    assert [(item.name, item.generation) for item in bucket.objects("")] == before


def test_the_mark_is_told_from_a_record_by_its_type(bucket: Bucket) -> None:
    mark, removal = _mark(plan(write_ended_run(bucket, "r1")), BY)
    assert mark.content_type == REMOVAL_TYPE
    assert (removal.by, removal.attempts) == (BY, (1,))


class TestMemory:
    """A run in a bucket in memory, while others act there."""

    @pytest.fixture
    def memory(self) -> MemoryBucket:
        return MemoryBucket()

    def ended(self, memory: MemoryBucket, **changes: Any) -> StoredRun:
        run = write_run(cast("Bucket", memory), "r1")
        if changes:
            memory.put(run.paths.record, encode(msgspec.structs.replace(run.record, **changes)))
        for worker in WORKERS:
            status = replace(STATUS, worker=worker, state=FINISHED, exit_code=0)
            memory.put(run.paths.status(1, worker), encode_word(status))
        memory.put("runs/r1/outputs/x", b"x" * 10)
        return StoredRun(cast("Bucket", memory), "r1")

    def test_a_plan_says_what_goes_and_what_it_has_cost(self, memory: MemoryBucket) -> None:
        run = self.ended(memory)
        notes = Notes("r1", {"team": "vision"})
        memory.put(run.paths.notes, encode(notes))
        memory.pass_time(1800)
        size = sum(item.size for item in memory.objects("runs/r1/"))
        planned = plan_removal(run, witnesses(), lambda tpu: Price(Decimal(7), "USD"))
        assert planned.bytes == size
        assert (planned.submitter, planned.submitted) == ("ada@laptop", "2026-01-01T12:00:00Z")
        assert planned.notes == notes
        assert planned.cost.amount == Decimal("0.00"), "its workers ended at once"

    def test_a_plan_of_what_nobody_can_read_has_no_submitter_notes_or_cost(
        self, memory: MemoryBucket
    ) -> None:
        run = self.ended(memory)
        memory.put(run.paths.notes, b"{")
        memory.put(run.paths.record, b"{")
        planned = plan(run)
        assert (planned.submitter, planned.notes, planned.state) == ("", None, "succeeded")
        memory.put("runs/r2/outputs/x", b"x")
        rest = plan(StoredRun(run.bucket, "r2"))
        assert (rest.state, rest.submitted, rest.cost.is_known) == ("rest", "", NOT_ON_A_NODE.is_known)

    def test_what_is_deleted_is_counted_and_said_and_the_verdict_goes_first(
        self, memory: MemoryBucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run, lines, removed = self.ended(memory), list[str](), list[str]()
        planned = plan(run)
        count = len(memory.objects("runs/r1/"))
        real = memory.remove

        def note(item: Object) -> None:
            removed.append(item.name)
            real(item)

        monkeypatch.setattr(memory, "remove", note)
        assert remove(planned, BY, lines.append) == count
        assert lines == [f"r1: deleting {count - 1} objects"]
        assert removed[0].startswith("nodes/")
        assert (removed[1], removed[-1]) == (run.paths.verdict, run.paths.record)
        assert memory.objects("") == []

    def test_a_removal_that_names_thousands_of_attempts_reads_those_that_are_there(
        self, memory: MemoryBucket
    ) -> None:
        """Any member may write one: two requests for each of them took minutes."""
        run, requests = self.ended(memory), list[int]()
        removal = Removal("r1", "eve", "2026-01-01T12:00:00Z", tuple(range(1, 10_000)))
        record = memory.stat(run.paths.record)
        assert record
        memory.replace(record, encode_removal(removal), REMOVAL_TYPE)
        memory.meanwhile = lambda: requests.append(1)
        remove(plan(run), BY)
        assert memory.objects("") == [], "of the attempt's node, too"
        assert len(requests) < 50

    def test_a_worker_that_still_writes_keeps_nobody_busy_for_ever(self, memory: MemoryBucket) -> None:
        run, lines = self.ended(memory), list[str]()
        planned = plan(run)

        def write() -> None:
            if memory.get("runs/r1/outputs/x") is None:
                memory.put("runs/r1/outputs/x", b"again")

        memory.meanwhile = write
        remove(planned, BY, lines.append)
        assert len(lines) == 5
        assert memory.get(run.paths.record) is None

    def test_values_that_this_machine_has_kept_go_too(self, memory: MemoryBucket, home: Path) -> None:
        kept = home.parent / "state/launches/b/r1.json"
        kept.parent.mkdir(parents=True)
        kept.write_text("{}")
        remove(plan(self.ended(memory)), BY)
        assert not kept.exists()

    def test_a_record_that_keeps_changing_is_an_error(self, memory: MemoryBucket) -> None:
        run = self.ended(memory)
        planned, number = plan(run), iter(range(1000))

        def fail(item: Object, data: bytes, content_type: str = "") -> None:
            next(number)
            raise ConflictError("It has changed.")

        memory.replace = fail  # type: ignore[method-assign]
        with pytest.raises(ConflictError) as changing:
            remove(planned, BY)
        assert changing.value.message == "The record of run 'r1' keeps changing."
        assert changing.value.hint == "Try again."
        assert next(number) == 5

    def test_one_that_is_gone_or_another_by_now_is_not_removed(self, memory: MemoryBucket) -> None:
        run = self.ended(memory)
        planned = plan(run)
        data = memory.get(run.paths.record)
        assert data
        memory.put(run.paths.record, data)
        with pytest.raises(StillNeededError) as other:
            remove(planned, BY)
        assert (other.value.message, other.value.hint, other.value.facts) == (
            "Run 'r1' is another by now.", "See: tpuctl runs", {"run": "r1"},
        )  # fmt: skip
        item = memory.stat(run.paths.record)
        assert item
        memory.remove(item)
        with pytest.raises(NotFoundError, match="There is no run 'r1'"):
            remove(planned, BY)

    def test_one_that_was_started_again_says_how_to_stop_it(self, memory: MemoryBucket) -> None:
        run = self.ended(memory)
        planned = plan(run)
        run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=2))
        with pytest.raises(StillNeededError) as again:
            remove(planned, BY)
        assert again.value.hint == "Stop it first: tpuctl cancel r1"
        assert again.value.facts == {"run": "r1"}
