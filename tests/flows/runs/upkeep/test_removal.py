"""Removal of runs: refused while one may go on, and never half done in anybody's eyes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.flows.runs.records import ATTEMPT, pass_time, write_run, write_status
from tests.flows.runs.upkeep.records import WORKERS, ended, rest_of, write_ended_run
from tpuctl import runs
from tpuctl.catalogue.prices import unknown
from tpuctl.cloud.ssh import Ssh
from tpuctl.cloud.storage import Bucket, Object
from tpuctl.errors import HostError, NotFoundError
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.lookup import find_run, half_removed, listed_runs
from tpuctl.flows.runs.pull import pull
from tpuctl.flows.runs.recovery import lease
from tpuctl.flows.runs.stored_run import CLOSE_AFTER, StoredRun
from tpuctl.flows.runs.upkeep.endings import StillNeededError
from tpuctl.flows.runs.upkeep.removal import BEGUN, RemovalPlan, _mark, plan_removal, remove, requests
from tpuctl.nodes import NodeState
from tpuctl.parallel import fanout, values
from tpuctl.upkeep.removal import REMOVAL_TYPE

BY = "ada@example.com"


class Nodes:
    """A provider of nodes that are all in one state; a mock, as no request makes a node silent at will."""

    def __init__(self, state: NodeState) -> None:
        self.state = state

    def get_node(self, node: object) -> Nodes:
        return self


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
            assert half_removed(bucket) == ["r1"]
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
    pass_time(bucket, CLOSE_AFTER + 1)
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
