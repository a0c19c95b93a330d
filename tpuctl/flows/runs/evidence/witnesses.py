"""Asks the machine what became of workers that are silent: the provider, and their hosts over SSH.

- Finds what works of runs whose records are missing: a lifecycle rule or a colleague deleted them.

  A worker writes its status every 10 seconds, also after it was deleted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tpuctl import bucket_objects, clock, runs
from tpuctl.bucket_layout import STATUS_OF_RUN, STATUSES, NodePaths, RunPaths
from tpuctl.bucket_objects import BadObjectError, Label
from tpuctl.errors import BucketMissingError, HostError, NotFoundError, StateError, TpuctlError, joined_hints
from tpuctl.flows.hosts.way_in import published_key
from tpuctl.flows.nodes.lifetime import past_deletions
from tpuctl.flows.runs.evidence.decision import LOST_AFTER, HostState, HostWord, NodeWord
from tpuctl.host.keeper.records import EXPIRED, IDLED, PREEMPTED, Deletion, encode
from tpuctl.host.worker.records import WorkerStatus
from tpuctl.nodes import Node, NodeId, NodeState
from tpuctl.parallel import fanout, values
from tpuctl.runs import decode

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.ssh import Ssh, SshSession
    from tpuctl.cloud.storage import Bucket, Object
    from tpuctl.runs import Attempt


@dataclass(frozen=True)
class LiveSign:
    """What the workers of a run's last attempt wrote that have not said their last word."""

    run: str
    attempt: int
    statuses: tuple[WorkerStatus, ...]
    """Of these workers, in order."""
    silence: float
    """Seconds since one of them wrote."""

    @property
    def tpu_uids(self) -> frozenset[str]:
        """The nodes on which they are."""
        return frozenset(status.tpu_uid for status in self.statuses)

    @property
    def since(self) -> str:
        """When the first of them began, by its host's clock."""
        return min(status.started or status.heartbeat for status in self.statuses)

    @property
    def reason(self) -> str:
        """What is known of the run."""
        first = self.statuses[0]
        return f"worker {first.worker} of attempt {self.attempt} was {first.state} {self.silence:.0f} s ago"


class RecordMissingError(StateError):
    """A run works, and its record or that of its attempt is gone."""

    def __init__(self, sign: LiveSign) -> None:
        super().__init__(
            f"Run '{sign.run}' still works, but its records are missing from the bucket: {sign.reason}.",
            hint=joined_hints(f"Stop it: tpuctl cancel {sign.run}", "What deletes objects: tpuctl doctor"),
            run=sign.run,
        )
        self.sign = sign


def sign_of(bucket: Bucket, run: str) -> LiveSign | None:
    """Return what works of one run, by one listing; None for nothing."""
    folder = RunPaths(run).folder
    return next(iter(live_signs(bucket, bucket.objects(folder, glob=f"{folder}{STATUSES}"))), None)


def live_signs(bucket: Bucket, listed: Iterable[Object]) -> list[LiveSign]:
    """Return a sign of each run with a status among listed objects that a worker at work wrote lately."""
    now, young = bucket.now(), dict[tuple[str, int], list["Object"]]()
    for item in listed:
        match = STATUS_OF_RUN.fullmatch(item.name)
        if match and (now - clock.parse(item.updated)).total_seconds() <= LOST_AFTER:
            young.setdefault((match[1], int(match[2])), []).append(item)
    signs = dict[str, LiveSign]()
    for (run, attempt), items in sorted(young.items()):
        read = values(fanout(lambda item: _status(bucket, item), items))
        live = sorted((status for status in read if status), key=lambda status: status.worker)
        if live:
            silence = min((now - clock.parse(item.updated)).total_seconds() for item in items)
            signs[run] = LiveSign(run, attempt, tuple(live), max(0.0, silence))
    return list(signs.values())


