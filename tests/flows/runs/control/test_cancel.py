"""`cancel` on four hosts: all of them, by SSH and by the bucket alone, also where a host is down."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.passing_time import PassingTime
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, pass_time, write_run
from tests.running_simulator import CommandResult, RunningSimulator
from tests.sim.live_host import wait_until
from tpuctl import runs
from tpuctl.cloud import ssh
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.ssh.session import Pool
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import (
    ConfigError,
    DeadlineError,
    HostError,
    InterruptedByUser,
    NotFoundError,
    UsageError,
)
from tpuctl.flows.runs.control import cancel as flow
from tpuctl.flows.runs.control.cancel import Cancellation, CancelPlan, ask, plan_cancel
from tpuctl.flows.runs.evidence.decision import HostState, HostWord, NodeWord
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.state import RunState
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED, STOP_FILE, StopRequest, WorkerStatus, encode
from tpuctl.nodes import Node, NodeId, NodeState
from tpuctl.parallel import fanout, values
from tpuctl.polling import Backoff, poll
from tpuctl.runs import Attempt, Run
from tpuctl.sim.faults import grpc_fault

HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
SCRIPT = HEADER + "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"
ADA = "ada@example.com"


@pytest.mark.parametrize("is_of_the_run", [True, False])
def test_only_a_supervisor_of_the_run_is_killed(tmp_path: Path, is_of_the_run: bool) -> None:
    """The number of a supervisor that has ended may be another process's."""
    (tmp_path / "lock").touch()
    words = [".tpuctl/runs/r1/1/launch-7.json"] if is_of_the_run else []
    with subprocess.Popen(["sh", "-c", "read line", *words], stdin=subprocess.PIPE) as process:
        (tmp_path / "started").write_text(f"{process.pid} 0123456789abcdef")
        command = ["sh", "-c", flow.TELL + flow.KILL, "sh", str(tmp_path), ".tpuctl/runs/r1/"]
        assert subprocess.run(command, input=b"the request", check=False).returncode == 0
        assert (tmp_path / STOP_FILE).read_bytes() == b"the request"
        process.communicate(b"\n")
    assert process.returncode == (-9 if is_of_the_run else 0)


@pytest.fixture
def pod(tpuctl: Callable[..., CommandResult], simulator: RunningSimulator, cloud: Cloud) -> StoredRun:
    """A run whose script runs on every host of a v3-32."""
    assert tpuctl("up", "v3-32", "--name", "pod", "--framework", "jax", "--yes").code == 0
    Path("job.py").write_text(SCRIPT)
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    run = StoredRun(cloud.bucket, "r1")
    await_statuses(run, lambda status: bool(status.pid))
    return run


def await_statuses(run: StoredRun, condition: Callable[[WorkerStatus], bool]) -> list[WorkerStatus]:
    """Wait until every worker's status meets a condition, and return them."""

    def look() -> list[WorkerStatus] | None:
        statuses = [status for status in run.last_attempt().statuses() if status and condition(status)]
        return statuses if len(statuses) == len(run.last_attempt().record.workers) else None

    return poll(look, awaiting="the workers", timeout=60, backoff=Backoff(0.05, 0.2))


def cancel(cloud: Cloud, by: str = ADA, report: Callable[[str], None] = lambda text: None) -> Cancellation:
    witnesses = Witnesses(cloud.provider, lambda: cloud.ssh)
    plan = plan_cancel(cloud.bucket, witnesses, "r1", by, 5)
    return flow.cancel(cloud.provider, cloud.ssh, witnesses, plan, report)


def test_every_worker_ends_and_the_first_of_two_callers_is_named(cloud: Cloud, pod: StoredRun) -> None:
    both = values(fanout(lambda by: cancel(cloud, by), [ADA, "bob@example.com"]))
    verdicts = [ended.verdict for ended in both]
    assert verdicts[0] == verdicts[1] == pod.verdict()
    assert verdicts[0]
    assert (verdicts[0].outcome, verdicts[0].basis) == (runs.STOPPED, runs.BY_WORKERS)
    assert verdicts[0].stopped_by in (ADA, "bob@example.com")
    statuses = await_statuses(pod, lambda status: status.is_finished)
    assert {status.stopped_by for status in statuses} == {verdicts[0].stopped_by}
    assert {status.signal for status in statuses} == {"SIGTERM"}
    again = cancel(cloud, "carl@example.com")
    assert again.verdict == verdicts[0]


