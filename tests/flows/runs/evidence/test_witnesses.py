"""What the record of a node's keeper says about its end.

What works of runs whose records are gone, as their statuses say.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node, queued_resource
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, TPU, write_run
from tpuctl import runs
from tpuctl.bucket_layout import NodePaths
from tpuctl.cloud.ssh import CommandResult
from tpuctl.cloud.ssh.session import Pool
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import DeadlineError, HostError, NotFoundError, StateError
from tpuctl.flows.runs import whole
from tpuctl.flows.runs.evidence.decision import LOST_AFTER, HostState, HostWord, NodeWord, WorkerWord
from tpuctl.flows.runs.evidence.witnesses import (
    QUESTION,
    RecordMissingError,
    Witnesses,
    record_preemptions,
    sign_of,
)
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.state import RECORD_MISSING
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.summaries import take_page
from tpuctl.flows.runs.upkeep.removal import ended_state
from tpuctl.host.worker.records import FINISHED, UNKNOWN, WorkerStatus, encode
from tpuctl.nodes import Node, NodeId, NodeState, PastChange, QueuedResourceId, QueueState
from tpuctl.runs import BY_MACHINE, Verdict

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh, SshSession


NODE = TPU.id
EXPIRED = "the node was deleted: its keeper recorded the end of its time to live (--ttl or --max-cost)"
IDLED = "the node was deleted: its keeper recorded that nobody used it for its --idle"


def recorded(*names: str) -> str:
    """Return what is said of records that were written in this order."""
    bucket = MemoryBucket()
    for name in names:
        bucket.put(NodePaths(NODE.project, NODE.zone, NODE.name, NODE.uid).keeper + name, b"{}")
    return Witnesses(MemoryProvider()).node(cast("Bucket", bucket), NODE).detail


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ((), ""),
        (("expired-2026-01-01T12:00:00Z.json",), EXPIRED),
        (("idle-2026-01-01T12:00:00Z.json",), IDLED),
        (("bored-2026-01-01T12:00:00Z.json",), ""),
        (("expired.json",), ""),
    ],
)
def test_the_reason_is_that_of_the_record(names: tuple[str, ...], sentence: str) -> None:
    assert recorded(*names) == sentence


def test_the_last_of_several_reasons_ended_it() -> None:
    """Each deletion that failed has left one."""
    idle, expired = "idle-2026-01-01T12:00:00Z.json", "expired-2026-01-02T12:00:00Z.json"
    assert recorded(idle, expired) == EXPIRED
    assert recorded(expired, idle) == IDLED
    assert recorded(idle, "bored-2026-01-03T12:00:00Z.json") == ""


@pytest.mark.parametrize("failures", [1, 30, 300])
def test_it_is_told_after_many_deletions_that_failed(failures: int) -> None:
    days = [f"idle-2026-{1 + day // 28:02}-{1 + day % 28:02}T12:00:00Z.json" for day in range(failures)]
    assert recorded(*days, "expired-2027-01-01T12:00:00Z.json") == EXPIRED
    assert recorded("expired-2025-01-01T12:00:00Z.json", *days) == IDLED
    extended = [day.replace("idle", "expired") for day in days]
    assert recorded(*extended, "idle-2027-01-01T12:00:00Z.json") == IDLED


def test_a_folder_that_somebody_has_filled_costs_one_page() -> None:
    bucket = MemoryBucket()
    most = []
    listing = bucket.objects

    def objects(prefix: str, **options: int) -> list[object]:
        most.append(options["most"])
        return [*listing(prefix, most=options["most"])]

    bucket.objects = objects  # type: ignore[assignment, method-assign]
    assert Witnesses(MemoryProvider()).node(cast("Bucket", bucket), NODE).detail == ""
    assert len(most) == 1
    assert most[0] <= 1000


def keeper_record(memory: MemoryBucket, name: str) -> Bucket:
    memory.put(NodePaths(NODE.project, NODE.zone, NODE.name, NODE.uid).keeper + name, b"{}")
    return cast("Bucket", memory)


def test_what_was_taken_back_before_it_was_deleted_was_preempted() -> None:
    """`reap` and `down` delete what is PREEMPTED, and nobody could tell afterwards."""
    bucket = cast("Bucket", MemoryBucket())
    assert Witnesses(MemoryProvider()).node(bucket, NODE).state is NodeState.GONE
    record_preemptions(bucket, [node(TPU.name, NodeState.PREEMPTED, id=NODE)], "2026-01-01T12:00:00Z")
    assert Witnesses(MemoryProvider()).node(bucket, NODE).state is NodeState.PREEMPTED


class TestNode:
    @pytest.mark.parametrize(
        ("state", "ending"), [(NodeState.READY, ""), (NodeState.STOPPED, ""), (NodeState.DELETING, EXPIRED)]
    )
    def test_its_state_is_the_providers_and_its_keeper_says_why_it_ends(
        self, state: NodeState, ending: str
    ) -> None:
        provider = MemoryProvider(node(TPU.name, state, id=NODE))
        bucket = keeper_record(MemoryBucket(), "expired-2026-01-01T12:00:00Z.json")
        assert Witnesses(provider).node(bucket, NODE) == NodeWord(state, ending)

    def test_one_that_is_gone_may_have_been_ended_by_its_keeper(self) -> None:
        bucket = keeper_record(MemoryBucket(), "idle-2026-01-01T12:00:00Z.json")
        assert Witnesses(MemoryProvider()).node(bucket, NODE) == NodeWord(NodeState.GONE, IDLED)

    def test_without_a_record_the_operations_say_whether_its_time_was_over(self) -> None:
        def of(uid: str) -> Node:
            return node(TPU.name, id=replace(NODE, uid=uid), metadata={"tpuctl-ttl": "3600s"})

        provider = MemoryProvider()
        bucket = cast("Bucket", MemoryBucket())
        for hour, uid in ((10, NODE.uid), (20, "another")):
            change = PastChange(NODE.zone, NODE.name, "create", f"2026-01-01T{hour}:00:00Z", node=of(uid))
            deletion = PastChange(NODE.zone, NODE.name, "delete", f"2026-01-01T{hour + 1}:00:00Z")
            provider.past_changes += [change, deletion]
        time_to_live = "its time to live (--ttl or --max-cost)"
        ended = f"the node was deleted at 2026-01-01T11:00:00Z, when {time_to_live} was over"
        assert Witnesses(provider).node(bucket, NODE) == NodeWord(NodeState.GONE, ended)
        provider.past_changes[1] = replace(provider.past_changes[1], began="2026-01-01T00:30:00Z")
        assert Witnesses(provider).node(bucket, NODE) == NodeWord(NodeState.GONE)

        def refuse(*_: object) -> None:
            raise DeadlineError("No answer.")

        provider.history = refuse  # type: ignore[assignment, method-assign]
        assert Witnesses(provider).node(bucket, NODE) == NodeWord(NodeState.GONE)

    @pytest.mark.parametrize(
        ("state", "initiator", "slices", "is_preempted"),
        [
            (QueueState.SUSPENDED, "SERVICE", (TPU.name, "other"), True),
            (QueueState.SUSPENDING, "SERVICE", (TPU.name, "other"), True),
            (QueueState.SUSPENDED, "USER", (TPU.name, "other"), False),
            (QueueState.SUSPENDED, "", (TPU.name, "other"), False),
            (QueueState.SUSPENDED, "SERVICE", ("another",), False),
            (QueueState.ACTIVE, "SERVICE", (TPU.name, "other"), False),
        ],
    )
    def test_one_that_is_gone_with_a_slice_that_was_preempted_was_preempted_too(
        self, state: QueueState, initiator: str, slices: Sequence[str], is_preempted: bool
    ) -> None:
        """The provider deletes the others: why is said by their queued resource alone."""
        provider = MemoryProvider()
        ids = tuple(replace(NODE, name=name, uid="") for name in slices)
        own = QueuedResourceId(NODE.provider, NODE.project, NODE.zone, "ms")
        provider.queue["ms"] = queued_resource(state, id=own, nodes=ids, initiator=initiator)
        word = Witnesses(provider).node(cast("Bucket", MemoryBucket()), NODE)
        said = f"another slice was preempted: queued resource 'ms' is {state}"
        expected = NodeWord(NodeState.PREEMPTED, said) if is_preempted else NodeWord(NodeState.GONE)
        assert word == expected

        def refuse(*_: object) -> None:
            raise DeadlineError("No answer.")

        provider.list_queued_resources = refuse  # type: ignore[assignment, method-assign]
        assert Witnesses(provider).node(cast("Bucket", MemoryBucket()), NODE) == NodeWord(NodeState.GONE)

    @pytest.mark.parametrize(
        ("change", "is_why"),
        [
            ({}, True),
            ({"ended": ""}, True),
            ({"began": "2026-01-01T12:00:25Z", "ended": "2026-01-01T12:02:00Z"}, True),
            ({"began": "2026-01-01T12:00:35Z", "ended": "2026-01-01T12:02:00Z"}, False),
            ({"ended": "2026-01-01T11:59:35Z"}, True),
            ({"ended": "2026-01-01T11:59:25Z"}, False),
            ({"verb": "stop"}, False),
            ({"node": node(TPU.name, id=NODE)}, True),
            ({"node": node(TPU.name, id=replace(NODE, uid="another"))}, False),
        ],
    )
    def test_a_maintenance_is_why_hosts_stopped_while_it_was_done(
        self, change: dict[str, Any], is_why: bool
    ) -> None:
        provider, noon = MemoryProvider(), datetime(2026, 1, 1, 12, tzinfo=UTC)
        began = "2026-01-01T11:59:00Z"
        past = PastChange(NODE.zone, NODE.name, "performMaintenance", began, "2026-01-01T12:01:00Z")
        provider.past_changes = [replace(past, **change)]
        told = Witnesses(provider).maintenance(NODE, noon)
        assert told == (provider.past_changes[0].began if is_why else "")

    def test_one_of_a_provider_that_does_not_answer_is_unknown(self) -> None:
        class Silent(MemoryProvider):
            def get_node(self, node: NodeId) -> Node:
                raise DeadlineError("No answer.")

        word = Witnesses(Silent()).node(cast("Bucket", MemoryBucket()), NODE)
        assert word == NodeWord(NodeState.UNKNOWN, "No answer.")

    def test_its_provider_is_made_at_the_first_question(self) -> None:
        made: list[MemoryProvider] = []

        def make() -> MemoryProvider:
            made.append(MemoryProvider())
            return made[-1]

        witnesses = Witnesses(make)
        assert made == []
        for _ in range(2):
            witnesses.node(cast("Bucket", MemoryBucket()), NODE)
        assert len(made) == 1


class PlayedHosts:
    """Hosts whose answers are known beforehand, and a clock that the test moves."""

    user = "ada"

    def __init__(self, **answers: CommandResult | HostError) -> None:
        """Take the answer of each worker: `w0` is that of worker 0."""
        self._answers = answers
        self.now = 100.0
        self.asked: list[int] = []
        self.commands: list[Sequence[str]] = []
        self.witnesses = Witnesses(
            MemoryProvider(node(TPU.name, id=NODE, addresses=("10.0.0.1",) * 4)),
            lambda: cast("Ssh", self),
            lambda: self.now,
        )

    def pool(self, node: Node, host_key: Callable[[int], str]) -> Pool:
        @contextmanager
        def connect(worker: int) -> Iterator[SshSession]:
            assert host_key(worker) == f"host key {worker}"
            yield cast("SshSession", PlayedSession(self, worker))

        return Pool(connect)

    def answer(self, worker: int, argv: Sequence[str]) -> CommandResult:
        self.asked.append(worker)
        self.commands.append(argv)
        answer = self._answers[f"w{worker}"]
        if isinstance(answer, HostError):
            raise answer
        return answer

    def words(self, *workers: int, login: str = "ada") -> dict[int, HostWord]:
        attempt = msgspec.structs.replace(ATTEMPT, login=login)
        return self.witnesses.hosts("r1", attempt, workers)


class PlayedSession:
    is_open = True

    def __init__(self, hosts: PlayedHosts, worker: int) -> None:
        self._hosts = hosts
        self._worker = worker

    def run(self, argv: Sequence[str], timeout: float = 0, data: bytes = b"") -> CommandResult:
        return self._hosts.answer(self._worker, argv)


def said(state: HostState, **fields: object) -> CommandResult:
    return CommandResult(0, json.dumps({"state": state.value, **fields}), "")


class TestHosts:
    def test_are_not_asked_without_a_client_or_without_workers(self) -> None:
        assert Witnesses(MemoryProvider()).hosts("r1", ATTEMPT, [0]) == {}
        hosts = PlayedHosts()
        assert (hosts.words(), hosts.asked) == ({}, [])

    def test_say_of_an_attempts_program_what_they_know(self) -> None:
        last = {**dataclasses.asdict(replace(STATUS, worker=1)), "state": FINISHED}
        hosts = PlayedHosts(w0=said(HostState.ALIVE), w1=said(HostState.GONE, detail="it went", status=last))
        words = hosts.words(0, 1)
        assert words[0] == HostWord(HostState.ALIVE)
        assert (words[1].state, words[1].detail) == (HostState.GONE, "it went")
        assert words[1].last
        assert words[1].last.state == FINISHED
        assert {tuple(command) for command in hosts.commands} == {
            ("sh", "-c", QUESTION, "ask", ".tpuctl/runs/r1/1")
        }  # fmt: skip

    def test_are_asked_for_each_run(self) -> None:
        hosts = PlayedHosts(w0=said(HostState.GONE))
        hosts.words(0)
        hosts.witnesses.hosts("r2", ATTEMPT, [0])
        hosts.witnesses.hosts("r2", msgspec.structs.replace(ATTEMPT, attempt=2), [0])
        assert [command[-1] for command in hosts.commands] == [
            f".tpuctl/runs/{place}" for place in ("r1/1", "r2/1", "r2/2")
        ]

    def test_are_asked_again_after_a_while_and_not_before(self) -> None:
        hosts = PlayedHosts(w0=said(HostState.ALIVE), w1=said(HostState.ALIVE))
        hosts.words(0)
        hosts.now += 15.0 - 0.001
        assert hosts.words(0, 1).keys() == {0, 1}
        assert hosts.asked == [0, 1]
        hosts.now += 0.001
        hosts.words(0, 1)
        assert hosts.asked == [0, 1, 0]

    @pytest.mark.parametrize(
        ("answer", "login", "word"),
        [
            (HostError("worker 0 is down."), "ada", HostWord(HostState.NO_ANSWER, "worker 0 is down")),
            (CommandResult(2, "", "python3: can't open file 'x'"), "ada", HostWord(HostState.ABSENT)),
            (CommandResult(2, "", "python3: can't open file 'x'"), "bob",
             HostWord(HostState.NO_ANSWER, "ada has no files of it there")),
            (CommandResult(0, "nonsense", "can't open file 'x'"), "ada",
             HostWord(HostState.NO_ANSWER, "its program cannot be asked")),
            (CommandResult(1, "", "KeyError"), "ada",
             HostWord(HostState.NO_ANSWER, "its program cannot be asked")),
        ],
    )  # fmt: skip
    def test_that_do_not_answer_are_said_with_the_reason(
        self, answer: CommandResult | HostError, login: str, word: HostWord
    ) -> None:
        assert PlayedHosts(w0=answer).words(0, login=login) == {0: word}

    @pytest.mark.parametrize("status", [replace(STATUS, worker=1), replace(STATUS, attempt=2)])
    def test_that_speak_of_another_worker_or_attempt_do_not_answer(self, status: WorkerStatus) -> None:
        answer = said(HostState.ALIVE, status=dataclasses.asdict(status))
        word = HostWord(HostState.NO_ANSWER, "its program cannot be asked")
        assert PlayedHosts(w0=answer).words(0) == {0: word}

    def test_of_a_node_that_cannot_be_looked_up_do_not_answer(self) -> None:
        witnesses = Witnesses(MemoryProvider(), lambda: cast("Ssh", PlayedHosts()))
        assert witnesses.hosts("r1", ATTEMPT, [0, 2]) == dict.fromkeys(
            (0, 2), HostWord(HostState.NO_ANSWER, f"{TPU.name} does not exist")
        )

    @pytest.mark.parametrize(
        ("status", "seconds"),
        [(None, 40.0), (STATUS, 40.0), (replace(STATUS, state=FINISHED), 0.0)],
    )
    def test_a_worker_is_silent_until_its_last_word(
        self, status: WorkerStatus | None, seconds: float
    ) -> None:
        assert WorkerWord(0, status, 40.0).silence == seconds

    @pytest.mark.parametrize(
        ("status", "is_readable"),
        [(None, True), (STATUS, True), (replace(STATUS, state=UNKNOWN), False)],
    )
    def test_a_worker_whose_status_is_none_says_nothing(
        self, status: WorkerStatus | None, is_readable: bool
    ) -> None:
        assert WorkerWord(0, status, 40.0).is_readable is is_readable

    @pytest.mark.parametrize("state", [None, *HostState])
    def test_a_worker_lives_where_its_host_says_so(self, state: HostState | None) -> None:
        word = WorkerWord(0, STATUS, 40.0, HostWord(state) if state else None)
        assert word.lives is (state is HostState.ALIVE)


@pytest.mark.parametrize(
    ("states", "told"),
    [
        ((NodeState.READY, NodeState.READY), NodeState.READY),
        ((NodeState.READY, NodeState.PREEMPTED), NodeState.PREEMPTED),
        ((NodeState.STOPPED, NodeState.PREEMPTED), NodeState.PREEMPTED),
        ((NodeState.REPAIRING, NodeState.READY), NodeState.REPAIRING),
        ((None, NodeState.PREEMPTED), NodeState.PREEMPTED),
        ((None, NodeState.READY), NodeState.GONE),
    ],
)
def test_of_several_slices_the_one_is_told_that_says_most(
    states: tuple[NodeState | None, NodeState | None], told: NodeState
) -> None:
    slices = tuple(replace(NODE, name=f"ms-{number}", uid=str(number)) for number in range(2))
    nodes = (
        node(each.name, id=each, state=state) for each, state in zip(slices, states, strict=True) if state
    )
    whole = replace(NODE, name="ms", uid="0", slices=slices, slice_hosts=2)
    assert Witnesses(MemoryProvider(*nodes)).node(cast("Bucket", MemoryBucket()), whole).state is told


RECORD, ATTEMPT_RECORD = "run.json", "attempts/1/attempt.json"
NOBODY = Witnesses(MemoryProvider())


class Site:
    """A run r1 with a worker at work, of which something is deleted."""

    def __init__(self) -> None:
        self.memory = MemoryBucket()
        self.bucket = cast("Bucket", self.memory)
        write_run(self.bucket)
        self.write(1)

    def write(self, attempt: int, **changes: object) -> None:
        status = replace(STATUS, attempt=attempt, **changes)  # type: ignore[arg-type]
        self.memory.put(f"runs/r1/attempts/{attempt}/workers/0/status.json", encode(status))

    def forget(self, *names: str) -> StoredRun:
        """Delete objects of the run, and return it as another command finds it."""
        for name in names:
            item = self.bucket.stat(f"runs/r1/{name}")
            assert item
            self.bucket.remove(item)
        return StoredRun(self.bucket, "r1")


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_worker_that_wrote_lately_and_not_its_last_word_is_a_sign(site: Site) -> None:
    sign = sign_of(site.bucket, "r1")
    assert sign
    assert (sign.run, sign.attempt, sign.tpu_uids) == ("r1", 1, {TPU.uid})
    assert sign.reason == "worker 0 of attempt 1 was running 0 s ago"
    site.memory.pass_time(LOST_AFTER + 1)
    assert sign_of(site.bucket, "r1") is None, "nothing was heard for long"
    site.write(1, state=FINISHED)
    assert sign_of(site.bucket, "r1") is None, "it has ended"
    site.memory.put("runs/r1/attempts/1/workers/0/status.json", b"{")
    assert sign_of(site.bucket, "r1") is None, "a worker at work would replace it"


@pytest.mark.parametrize("gone", [(RECORD,), (ATTEMPT_RECORD,), (RECORD, ATTEMPT_RECORD)])
def test_a_name_of_which_something_works_is_nobodys(site: Site, gone: tuple[str, ...]) -> None:
    record = StoredRun(site.bucket, "r1").record
    run = site.forget(*gone)
    with pytest.raises(StateError, match="r1"):
        run.create(msgspec.structs.replace(record, token="another"))
    assert run.node_uids() == {TPU.uid}
    for writes in (True, False):
        with pytest.raises(StateError, match="r1"):
            ended_state(StoredRun(site.bucket, "r1"), NOBODY, writes=writes)
    if ATTEMPT_RECORD in gone:
        state = settle(run, NOBODY)
        assert (state.label, state.verdict) == (RECORD_MISSING, None)
        with pytest.raises(RecordMissingError):
            whole.look(run, NOBODY)
    if RECORD in gone:
        page = take_page(site.bucket, NOBODY)
        assert [(line.info.name, line.info.state) for line in page.runs] == [("r1", RECORD_MISSING)]
        with pytest.raises(RecordMissingError):
            run.record  # noqa: B018  read for its error


def test_the_rest_of_a_run_that_has_ended_keeps_its_name(site: Site) -> None:
    site.write(1, state=FINISHED)
    record = StoredRun(site.bucket, "r1").record
    run = site.forget(RECORD, ATTEMPT_RECORD)
    with pytest.raises(StateError, match="Files of an earlier run 'r1' are in gs://b"):
        run.create(record)
    with pytest.raises(NotFoundError):
        settle(run, NOBODY)


def test_an_attempt_without_a_record_follows_a_verdict_all_the_same(site: Site) -> None:
    """A watcher would start it a second time, and delete its machine."""
    verdict = Verdict("r1", runs.PREEMPTED, 1, CREATED, "so", basis=BY_MACHINE, restarts=True)
    run = StoredRun(site.bucket, "r1")
    run.end(verdict)
    assert run.verdict() == verdict
    site.write(2)
    assert settle(StoredRun(site.bucket, "r1"), NOBODY).label == RECORD_MISSING
