"""The writes of a submission, and one that fails in the middle: it has a verdict, nothing keeps running."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from msgspec.structs import replace as replace_record

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import clock, runs
from tpuctl.client.runs.busy import in_line
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.ssh import CommandResult as Answer
from tpuctl.cloud.ssh import SshSession
from tpuctl.config import load
from tpuctl.errors import (
    ConfigError,
    ConflictError,
    HostError,
    InterruptedByUser,
    PreemptedError,
    StateError,
    TpuctlError,
)
from tpuctl.flows.runs.control import cancel
from tpuctl.flows.runs.control.cancel import await_end
from tpuctl.flows.runs.evidence import decision
from tpuctl.flows.runs.evidence.decision import NodeWord
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch
from tpuctl.flows.runs.submission import submit as submission
from tpuctl.flows.runs.submission.plan import SubmitRequest, plan_submit
from tpuctl.flows.runs.submission.submit import requests, submit
from tpuctl.host.worker.records import WorkerStatus
from tpuctl.nodes import NodeState
from tpuctl.object_content import Content
from tpuctl.parallel import fanout
from tpuctl.polling import NO_PAUSE, Backoff, poll
from tpuctl.sim.faults import grpc_fault

HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'


@pytest.fixture
def request_of_four(tpuctl: Callable[..., CommandResult], simulator: RunningSimulator) -> SubmitRequest:
    """A script for every host of a READY v3-32."""
    assert tpuctl("up", "v3-32", "--name", "pod", "--framework", "jax", "--yes").code == 0
    script = Path("job.py")
    script.write_text(HEADER + "import time\ntime.sleep(600)\n")
    return SubmitRequest(script, name="r1")


@pytest.fixture
def request_of_one(node: str) -> SubmitRequest:
    """A script for the host of a READY v3-8."""
    script = Path("job.py")
    script.write_text(HEADER + "import time\ntime.sleep(600)\n")
    return SubmitRequest(script, name="r1")


def owner() -> str:
    """The account whose nodes a command uses."""
    return load({}).require("owner")


def submit_all(cloud: Cloud, request: SubmitRequest) -> None:
    """Submit a run that waits for those before it: a host on which another works starts no other."""
    plan = plan_submit(cloud.data_bucket, cloud.provider, owner(), request, clock.now())
    submit(cloud.bucket, cloud.provider, cloud.ssh, in_line(plan))


def written_names(cloud: Cloud, request: SubmitRequest) -> list[str]:
    """The objects that a dry run shows."""
    plan = plan_submit(cloud.data_bucket, cloud.provider, owner(), request, clock.now())
    shown = requests(cloud.bucket, plan)
    return [shown_request.body["name"] for shown_request in shown if isinstance(shown_request.body, dict)]


def test_a_dry_run_shows_the_objects_that_are_written(cloud: Cloud, request_of_four: SubmitRequest) -> None:
    names = written_names(cloud, request_of_four)
    assert cloud.bucket.objects("") == []
    submit_all(cloud, request_of_four)
    stored = {listed.name for listed in cloud.bucket.objects("")}
    assert set(names) == {name for name in stored if "/workers/" not in name and "/barrier/" not in name}
    assert [name.split("/")[0] for name in names] == ["bundles", "runs", "nodes", "runs"]
    again = written_names(cloud, replace(request_of_four, name="r2"))
    record, note, attempt = again  # the bundle is stored already
    assert (record, attempt) == ("runs/r2/run.json", "runs/r2/attempts/1/attempt.json")
    assert note.startswith("nodes/sim-project.europe-west4-a.pod.")
    assert note.endswith("/runs/r2/1.json")


def assert_failed(cloud: Cloud, error: TpuctlError) -> None:
    verdict = StoredRun(cloud.bucket, "r1").verdict()
    assert verdict
    assert verdict.outcome == runs.FAILED
    assert verdict.evidence == f"it could not be started: {error.message}"


def test_an_attempt_that_cannot_be_written_ends_the_run(
    cloud: Cloud, simulator: RunningSimulator, request_of_four: SubmitRequest
) -> None:
    simulator.faults.add(grpc_fault("storage.objects.create", 7, "denied", resource="*/attempt.json"))
    with pytest.raises(ConfigError) as failed:
        submit_all(cloud, request_of_four)
    assert_failed(cloud, failed.value)


def test_a_worker_that_cannot_start_ends_the_run_and_stops_the_others(
    cloud: Cloud, simulator: RunningSimulator, request_of_four: SubmitRequest
) -> None:
    home = next(Path(simulator.folder, "hosts").glob("*/w1/home"))
    (home / ".tpuctl").write_text("in the way")
    with pytest.raises(HostError, match="Worker 1 cannot make") as failed:
        submit_all(cloud, request_of_four)
    assert_failed(cloud, failed.value)
    attempt = StoredRun(cloud.bucket, "r1").last_attempt()

    def stopped() -> list[WorkerStatus] | None:
        statuses = [status for status in attempt.statuses() if status and status.is_finished]
        return statuses if len(statuses) == 3 else None

    statuses = poll(stopped, awaiting="three workers to stop", timeout=60, backoff=Backoff(0.05))
    assert [status.worker for status in statuses] == [0, 2, 3]
    signalled = [status.worker for status in statuses if status.stopped == "SIGTERM"]
    assert signalled
    assert all(status.peer in signalled for status in statuses if not status.stopped), "they end together"
    assert {status.pid for status in statuses} == {0}


@pytest.mark.parametrize("is_reached", [True, False])
def test_a_worker_whose_answer_was_lost_does_not_run_on(
    cloud: Cloud, request_of_one: SubmitRequest, monkeypatch: pytest.MonkeyPatch, is_reached: bool
) -> None:
    """The connection is lost once the worker has started; with it, maybe, the way to its host."""
    answer, lost = SshSession.run, list[str]()

    def lose(session: SshSession, argv: Sequence[str], *rest: Any) -> Answer:
        if launch.STOP in argv and not is_reached:
            raise HostError("worker 0: No route to host.")
        result = answer(session, argv, *rest)
        if launch.START in argv:
            lost.append(result.stdout)
            raise HostError("worker 0: the connection was lost.")
        return result

    monkeypatch.setattr(SshSession, "run", lose)
    monkeypatch.setattr(decision, "NODE_STATE_DELAY", 0.0)
    asked = list[tuple[str, int]]()
    monkeypatch.setattr(cancel, "ask", lambda run, by, grace: asked.append((by, grace)))
    with pytest.raises(HostError, match="the connection was lost") as failed:
        submit_all(cloud, request_of_one)
    assert "pid" in lost[0]
    assert_failed(cloud, failed.value)
    run = StoredRun(cloud.bucket, "r1")
    assert asked == [(runs.submitter(), 0)], "one that is not reached reads this with its next heartbeat"

    def stopped() -> WorkerStatus | None:
        (status,) = run.last_attempt().statuses()
        return status if status and status.is_finished else None

    if is_reached:
        status = poll(stopped, awaiting="the end of what had started", timeout=60, backoff=Backoff(0.05))
        assert status.stopped == "SIGTERM"


def test_the_node_says_why_its_hosts_do_not_answer(
    cloud: Cloud, request_of_one: SubmitRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preemption was told as a failure. The provider may say so seconds after the hosts have gone."""
    said = list[NodeState]()

    def node(*_: object) -> NodeWord:
        return NodeWord(said.pop(0) if len(said) > 1 else said[0])

    def lose(*_: object) -> None:
        raise HostError("worker 0: the connection was lost.")

    monkeypatch.setattr(Witnesses, "node", node)
    monkeypatch.setattr(SshSession, "run", lose)
    monkeypatch.setattr(submission, "LOOKS", NO_PAUSE)
    asked = list[str]()
    monkeypatch.setattr(cancel, "ask", lambda run, by, grace: asked.append(run.name))
    for state, outcome, kind, exit_code in (
        (NodeState.PREEMPTED, runs.PREEMPTED, PreemptedError, 7),
        (NodeState.GONE, runs.STOPPED, StateError, 4),
        (NodeState.REPAIRING, runs.MAINTENANCE, StateError, 4), (NodeState.READY, runs.FAILED, HostError, 8),
    ):  # fmt: skip
        name = outcome
        said[:] = [NodeState.READY, NodeState.UNKNOWN, state]
        if state is NodeState.READY:
            monkeypatch.setattr(decision, "NODE_STATE_DELAY", 0.0)
        with pytest.raises(kind, match="the connection was lost") as failed:
            submit_all(cloud, replace(request_of_one, name=name))
        assert failed.value.exit_code == exit_code, state
        verdict = StoredRun(cloud.bucket, name).verdict()
        assert verdict
        assert (verdict.outcome, verdict.basis, verdict.begun) == (outcome, runs.BY_MACHINE, "")
        assert verdict.evidence.endswith("it could not be started: worker 0: the connection was lost.")
    assert asked == [runs.FAILED], "else nothing can run any more, and a request would keep it from a restart"