def test_two_requests_that_reach_a_host_at_once_stay_whole(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    command = ["sh", "-c", flow.TELL, "sh", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as first:
        assert first.stdin
        first.stdin.write(b"the first ")
        first.stdin.flush()
        wait_until(lambda: any(path.stat().st_size for path in tmp_path.iterdir()))
        subprocess.run(command, input=b"the second request", check=True)
        assert (tmp_path / STOP_FILE).read_bytes() == b"the second request"
        first.stdin.write(b"request")
        first.stdin.close()
        assert first.wait() == 0
    assert (tmp_path / STOP_FILE).read_bytes() == b"the first request"
    assert {path.name for path in tmp_path.iterdir()} == {"lock", STOP_FILE}


def test_the_bucket_alone_stops_it(cloud: Cloud, pod: StoredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NotFoundError("Nobody knows the way to its hosts.")

    monkeypatch.setattr(cloud.provider, "host_keys", refuse)
    lines = list[str]()
    verdict = cancel(cloud, report=lines.append).verdict
    assert verdict
    assert verdict.stopped_by == ADA
    assert "Nobody knows the way to its hosts. The workers read the request in the bucket." in lines


def test_a_host_that_is_down_is_named_and_the_others_are_stopped(
    cloud: Cloud, pod: StoredRun, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator.break_hosts("host-death", node="pod", worker="2")
    monkeypatch.setattr(flow, "REACTION", 10.0)
    lines = list[str]()
    with pytest.raises(DeadlineError, match="Worker 2 of run 'r1' has not said within 15 s") as failed:
        cancel(cloud, report=lines.append)
    assert "tpuctl down pod" in failed.value.hint
    (unreached,) = [
        line for line in lines if line.endswith("If it runs, it reads the request in the bucket.")
    ]
    assert "worker 2" in unreached
    statuses = pod.last_attempt().statuses()
    assert [bool(status and status.stopped_by) for status in statuses] == [True, True, False, True]
    verdict = pod.verdict()
    assert verdict is None or verdict.silent == (2,), "its script may go on"
    simulator.heal_hosts()


class Ready(Witnesses):
    """The provider says that the node is READY; nobody answers for the hosts but who is in `answers`."""

    answers: ClassVar[dict[int, HostWord]] = {}

    def node(self, bucket: Bucket, node: NodeId) -> NodeWord:
        return NodeWord(NodeState.READY)

    def hosts(self, run: str, attempt: Attempt, workers: Sequence[int]) -> dict[int, HostWord]:
        return {worker: self.answers[worker] for worker in workers if worker in self.answers}


class TestSilence:
    @pytest.fixture
    def run(self, cloud: Cloud) -> StoredRun:
        """A run of which workers 0 to 2 were stopped 40 s ago; worker 3 has been silent for as long."""
        run = write_run(cloud.bucket)
        ask(run, ADA, 5)
        for worker in range(4):
            self.write(run, worker, has_ended=worker < 3)
        pass_time(cloud.bucket, 40)
        return run

    def write(self, run: StoredRun, worker: int, *, has_ended: bool) -> None:
        ended = {"state": FINISHED, "exit_code": 143, "stopped_by": ADA} if has_ended else {}
        status = replace(STATUS, worker=worker, **ended)  # type: ignore[arg-type]
        run.bucket.upload(run.paths.status(1, worker), [encode(status)], "application/json")

    def test_a_worker_that_was_silent_for_a_moment_is_waited_for(self, cloud: Cloud, run: StoredRun) -> None:
        witnesses, pauses = Ready(cloud.provider), list[float]()

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            self.write(run, 3, has_ended=True)

        plan = CancelPlan(run, None, run.last_attempt(), ADA, 5)
        ended = flow.cancel(cloud.provider, cloud.ssh, witnesses, plan, lambda text: None, sleep)
        assert ended.verdict.stopped_by == ADA
        assert (len(pauses), all(status and status.is_finished for status in ended.statuses)) == (1, True)

    def test_one_whose_host_says_that_nothing_runs_is_not(
        self, cloud: Cloud, run: StoredRun, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Ready, "answers", {3: HostWord(HostState.GONE)})
        plan, witnesses = CancelPlan(run, None, run.last_attempt(), ADA, 5), Ready(cloud.provider)
        ended = flow.cancel(cloud.provider, cloud.ssh, witnesses, plan, lambda text: None, pytest.fail)
        assert (ended.verdict.outcome, ended.verdict.stopped_by) == (runs.STOPPED, ADA)


class TestRecord:
    @pytest.fixture
    def run(self, cloud: Cloud) -> StoredRun:
        """A run that was not started."""
        run = StoredRun(cloud.bucket, "r1")
        run.create(Run("r1", CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {}))
        return run

    def test_a_run_that_was_not_started_will_not_start(self, cloud: Cloud, run: StoredRun) -> None:
        verdict = cancel(cloud).verdict
        assert verdict
        assert (verdict.outcome, verdict.evidence) == (
            runs.STOPPED,
            f"stopped by {ADA} before it had started",
        )
        assert run.verdict() == cancel(cloud).verdict == verdict
        assert settle(run, Witnesses(cloud.provider)).verdict == verdict
        request = runs.decode(cloud.bucket.read(run.paths.stop), StopRequest, run.paths.stop)
        assert (request.run, request.by, request.grace) == ("r1", ADA, 5)

    @pytest.mark.parametrize("data", [b"{}", b"\xff", b"x" * 5000, b'{"schema": 1, "run": "r2"}'])
    def test_what_is_no_request_is_replaced(self, cloud: Cloud, run: StoredRun, data: bytes) -> None:
        cloud.bucket.upload(run.paths.stop, [data], "application/json")
        cancel(cloud)
        assert runs.decode(cloud.bucket.read(run.paths.stop), StopRequest, run.paths.stop).by == ADA

    def test_the_request_of_another_is_kept(self, cloud: Cloud, run: StoredRun) -> None:
        assert ask(run, ADA, 5) == ask(run, "bob", 7)

    def test_a_run_that_nobody_knows_is_not_asked(self, cloud: Cloud) -> None:
        with pytest.raises(NotFoundError, match="There is no run 'r1'"):
            cancel(cloud)
        assert cloud.bucket.objects("") == []

    def test_a_grace_that_is_too_long_is_refused(self, cloud: Cloud, run: StoredRun) -> None:
        with pytest.raises(UsageError, match="at most 3600 seconds"):
            plan_cancel(cloud.bucket, Witnesses(cloud.provider), "r1", ADA, 3601)

    def test_a_bucket_that_refuses_is_the_error_where_no_host_is_reached(
        self, cloud: Cloud, run: StoredRun, simulator: RunningSimulator
    ) -> None:
        run.create_attempt(ATTEMPT)
        simulator.faults.add(grpc_fault("storage.objects.create", 7, "denied", resource="*/stop.json"))
        with pytest.raises(ConfigError):
            cancel(cloud)


def refuse(*_: object) -> None:
    raise ConfigError("No permission.", hint="Ask an owner.")


class Hosts:
    """Hosts that answer a request as they are told to: an exit code, with stderr, or no connection."""

    user = "ada"

    def __init__(self, **answers: object) -> None:
        self.answers = {int(worker.removeprefix("w")): answer for worker, answer in answers.items()}
        self.told: dict[int, tuple[str, bytes]] = {}

    def pool(self, node: Node, host_key: Callable[[int], str]) -> Pool:
        return Pool(lambda worker: self.connect(worker, host_key(worker)))  # type: ignore[arg-type]

    @contextmanager
    def connect(self, worker: int, host_key: str) -> Iterator[SimpleNamespace]:
        answer = self.answers.get(worker, (0, ""))
        if isinstance(answer, HostError):
            raise answer

        def run(argv: Sequence[str], timeout: float, data: bytes) -> ssh.CommandResult:
            assert timeout == 20.0, "the bucket tells it, too"
            self.told[worker] = argv[4], data
            code, stderr = cast("tuple[int, str]", answer)
            return ssh.CommandResult(code, "", stderr)

        yield SimpleNamespace(run=run, is_open=True)


class TestHosts:
    """What is said of hosts that could not be told; the bucket is in memory."""

    @pytest.fixture
    def run(self) -> StoredRun:
        run = StoredRun(cast("Bucket", MemoryBucket()), "r1")
        run.create(Run("r1", CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {}))
        run.create_attempt(msgspec.structs.replace(ATTEMPT, login="ada"))
        return run

    def cancel(self, run: StoredRun, hosts: Hosts, *, is_over: bool = True) -> tuple[Cancellation, list[str]]:
        """Cancel the run, whose workers end in the first pause; return that and what was said."""
        return self.cancelled(run, hosts, CancelPlan(run, None, run.last_attempt(), ADA, 5))

    def cancelled(self, run: StoredRun, hosts: Hosts, plan: CancelPlan) -> tuple[Cancellation, list[str]]:
        lines: list[str] = []
        tpu = ATTEMPT.tpu
        there = node(tpu.name, id=NodeId("memory", "p", tpu.zone, tpu.name, tpu.uid), addresses=("a",) * 4)
        provider = MemoryProvider(there)

        def sleep(seconds: float) -> None:
            for worker in range(4):
                status = replace(STATUS, worker=worker, state=FINISHED, exit_code=143, stopped_by=ADA)
                cast("MemoryBucket", run.bucket).put(run.paths.status(1, worker), encode(status))

        witnesses = Ready(provider)
        ended = flow.cancel(provider, cast("Any", hosts), witnesses, plan, lines.append, sleep)
        return ended, lines

    def test_each_gets_the_request_and_its_end_is_said(self, run: StoredRun) -> None:
        hosts = Hosts()
        ended, lines = self.cancel(run, hosts)
        assert lines == ["asked run 'r1' to stop, with 5 s to save", "workers 0-3 have ended"]
        stored = run.bucket.read(run.paths.stop)
        assert hosts.told == dict.fromkeys(range(4), (".tpuctl/runs/r1/1", stored))
        assert (ended.verdict.outcome, ended.verdict.stopped_by) == (runs.STOPPED, ADA)
        assert [status and status.stopped_by for status in ended.statuses] == [ADA] * 4

    @pytest.mark.parametrize(
        ("hosts", "note"),
        [
            (Hosts(w2=(94, "")),
             "worker 2 has no files of the run. If it runs, it reads the request in the bucket."),
            (Hosts(w1=(94, ""), w3=(94, "")),
             "workers 1, 3 have no files of the run. If they run, they read the request in the bucket."),
            (Hosts(w2=(1, "a\nsh: no space\n")),
             "worker 2: sh: no space. If it runs, it reads the request in the bucket."),
            (Hosts(w0=(255, "")), "worker 0: no answer. If it runs, it reads the request in the bucket."),
            (Hosts(w1=HostError("worker 1: No route."), w2=HostError("worker 2: No route.")),
             "worker 1: No route. Nor was worker 2 reached."
             " If they run, they read the request in the bucket."),
            (Hosts(w0=HostError("worker 0: No route."), w1=(7, ""), w3=(7, "")),
             "worker 0: No route. Nor were workers 1, 3 reached."
             " If they run, they read the request in the bucket."),
        ],
    )  # fmt: skip
    def test_one_that_was_not_told_is_named_with_the_reason(
        self, run: StoredRun, hosts: Hosts, note: str
    ) -> None:
        assert self.cancel(run, hosts)[1][1] == note

    def test_none_of_which_has_the_run_end_it_before_its_start(self, run: StoredRun) -> None:
        ended, lines = self.cancel(run, Hosts(w0=(94, ""), w1=(94, ""), w2=(94, ""), w3=(94, "")))
        assert lines[1].startswith("workers 0-3 have no files of the run.")
        verdict = ended.verdict
        assert verdict.evidence == f"stopped by {ADA} before it had started"
        assert (verdict.attempt, verdict.silent, verdict.tpu, verdict.basis) == (
            1, (0, 1, 2, 3), ATTEMPT.tpu, runs.BY_MACHINE,
        )  # fmt: skip
        assert (verdict.stopped_by, verdict.begun) == (ADA, "")

    def test_of_another_login_that_have_no_files_say_nothing_of_the_run(self, run: StoredRun) -> None:
        hosts = Hosts(w0=(94, ""), w1=(94, ""), w2=(94, ""), w3=(94, ""))
        hosts.user = "bob"
        ended, lines = self.cancel(run, hosts)
        assert lines[-1] == "workers 0-3 have ended"
        assert ended.verdict.basis == runs.BY_WORKERS

    @pytest.mark.parametrize(
        ("hosts", "note"),
        [
            (Hosts(), ""),
            (Hosts(w2=(94, "")), "worker 2 has no files of the run. It was not asked to stop."),
            (Hosts(w1=HostError("worker 1: No route."), w2=(7, "")),
             "worker 1: No route. Nor was worker 2 reached. They were not asked to stop."),
        ],
    )  # fmt: skip
    def test_are_asked_where_the_bucket_is_not_and_its_error_comes_last(
        self, run: StoredRun, hosts: Hosts, note: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(flow, "ask", refuse)
        ended, lines = self.cancel(run, hosts)
        assert lines == [
            *filter(None, [note]), "asked run 'r1' on its hosts to stop, with 5 s to save",
            "workers 0-3 have ended", "The bucket did not take the request: No permission. Ask an owner.",
        ]  # fmt: skip
        assert ended.verdict.stopped_by == ADA

    @pytest.mark.parametrize("answer", [(94, ""), (1, ""), HostError("No route.")])
    def test_none_of_which_was_asked_leave_the_error_of_the_bucket(
        self, run: StoredRun, answer: object, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(flow, "ask", refuse)
        with pytest.raises(ConfigError, match="No permission"):
            self.cancel(run, Hosts(**{f"w{worker}": answer for worker in range(4)}))
        assert run.verdict() is None

    @pytest.mark.parametrize(("is_forced", "state"), [(True, HostState.ALIVE), (False, HostState.ALIVE),
                                                      (True, HostState.GONE)])  # fmt: skip
    def test_on_which_a_run_that_has_ended_hangs_are_told_by_force_alone(
        self, run: StoredRun, monkeypatch: pytest.MonkeyPatch, is_forced: bool, state: HostState
    ) -> None:
        """One worker failed, which ended the others, but for one whose program hangs."""
        for worker in range(4):
            ended = {"state": FINISHED, "exit_code": 3} if worker < 3 else {}
            status = replace(STATUS, worker=worker, **ended)  # type: ignore[arg-type]
            cast("MemoryBucket", run.bucket).put(run.paths.status(1, worker), encode(status))
        monkeypatch.setattr(Ready, "answers", {3: HostWord(state)})
        verdict = settle(run, Ready(MemoryProvider())).verdict
        assert verdict
        assert verdict.outcome == runs.FAILED
        hosts = Hosts()
        plan = CancelPlan(run, RunState(verdict), run.last_attempt(), ADA, 5, is_forced)
        assert self.cancelled(run, hosts, plan)[0].verdict == verdict
        is_told = is_forced and state is HostState.ALIVE
        assert sorted(hosts.told) == (list(range(4)) if is_told else [])
        assert run.stop_request() is None

    def test_that_do_not_end_in_time_are_named(self, run: StoredRun, passing_time: PassingTime) -> None:
        for worker in range(4):
            state = {"state": FINISHED, "exit_code": 143, "stopped_by": ADA} if worker == 3 else {}
            status = replace(STATUS, worker=worker, **state)  # type: ignore[arg-type]
            cast("MemoryBucket", run.bucket).put(run.paths.status(1, worker), encode(status))
        there = node(ATTEMPT.tpu.name, id=ATTEMPT.tpu.id, addresses=("a",) * 4)
        provider = MemoryProvider(there)
        plan = CancelPlan(run, None, run.last_attempt(), ADA, 5)
        with pytest.raises(DeadlineError) as late:
            flow.cancel(
                provider, cast("Any", Hosts()), Ready(provider), plan, lambda text: None, passing_time.sleep
            )
        assert late.value.message == (
            "Workers 0-2 of run 'r1' have not said within 65 s that the script ended."
        )
        assert late.value.hint == (
            "Ask again: tpuctl cancel r1\nKill what runs the script: tpuctl cancel r1 --force\n"
            "What is wrong: tpuctl why n1\nEnd whatever runs there: tpuctl down n1"
        )
        assert late.value.facts["workers"] == [0, 1, 2]
        assert (passing_time.pauses[0], max(passing_time.pauses)) == (0.3, 1.0)

    def in_an_outage(
        self, run: StoredRun, passing_time: PassingTime, *, pauses: int
    ) -> tuple[Cancellation, list[str]]:
        """Cancel the run while the bucket does not answer for some pauses; its workers end meanwhile."""
        lines, memory = list[str](), cast("MemoryBucket", run.bucket)

        def fail() -> None:
            raise DeadlineError("No answer about gs://b in time.")

        def sleep(seconds: float) -> None:
            nonlocal pauses
            passing_time.sleep(seconds)
            pauses -= 1
            memory.meanwhile = fail if pauses > 0 else lambda: None
            for worker in range(4):
                status = replace(STATUS, worker=worker, state=FINISHED, exit_code=143, stopped_by=ADA)
                memory.put(run.paths.status(1, worker), encode(status))

        there = node(ATTEMPT.tpu.name, id=ATTEMPT.tpu.id, addresses=("a",) * 4)
        provider, plan = MemoryProvider(there), CancelPlan(run, None, run.last_attempt(), ADA, 5)
        witnesses = Ready(provider)
        return flow.cancel(provider, cast("Any", Hosts()), witnesses, plan, lines.append, sleep), lines

    def test_an_outage_of_the_bucket_is_waited_for_and_told_once(
        self, run: StoredRun, passing_time: PassingTime
    ) -> None:
        ended, lines = self.in_an_outage(run, passing_time, pauses=5)
        assert (ended.verdict.outcome, ended.verdict.stopped_by) == (runs.STOPPED, ADA)
        assert lines[1:] == ["No answer about gs://b in time. Still waiting.", "workers 0-3 have ended"]

    def test_a_bucket_that_never_answers_says_nothing_of_the_workers(
        self, run: StoredRun, passing_time: PassingTime
    ) -> None:
        with pytest.raises(DeadlineError) as late:
            self.in_an_outage(run, passing_time, pauses=1000)
        assert late.value.message == (
            "Run 'r1' was asked to stop, but whether it has ended is unknown: No answer about gs://b in time."
        )
        assert late.value.hint == "Ask again: tpuctl cancel r1"

    def test_ctrl_c_says_that_it_ends_all_the_same(self, run: StoredRun) -> None:
        class Interrupting(Hosts):
            def pool(self, node: Node, host_key: Callable[[int], str]) -> Pool:
                raise KeyboardInterrupt

        with pytest.raises(InterruptedByUser) as interrupted:
            self.cancel(run, Interrupting())
        assert interrupted.value.message == (
            "Interrupted; if run 'r1' was asked to stop, it ends all the same."
        )
        assert interrupted.value.hint == "See how it ends: tpuctl wait r1"


class TestPlan:
    @pytest.fixture
    def run(self) -> StoredRun:
        run = StoredRun(cast("Bucket", MemoryBucket()), "r1")
        run.create(Run("r1", CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {}))
        return run

    def plan(self, run: StoredRun, grace: int = 30, **options: bool) -> CancelPlan:
        return plan_cancel(run.bucket, Ready(MemoryProvider()), "r1", ADA, grace, **options)

    @pytest.mark.parametrize(("grace", "is_valid"), [(0, True), (3600, True), (-1, False), (3601, False)])
    def test_the_grace_is_up_to_an_hour(self, run: StoredRun, grace: int, is_valid: bool) -> None:
        if is_valid:
            assert self.plan(run, grace).grace == grace
            return
        with pytest.raises(UsageError) as refused:
            self.plan(run, grace)
        assert refused.value.message == "The grace is at most 3600 seconds."
        assert refused.value.hint == "Leave --grace out for 30s."

    def test_a_run_that_was_not_started_has_no_attempt(self, run: StoredRun) -> None:
        plan = self.plan(run)
        assert (plan.state, plan.attempt, plan.verdict, plan.is_over) == (None, None, None, False)

    @pytest.mark.parametrize("restarts", [True, False])
    def test_one_that_is_to_be_started_again_is_not_over(self, run: StoredRun, restarts: bool) -> None:
        run.create_attempt(ATTEMPT)
        run.end(runs.Verdict("r1", runs.LOST, 1, CREATED, "so", basis=runs.BY_WORKERS, restarts=restarts))
        plan = self.plan(run)
        assert (plan.verdict is not None, plan.is_over) == (True, not restarts)
        ended = flow.cancel(
            MemoryProvider(), cast("Any", Hosts()), Ready(MemoryProvider()), plan, lambda text: None
        )
        assert ended.verdict == plan.verdict
        assert (run.stop_request() is not None) is restarts

    def test_a_rehearsal_writes_no_verdict(self, run: StoredRun) -> None:
        run.create_attempt(ATTEMPT)
        for worker in range(4):
            status = replace(STATUS, worker=worker, state=FINISHED, exit_code=0)
            cast("MemoryBucket", run.bucket).put(run.paths.status(1, worker), encode(status))
        assert self.plan(run, is_rehearsal=True).verdict is None
        assert run.verdict() is None
        assert self.plan(run).is_over
