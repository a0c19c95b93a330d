"""A submission that is killed at any moment goes on: one record, one attempt, each worker once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.runs.submission.test_submit import HEADER, owner, request_of_four
from tpuctl import clock, runs
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.ssh import SshSession
from tpuctl.errors import ConflictError, StateError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch
from tpuctl.flows.runs.submission.continuation import go_on
from tpuctl.flows.runs.submission.plan import SubmitPlan, SubmitRequest, plan_submit
from tpuctl.parallel import fanout
from tpuctl.polling import Backoff, poll
from tpuctl.worker.records import RUNNING, Spec, WorkerStatus

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


def test_a_launch_that_was_killed_between_workers_goes_on(
    cloud: Cloud, request_of_four: SubmitRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = launch.launch

    def kill_before_the_last_two(session: SshSession, program: bytes, spec: Spec) -> int:
        if spec.worker > 1:
            raise Killed
        return original(session, program, spec)

    monkeypatch.setattr(launch, "launch", kill_before_the_last_two)
    with pytest.raises(Killed):
        submit(cloud, request_of_four)
    monkeypatch.setattr(launch, "launch", original)
    submit(cloud, request_of_four)
    before = all_running(cloud)
    submit(cloud, request_of_four)
    assert [status.supervisor for status in all_running(cloud)] == [item.supervisor for item in before]
    assert StoredRun(cloud.bucket, "r1").attempt_numbers() == [1]


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