def test_nothing_is_written_before_everything_is_read(
    cloud: Cloud, simulator: RunningSimulator, request_of_four: SubmitRequest
) -> None:
    simulator.faults.add(grpc_fault("GetGuestAttributes", 7, "denied"))
    with pytest.raises(ConfigError):
        submit_all(cloud, request_of_four)
    assert cloud.bucket.objects("") == []


def test_of_two_equal_submits_at_once_one_owns_the_name_and_the_other_harms_nothing(
    cloud: Cloud, simulator: RunningSimulator, request_of_four: SubmitRequest
) -> None:
    """Both look before either writes, and their records differ in nothing that a user sees."""
    plan = plan_submit(cloud.data_bucket, cloud.provider, owner(), request_of_four, clock.now())
    results = fanout(lambda _: submit(cloud.bucket, cloud.provider, cloud.ssh, plan), range(2))
    assert sorted(type(result.error) for result in results if result.error) == [ConflictError]
    run = StoredRun(cloud.bucket, "r1")
    assert run.verdict() is None
    assert run.record.token
    assert len(run.last_attempt().record.token) == len(run.record.token) == 32
    assert [status and status.is_finished for status in run.last_attempt().statuses()] == [False] * 4
    with pytest.raises(ConflictError, match="There is a run 'r1' already"):
        submit(cloud.bucket, cloud.provider, cloud.ssh, plan)
    assert StoredRun(cloud.bucket, "r1").verdict() is None