def _status(bucket: Bucket, item: Object) -> WorkerStatus | None:
    """Return the status of a worker at work; None for what is none, which such a worker replaces."""
    match = STATUS_OF_RUN.fullmatch(item.name)
    assert match
    attempt, worker = int(match[2]), int(match[3])
    try:
        data = bucket.read(item.name, runs.LARGEST[WorkerStatus])
        status = decode(data, WorkerStatus, item.name, lambda read: runs.check_status(read, attempt, worker))
    except (BadObjectError, NotFoundError):
        return None
    return None if status.is_finished else status


TIME_TO_LIVE = "its time to live (--ttl or --max-cost)"
KEEPER_REASONS = {EXPIRED: f"the end of {TIME_TO_LIVE}", IDLED: "that nobody used it for its --idle"}
MOST_ENDS = 1000
"""Records of a keeper that are listed, a page: each failed deletion may leave one."""
ANSWER_TIMEOUT = 20.0
"""Seconds for a host's answer."""
LARGEST_ANSWER = 128 << 10
INTERVAL = 15.0
"""Seconds between two questions to one host by a command that follows a run."""
QUESTION = 'exec python3 "$1/worker.zip" ask "$1" </dev/null'
"""A program of an earlier version fails at once, as it reads a spec; its answer is none."""
MAINTENANCE = "performMaintenance"
"""The provider's word for that change of a node."""
NEAR = timedelta(seconds=30)
"""By which a worker's last word is later than the stop of its host, or written while that begins."""
AT_WORK = r"""
import fcntl, glob, os, re
for lock in glob.glob(os.path.expanduser("~/.tpuctl/runs/*/[0-9]*/lock")):
    folder = os.path.dirname(lock)
    with open(os.open(lock, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            path = folder + "/last_status.json"
            status = open(path, "rb").read() if os.path.exists(path) else b""
            if not re.search(br'"state": "finished"|"refusal": "[^"]', status):
                os.write(1, "{} {}\n".format(*folder.split("/")[-2:]).encode())
"""
"""For python3 on a host, which may have no program of tpuctl: names the runs that hold their locks there, as
`host/worker/control.py` does, and have not said their last word, or that it is refused."""
NO_SUCH_FILE = "can't open file"
"""Python's error for a program that is not there."""
RUN_ON_HOST = re.compile(r"([a-z0-9][a-z0-9-]{0,62}) ([1-9][0-9]{0,3})")
Clock = Callable[[], float]


class HostRun(NamedTuple):
    """An attempt of a run that lives on one host of a node."""

    node: Node
    worker: int
    run: str
    attempt: int


class HostRuns(NamedTuple):
    """What lives on the hosts of a node, as they say."""

    runs: list[HostRun]
    error: TpuctlError | None = None
    """Why one was not asked."""


