"""A submission that is killed at any moment goes on: one record, one attempt, each worker once.

Two submissions in one moment for one TPU: the one that the bucket took first has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import node
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.matrix import programs
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, TPU
from tests.flows.runs.submission.test_submit import HEADER, owner, request_of_four
from tests.running_simulator import CommandResult
from tpuctl import clock, runs
from tpuctl.bucket_layout import NodePaths
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.ssh import SshSession
from tpuctl.errors import ConflictError, StateError
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.outcome import error_of, settle
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import continuation, launch
from tpuctl.flows.runs.submission.continuation import go_on
from tpuctl.flows.runs.submission.plan import SubmitPlan, SubmitRequest, plan_submit
from tpuctl.flows.runs.submission.submit import take_turn
from tpuctl.host.worker.records import FINISHED, RUNNING, Spec, WorkerStatus, encode
from tpuctl.parallel import fanout
from tpuctl.polling import Backoff, poll
from tpuctl.runs import BY_MACHINE, Run, Slice, Verdict

__all__ = ["request_of_four"]


class Killed(BaseException):
    """Ends a command as `kill -9` does."""


def planned(cloud: Cloud, request: SubmitRequest) -> SubmitPlan:
    return plan_submit(cloud.data_bucket, cloud.provider, owner(), request, clock.now())


def submit(cloud: Cloud, request: SubmitRequest) -> None:
    go_on(cloud.bucket, cloud.provider, cloud.ssh, planned(cloud, request))


def all_running(cloud: Cloud) -> list[WorkerStatus]:
    """Wait until every worker runs the script: they have agreed on it, so they have one secret."""

    def look() -> list[WorkerStatus] | None:
        statuses = StoredRun(cloud.bucket, "r1").last_attempt().statuses()
        running = [status for status in statuses if status and status.state == RUNNING]
        return running if len(running) == len(statuses) else None

    return poll(look, awaiting="r1 to run on all workers", timeout=120, backoff=Backoff(0.05, 0.3))


def start_some(
    cloud: Cloud,
    request: SubmitRequest,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    program: Callable[[], bytes] = launch.worker_program,
) -> None:
    """Submit, and be killed once so many workers are started, with another program for them."""
    start = launch.launch

    def start_or_be_killed(session: SshSession, program: bytes, spec: Spec) -> int:
        if spec.worker >= count:
            raise Killed
        return start(session, program, spec)

    with monkeypatch.context() as patch:
        patch.setattr(launch, "worker_program", program)
        patch.setattr(launch, "launch", start_or_be_killed)
        with pytest.raises(Killed):
            submit(cloud, request)


def test_a_launch_that_was_killed_between_workers_goes_on(
    cloud: Cloud, request_of_four: SubmitRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_some(cloud, request_of_four, monkeypatch, 2)
    submit(cloud, request_of_four)
    before = all_running(cloud)
    submit(cloud, request_of_four)
    assert [status.supervisor for status in all_running(cloud)] == [item.supervisor for item in before]
    assert StoredRun(cloud.bucket, "r1").attempt_numbers() == [1]


def test_one_of_which_nothing_was_started_is_started_by_the_same_submit(
    tpuctl: Callable[..., CommandResult], cloud: Cloud, request_of_four: SubmitRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Once it cannot be on its way any more."""

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(StoredRun, "create_attempt", kill)
        with pytest.raises(Killed):
            submit(cloud, request_of_four)
    shown = tpuctl("logs", "r1")
    assert "Run 'r1' was not started: nothing of it runs." in shown.err
    arguments = ("submit", str(request_of_four.script), "--name", "r1")
    refused = tpuctl(*arguments)
    assert "There is a run 'r1' already" in refused.err
    assert "If its submission was killed, the same command goes on in " in refused.err
    monkeypatch.setattr(continuation, "UNDER_WAY", 0.0)
    again = tpuctl(*arguments)
    assert (again.code, "Run 'r1' was submitted before" in again.err) == (0, True), again.err
    all_running(cloud)
    assert "There is a run 'r1' already" in tpuctl(*arguments).err