def test_names_that_nobody_chose_do_not_collide(cloud: Cloud, request_of_four: SubmitRequest) -> None:
    unnamed = replace(request_of_four, name=None)
    plan = plan_submit(cloud.data_bucket, cloud.provider, owner(), unnamed, clock.now())
    plan = in_line(plan)
    names = [submit(cloud.bucket, cloud.provider, cloud.ssh, plan).run.run for _ in range(2)]
    assert names == [plan.run.run, f"{plan.run.run}-2"]


def test_a_worker_without_a_host_key_is_named_before_anything_is_written(
    cloud: Cloud, request_of_four: SubmitRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command works later: the name is not taken."""
    plan = plan_submit(cloud.data_bucket, cloud.provider, owner(), request_of_four, clock.now())
    keys = cloud.provider.host_keys(plan.node.id)
    some = {worker: key for worker, key in keys.items() if worker != 2}
    with monkeypatch.context() as patch:
        patch.setattr(cloud.provider, "host_keys", lambda _: some)
        with pytest.raises(HostError, match="worker 2 of 'pod': it has published no host key"):
            submit(cloud.bucket, cloud.provider, cloud.ssh, plan)
    assert cloud.bucket.objects("") == []
    submit(cloud.bucket, cloud.provider, cloud.ssh, plan)


@pytest.fixture
def code(cloud: Cloud, request_of_four: SubmitRequest) -> str:
    """The name of the bundle of a run that was submitted."""
    submit_all(cloud, request_of_four)
    return cloud.bucket.objects("bundles/")[0].name


def other_bytes(data: bytes) -> list[bytes]:
    """Return other bytes, and some of the same size and checksum: any four bytes can correct a CRC."""
    forged = bytearray(data)
    forged[100] ^= 1
    difference = crc(bytes(forged)) ^ crc(data)
    basis = {}
    for bit in range(64):  # the change of the checksum is linear in the bits that are flipped
        flipped = bytearray(data)
        flipped[-1 - bit // 8] ^= 1 << bit % 8
        change, bits = crc(bytes(flipped)) ^ crc(data), 1 << bit
        for high in sorted(basis, reverse=True):
            if change >> high & 1:
                change, bits = change ^ basis[high][0], bits ^ basis[high][1]
        if change:
            basis[change.bit_length() - 1] = (change, bits)
    bits = 0
    for high in sorted(basis, reverse=True):
        if difference >> high & 1:
            difference, bits = difference ^ basis[high][0], bits ^ basis[high][1]
    for bit in range(64):
        forged[-1 - bit // 8] ^= (bits >> bit & 1) << bit % 8
    assert Content.of(bytes(forged)) == Content.of(data)
    return [b"other", data + b"x", bytes(forged)]


def crc(data: bytes) -> int:
    return int(google_crc32c.value(data))


@pytest.mark.parametrize("number", range(3), ids=["short", "long", "same size and checksum"])
def test_a_bundle_that_was_overwritten_is_written_again(
    cloud: Cloud, request_of_four: SubmitRequest, code: str, number: int
) -> None:
    data = cloud.bucket.read(code)
    cloud.bucket.upload(code, [other_bytes(data)[number]], "application/gzip")
    again = replace(request_of_four, name="r2")
    assert written_names(cloud, again)[0] == code
    plan = plan_submit(cloud.data_bucket, cloud.provider, owner(), again, clock.now())
    assert submit(cloud.bucket, cloud.provider, cloud.ssh, in_line(plan)).notes == (
        f"Warning: gs://{cloud.bucket.name}/{code} did not hold the code that it is named by. "
        "The code was written again.",
    )
    assert cloud.bucket.read(code) == data


def test_a_bundle_that_is_stored_already_is_not_written(
    cloud: Cloud, request_of_four: SubmitRequest, code: str
) -> None:
    before = cloud.bucket.objects(code)
    submit_all(cloud, replace(request_of_four, name="r2"))
    assert cloud.bucket.objects(code) == before


@pytest.mark.parametrize("moment", ["before the start", "while workers start"])
def test_ctrl_c_starts_nothing_that_goes_on(
    cloud: Cloud, request_of_four: SubmitRequest, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = launch.launch_all

    def interrupted(*arguments: Any, **options: Any) -> None:
        if moment == "while workers start":
            start(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "launch_all", interrupted)
    with pytest.raises(InterruptedByUser, match="Interrupted; run 'r1' is not started") as failed:
        submit_all(cloud, request_of_four)
    assert "tpuctl wait r1" in failed.value.hint
    run = StoredRun(cloud.bucket, "r1")
    assert cloud.bucket.stat(run.paths.stop)
    if moment == "while workers start":
        witnesses = Witnesses(cloud.provider, lambda: cloud.ssh)
        verdict = await_end(run, witnesses, 120, lambda text: None)
        assert (verdict.outcome, verdict.stopped_by) == (runs.STOPPED, runs.submitter())


def test_of_two_that_found_the_node_free_the_second_starts_nothing(
    cloud: Cloud, request_of_four: SubmitRequest
) -> None:
    plan = plan_submit(cloud.data_bucket, cloud.provider, owner(), request_of_four, clock.now())
    first = StoredRun(cloud.bucket, "first")
    first.create(replace_record(plan.run, run="first"))
    first.announce(plan.attempt)
    with pytest.raises(StateError, match="pod is busy with run 'first'"):
        submit(cloud.bucket, cloud.provider, cloud.ssh, replace(plan, takes_turn=True))
    assert [item.name for item in cloud.bucket.objects("runs/r1/")] == []
    submit(cloud.bucket, cloud.provider, cloud.ssh, plan)
    assert StoredRun(cloud.bucket, "r1").last_attempt().number == 1