class Witnesses:
    """Who can be asked about a run besides its workers, each no more often than every INTERVAL."""

    def __init__(
        self,
        provider: Provider | Callable[[], Provider],
        get_ssh: Callable[[], Ssh] | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """Take `get_ssh`, which returns the client for hosts; None for a command that asks none.

        A `provider` that is a function returns it: most runs end without a question.
        """
        self._provider = provider
        self._get_ssh = get_ssh
        self._clock = clock
        self._answers: dict[tuple[str, int, str, int], tuple[float, HostWord]] = {}
        """Run, attempt, node and worker -> when it was asked, and what it said."""

    @cached_property
    def provider(self) -> Provider:
        """Where nodes come from; raises ConfigError without a project or credentials."""
        return self._provider() if callable(self._provider) else self._provider

    def node(self, bucket: Bucket, node: NodeId) -> NodeWord:
        """Return what the provider says of a node: UNKNOWN with the reason where it does not answer.

        Of several slices what it says of the one that tells the most of an end.
        """
        if node.slices:
            words = values(fanout(lambda part: self.node(bucket, part), node.slices))
            return min(words, key=lambda word: word.state.order)
        try:
            state = self.provider.get_node(node).state
        except NotFoundError:
            state = NodeState.GONE
        except TpuctlError as error:
            return NodeWord(NodeState.UNKNOWN, error.message)
        if state not in (NodeState.GONE, NodeState.DELETING):
            return NodeWord(state)
        reason = _last_reason(bucket, node)
        if reason == PREEMPTED:
            return NodeWord(NodeState.PREEMPTED)
        suspended = "" if reason else self._suspension(node)
        if suspended:
            return NodeWord(NodeState.PREEMPTED, suspended)
        return NodeWord(state, _in_words(reason) or _end_by_provider(self.provider, node))

    def _suspension(self, node: NodeId) -> str:
        """Return that a node went because another slice of its queued resource was preempted; else ""."""
        try:
            queue = self.provider.list_queued_resources(node.zone).queued_resources
        except TpuctlError:
            return ""
        for queued in queue:
            if queued.is_preempted and node.name in [each.name for each in queued.nodes]:
                return f"another slice was preempted: queued resource '{queued.name}' is {queued.state}"
        return ""

    def maintenance(self, node: NodeId, stopped: datetime) -> str:
        """Return when the provider began the maintenance that stopped a node's hosts at a time; else ""."""
        try:
            histories = [self.provider.history(part.name, part.zone) for part in node.parts]
        except TpuctlError:
            return ""
        for change in chain.from_iterable(history.changes for history in histories):
            is_own = change.node is None or change.node.id.uid in node.uids
            if change.verb != MAINTENANCE or not is_own or not change.began:
                continue
            ended = clock.parse(change.ended) if change.ended else stopped
            if clock.parse(change.began) - NEAR <= stopped <= ended + NEAR:
                return change.began
        return ""

    def hosts(self, run: str, attempt: Attempt, workers: Sequence[int]) -> dict[int, HostWord]:
        """Return what the hosts of these workers say; all are asked at once, and none raises."""
        if not workers or self._get_ssh is None:
            return {}
        keys = {worker: (run, attempt.attempt, attempt.tpu.uid, worker) for worker in workers}
        known = {worker: self._answers[key] for worker, key in keys.items() if key in self._answers}
        now = self._clock()
        late = [worker for worker in workers if worker not in known or now - known[worker][0] >= INTERVAL]
        for worker, word in zip(late, self._ask_all(run, attempt, late), strict=True):
            self._answers[keys[worker]] = self._clock(), word
        return {worker: self._answers[key][1] for worker, key in keys.items()}

    def at_work(self, node: NodeId) -> HostRuns:
        """Return what works, or waits, on the hosts of a READY node, whatever bucket has its records."""
        if self._get_ssh is None:
            return HostRuns([])
        try:
            ssh, there = self._get_ssh(), self.provider.get_node(node)
            if there.state is not NodeState.READY:
                return HostRuns([])
            keys = self.provider.host_keys(there.id)
        except NotFoundError:
            return HostRuns([])
        except TpuctlError as error:
            return HostRuns([], error)
        with ssh.pool(there, lambda worker: published_key(there, keys, worker)) as pool:
            answers = pool.run_all(_read_locks, range(len(there.addresses)))
        runs = [
            HostRun(there, answer.item, match[1], int(match[2]))
            for answer in answers
            for match in map(RUN_ON_HOST.fullmatch, (answer.value or "").splitlines())
            if match
        ]
        return HostRuns(runs, next((answer.error for answer in answers if answer.error), None))

    def beside(self, node: NodeId, own: str = "") -> list[str]:
        """Return the names of the runs on the hosts of a node, as far as these answer, but one's own."""
        names = dict.fromkeys(item.run for item in self.at_work(node).runs)
        return [name for name in names if name != own]

    def _ask_all(self, run: str, attempt: Attempt, workers: Sequence[int]) -> list[HostWord]:
        if not workers or self._get_ssh is None:
            return []
        try:
            ssh, node = self._get_ssh(), self.provider.get_node(attempt.tpu.id)
            keys = self.provider.host_keys(node.id)
        except TpuctlError as error:
            return [HostWord(HostState.NO_ANSWER, error.message.rstrip("."))] * len(workers)
        with ssh.pool(node, lambda worker: published_key(node, keys, worker)) as pool:
            answers = pool.run_all(
                lambda session, worker: _ask(session, worker, run, attempt, ssh.user), workers
            )
        return [answer.value or _no_answer(answer.error) for answer in answers]


def record_preemptions(bucket: Bucket, nodes: Iterable[Node], at: str) -> None:
    """Write which nodes are PREEMPTED, before they are deleted: nobody could tell of their runs later."""
    for node in nodes:
        paths = NodePaths.of(node.id)
        record = Deletion(
            node.id.project, node.zone, node.name, node.id.uid, node.queued_resource, PREEMPTED, at, "", ""
        )
        bucket.create(f"{paths.keeper}{PREEMPTED}-{at}.json", encode(record), "application/json")


def _last_reason(bucket: Bucket, node: NodeId) -> str:
    """Return the reason of the last record about a node's end; empty without one."""
    folder = NodePaths(node.project, node.zone, node.name, node.uid).keeper
    try:
        records = bucket.objects(folder, most=MOST_ENDS)
    except BucketMissingError:
        return ""
    if not records:
        return ""
    last = max(records, key=lambda record: (record.updated, record.generation))  # earlier deletions failed
    return last.name.removeprefix(folder).partition("-")[0]


def _in_words(reason: str) -> str:
    words = KEEPER_REASONS.get(reason)
    return f"the node was deleted: its keeper recorded {words}" if words else ""


def _end_by_provider(provider: Provider, node: NodeId) -> str:
    """Return what the provider's operations say about the end of a node without a record of its keeper."""
    try:
        history = provider.history(node.name, node.zone)
    except TpuctlError:
        return ""
    ends = [
        item.began for item in past_deletions(history) if item.node.id.uid == node.uid and item.is_past_ttl
    ]
    return f"the node was deleted at {ends[-1]}, when {TIME_TO_LIVE} was over" if ends else ""


def _no_answer(error: TpuctlError | None) -> HostWord:
    return HostWord(HostState.NO_ANSWER, error.message.rstrip(".") if error else "it said nothing")


def _ask(session: SshSession, worker: int, run: str, attempt: Attempt, user: str) -> HostWord:
    """Ask one host for the program of an attempt, as `user`; raises HostError where nobody answers."""
    folder = f".tpuctl/runs/{run}/{attempt.attempt}"
    answer = session.run(["sh", "-c", QUESTION, "ask", folder], timeout=ANSWER_TIMEOUT)
    if answer.exit_code and NO_SUCH_FILE in answer.stderr:
        if attempt.login == user:
            return HostWord(HostState.ABSENT)
        return HostWord(HostState.NO_ANSWER, f"{user} has no files of it there")
    try:
        return read_answer(answer.stdout[:LARGEST_ANSWER].encode(), attempt.attempt, worker)
    except bucket_objects.DecodeError:  # also that of a program of an earlier version, which cannot be asked
        return HostWord(HostState.NO_ANSWER, "its program cannot be asked")


def _read_locks(session: SshSession, worker: int) -> str:
    answer = session.run(["python3", "-c", AT_WORK], timeout=ANSWER_TIMEOUT)
    if answer.exit_code:
        raise HostError(f"Worker {worker} did not say what works there: {answer.stderr.strip()[-200:]}.")
    return answer.stdout[:LARGEST_ANSWER]


class HostAnswer(msgspec.Struct, frozen=True):
    """What the worker program prints for `ask`."""

    state: HostState
    detail: Label = ""
    """What happened to the host."""
    status: WorkerStatus | None = None
    """The last one that the program wrote to the host's own disk."""


def read_answer(data: bytes, attempt: int, worker: int) -> HostWord:
    """Return what a host's answer says; a host may print anything. Raises DecodeError."""

    def check(answer: HostAnswer) -> None:
        if answer.status:
            runs.check_status(answer.status, attempt, worker)

    answer = bucket_objects.decode(data, HostAnswer, check)
    return HostWord(answer.state, answer.detail, answer.status)