def test_a_launch_whose_workers_have_given_up_the_others_is_made_anew(
    cloud: Cloud, request_of_four: SubmitRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    brief = programs.changed({programs.TIMING: "NEIGHBOUR_INTERVAL = LAUNCH_SILENCE = 0.5\n"})
    start_some(cloud, request_of_four, monkeypatch, 1, lambda: brief)
    run, witnesses = StoredRun(cloud.bucket, "r1"), Witnesses(cloud.provider, lambda: cloud.ssh)
    verdict = poll(
        lambda: settle(run, witnesses).verdict, awaiting="its end", timeout=60, backoff=Backoff(0.1, 0.5)
    )
    assert (verdict.outcome, verdict.is_unstarted) == (runs.FAILED, True)
    assert "worker 1 was not started, and nobody starts it any more" in verdict.evidence
    error = error_of(verdict)
    assert error
    assert "The same command with --name r1 starts it" in error.hint
    assert continuation.free_in(run, witnesses) == 0.0
    submit(cloud, request_of_four)
    assert {status.attempt for status in all_running(cloud)} == {2}
    assert run.verdict() is None
    assert run.earlier_verdicts(2) == [verdict]
    assert continuation.free_in(run, witnesses) is None


def test_two_at_once_start_one_run(cloud: Cloud, request_of_four: SubmitRequest) -> None:
    results = fanout(lambda request: submit(cloud, request), [request_of_four] * 2)
    assert [result.error for result in results] == [None, None]
    all_running(cloud)
    assert StoredRun(cloud.bucket, "r1").verdict() is None


def test_a_name_that_has_another_run_is_refused(cloud: Cloud, request_of_four: SubmitRequest) -> None:
    StoredRun(cloud.bucket, "r1").create(planned(cloud, request_of_four).run)
    Path("job.py").write_text(HEADER + "print('something else')\n")
    with pytest.raises(ConflictError, match="'r1' already, with another code"):
        submit(cloud, request_of_four)


def test_what_another_machine_has_started_in_part_is_left_to_it(
    cloud: Cloud, request_of_four: SubmitRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(session: SshSession, program: bytes, spec: Spec) -> int:
        raise Killed

    plan = planned(cloud, request_of_four)
    monkeypatch.setattr(launch, "launch", kill)
    with pytest.raises(Killed):
        go_on(cloud.bucket, cloud.provider, cloud.ssh, plan)
    cloud.ssh.user = "somebody"
    with pytest.raises(StateError, match=f"started in part by .* from {runs.submitter()}"):
        go_on(cloud.bucket, cloud.provider, cloud.ssh, plan)


NODE = node(TPU.name, id=TPU.id)
PAIR = msgspec.structs.replace(ATTEMPT, workers=(0, 1))


class Site:
    """A bucket in which `mine` is submitted while `other` may be."""

    def __init__(self) -> None:
        self.memory = MemoryBucket()
        self.mine = self.submit("mine")

    def submit(self, name: str) -> StoredRun:
        run = StoredRun(cast("Any", self.memory), name)
        run.create(Run(name, CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {}))
        return run

    def announce_other(self) -> StoredRun:
        other = self.submit("other")
        other.announce(PAIR)
        return other

    def take(self, number: int = 1) -> None:
        attempt = msgspec.structs.replace(PAIR, attempt=number)
        take_turn(self.mine, cast("Any", SimpleNamespace(node=NODE, attempt=attempt)))

    def is_refused(self, number: int = 1) -> bool:
        """Return whether the other one has the TPU; no announcement of `mine` is left then."""
        try:
            self.take(number)
        except StateError:
            pass
        else:
            assert self.announced(number) is not None
            return False
        assert self.announced(number) is None
        return True

    def announced(self, number: int = 1) -> bytes | None:
        return self.memory.get(NodePaths.of(NODE.id).run("mine", number))


@pytest.fixture
def site() -> Site:
    return Site()


def test_the_only_one_has_it(site: Site) -> None:
    assert not site.is_refused()
    assert not site.is_refused(2), "its own earlier attempt is no rival"


def test_who_has_it_is_named_to_the_other(site: Site) -> None:
    site.announce_other()
    with pytest.raises(StateError) as caught:
        site.take()
    assert caught.value.message == (
        f"{NODE.name} is busy with run 'other', which was submitted at the same moment."
    )
    assert caught.value.hint == "Wait in line with --queue, or wait first: tpuctl wait other"
    assert caught.value.facts == {"busy": ["other"]}


@pytest.mark.parametrize(("seconds", "is_refused"), [(0, True), (60, True), (61, False)])
def test_one_that_was_announced_before_has_it_for_a_minute_until_it_has_an_attempt(
    site: Site, seconds: float, is_refused: bool
) -> None:
    site.announce_other()
    site.memory.pass_time(seconds)
    assert site.is_refused() is is_refused
    assert (site.memory.get(site.mine.paths.record) is None) is is_refused


@pytest.mark.parametrize(("seconds", "is_refused"), [(61, True), (600, True), (601, False)])
def test_one_that_has_an_attempt_was_seen_by_who_looked_ten_minutes_later(
    site: Site, seconds: float, is_refused: bool
) -> None:
    site.announce_other().create_attempt(PAIR)
    site.memory.pass_time(seconds)
    assert site.is_refused() is is_refused


@pytest.mark.parametrize(("ended", "is_refused"), [((), True), ((0,), True), ((0, 1), False)])
def test_one_whose_workers_have_all_ended_has_it_no_more(
    site: Site, ended: tuple[int, ...], is_refused: bool
) -> None:
    other = site.announce_other()
    other.create_attempt(PAIR)
    for worker in ended:
        status = replace(STATUS, worker=worker, state=FINISHED)
        site.memory.put(other.paths.status(1, worker), encode(status))
    assert site.is_refused() is is_refused


def test_one_that_has_a_verdict_has_it_no_more(site: Site) -> None:
    site.announce_other().end(Verdict("other", runs.STOPPED, 1, CREATED, "so", basis=BY_MACHINE))
    assert not site.is_refused()


def test_one_that_is_announced_later_waits(site: Site) -> None:
    site.take()
    site.announce_other()
    assert not site.is_refused()


def test_what_is_no_announcement_does_not_count(site: Site) -> None:
    site.memory.put(f"{NodePaths.of(NODE.id).runs}strange", b"{}")
    assert not site.is_refused()


def test_the_record_of_a_run_that_has_attempts_stays(site: Site) -> None:
    site.announce_other()
    assert site.is_refused(2)
    assert site.memory.get(site.mine.paths.record) is not None


def test_a_run_on_slices_has_all_of_them_or_none(site: Site) -> None:
    """Each slice is taken in its order: who has lost one leaves nothing on those before."""
    slices = tuple(replace(TPU.id, name=f"ms-{number}", uid=str(number)) for number in range(2))
    whole = replace(TPU.id, name="ms", uid="0", slices=slices, slice_hosts=1)
    tpu = msgspec.structs.replace(
        TPU, name="ms", uid="0", hosts=2, slices=tuple(Slice(part.name, part.uid) for part in slices)
    )
    assert tpu.id == whole
    attempt = msgspec.structs.replace(PAIR, tpu=tpu)
    plan = cast("Any", SimpleNamespace(node=replace(NODE, id=whole, slices=(NODE, NODE)), attempt=attempt))

    def announced() -> list[bool]:
        return [site.memory.get(NodePaths.of(part).run("mine", 1)) is not None for part in slices]

    other = site.submit("other")
    other.announce(attempt, slices[1])
    with pytest.raises(StateError):
        take_turn(site.mine, plan)
    assert announced() == [False, False]
    other.withdraw(attempt)
    take_turn(site.mine, plan)
    assert announced() == [True, True]
