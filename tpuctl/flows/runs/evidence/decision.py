"""Decides from what workers and machine say whether a run has ended, and how: a function of its evidence.

Ages are by the bucket's clock. The order of the rules is that of docs/runs.md.

- Defines what is known of a run's workers: their own words, and those of their machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tpuctl import runs
from tpuctl.host.worker.records import MAINTENANCE, PREEMPTION, REBOOT, RUNNING, UNKNOWN, WorkerStatus
from tpuctl.nodes import NodeState
from tpuctl.runs import BY_MACHINE, BY_SILENCE, BY_WORKERS


class HostState(StrEnum):
    """What a host says of the program that runs the script."""

    ALIVE = "alive"
    GONE = "gone"
    """It ended, and its host knows of no last word."""
    ABSENT = "absent"
    """The host has no trace of the attempt, though the login is the one that started it."""
    NO_ANSWER = "no answer"
    """Nobody could be asked, or who answered does not know."""


@dataclass(frozen=True)
class HostWord:
    """What the host of one worker answered."""

    state: HostState
    detail: str = ""
    """Why there was no answer, or what happened to the host; fits after a colon."""
    last: WorkerStatus | None = None
    """The last status on the host's own disk."""

    @property
    def is_free(self) -> bool:
        """Whether nothing of the script runs there."""
        return self.state in (HostState.GONE, HostState.ABSENT) or bool(self.last and self.last.refusal)


@dataclass(frozen=True)
class NodeWord:
    """What the provider says of the node."""

    state: NodeState
    detail: str = ""
    """Why it was deleted, or why its state is UNKNOWN."""


@dataclass(frozen=True)
class WorkerWord:
    """What one worker wrote last, how long ago, and what its host says of it."""

    worker: int
    status: WorkerStatus | None
    """None before its first one."""
    age: float
    """Seconds by the bucket's clock since it wrote; since the attempt was made if it has never written."""
    host: HostWord | None = None
    """None where it was not asked."""

    @property
    def is_over(self) -> bool:
        """Whether it has said its last word."""
        return bool(self.status and self.status.is_finished)

    @property
    def is_readable(self) -> bool:
        """Whether its status is a status: one that cannot be read says nothing, not even that it is old."""
        return not (self.status and self.status.state == UNKNOWN)

    @property
    def silence(self) -> float:
        """Seconds for which a word of it is missing; 0 once it has said its last."""
        return 0.0 if self.is_over else self.age

    @property
    def quiet(self) -> float | None:
        """Seconds for which its script has printed nothing; None where none runs, or nobody knows."""
        status = self.status
        if status is None or status.state != RUNNING or status.quiet is None:
            return None
        return status.quiet + self.age

    @property
    def lives(self) -> bool:
        """Whether its host says that it goes on."""
        return bool(self.host and self.host.state is HostState.ALIVE)


CHECK_NODE_AFTER = 30.0
"""Seconds of silence (a heartbeat comes every 10) after which the provider is asked for the node's state."""
ASK_HOST_AFTER = 45.0
"""Seconds of silence after which the worker's host is asked."""
LOST_AFTER = 900.0
"""Seconds of silence after which a worker is lost if neither its host nor the provider says anything."""
NEVER_STARTED_AFTER = 300.0
"""Seconds within which `submit` may still be on its way to a worker that has written nothing."""
NODE_STATE_DELAY = 30.0
"""Seconds within which a node shows that it is being preempted or deleted, after its workers were stopped."""

STOPPED_BY_FAILURE = "; the others are stopped because of it"
ENDED = (
    NodeState.PREEMPTED,
    NodeState.GONE,
    NodeState.DELETING,
    NodeState.STOPPING,
    NodeState.STOPPED,
)
"""States of a node on which nothing runs any more."""


class Ending(NamedTuple):
    """How a run ended, and who says so."""

    outcome: str
    evidence: str
    basis: str
    exit_code: int | None = None
    silent: tuple[int, ...] = ()
    """The workers whose silence is part of the evidence."""
    stopped_by: str = ""
    """The account that asked to stop the run."""
    cause: str = ""
    """UNSTARTED, if no script has started."""


def needs_node(words: Sequence[WorkerWord]) -> bool:
    """Return whether the provider has to be asked before anything can be said."""
    silence = max(word.silence for word in words)
    return bool(stopped_by_host(words)) or silence > CHECK_NODE_AFTER or _may_be_a_consequence(words)


def to_be_asked(words: Sequence[WorkerWord], node: NodeWord) -> list[int]:
    """Return the workers whose hosts have to be asked: silent ones, while the node has not ended."""
    if node.state in ENDED:
        return []
    return [word.worker for word in words if not word.is_over and word.silence > ASK_HOST_AFTER]


def decide_by_workers(words: Sequence[WorkerWord]) -> Ending | None:
    """Return how the scripts ended; None while one goes on, or where a host was stopped before any failed."""
    stopped, word = _stopped(words), first_failure(words)
    if word and word.status:
        others = "" if all(each.is_over for each in words) else STOPPED_BY_FAILURE
        return Ending(runs.FAILED, _failure(word) + others, BY_WORKERS, word.status.exit_code)
    is_over = all(word.is_over for word in words)
    if is_over and any(word.status and word.status.stopped_by for word in stopped):
        return _stop(stopped, "", (), BY_WORKERS)
    if stopped:
        return None
    given_up = next((word.status for word in words if word.status and _is_consequence(word)), None)
    if given_up and all(word.is_over or word.status is None for word in words):
        # They have lost sight of one that has not failed, or that nobody starts: it will not run, either.
        cause = "" if all(word.is_over for word in words) else runs.UNSTARTED
        reason = given_up.error.removeprefix("not started, because ")
        evidence = reason if cause else f"worker {given_up.worker}: {given_up.error}"
        return Ending(runs.FAILED, evidence, BY_WORKERS, cause=cause)
    if is_over:
        evidence = f"every worker's script ended with exit code 0{_without_chips(words)}"
        return Ending(runs.SUCCEEDED, evidence, BY_WORKERS)
    return None


def _without_chips(words: Sequence[WorkerWord]) -> str:
    """Say that scripts seem to have run on the CPU, at the price of a TPU."""
    without = sum(bool(word.status and word.status.has_no_chip) for word in words)
    some = f" on {without} of {len(words)} workers" if without < len(words) else ""
    return f"; no TPU chip was seen in use{some}" if without else ""


def first_failure(words: Sequence[WorkerWord]) -> WorkerWord | None:
    """Return the worker whose script failed first; None where none did, or a host was stopped before."""
    failed = [word for word in words if word.is_over and not _is_stop(word) and _has_failed(word)]
    stopped = _stopped(words)
    if stopped and failed:
        first = max(word.age for word in stopped)
        failed = [word for word in failed if word.age > first + NODE_STATE_DELAY]
    return max(failed, key=lambda word: word.age, default=None)


def decide(words: Sequence[WorkerWord], node: NodeWord | None = None) -> Ending | None:
    """Return how the run ended; None while it goes on, and while nobody can say that it does not.

    `node` is None before the provider was asked.
    """
    ending = _by_cause(words) or decide_by_workers(words)
    if ending and node and _may_be_a_consequence(words):
        return by_node(words, node) or ending
    if ending or node is None:
        return ending
    return by_node(words, node) or _by_hosts(words) or _by_stops(words) or _by_silence(words, node)


def _may_be_a_consequence(words: Sequence[WorkerWord]) -> bool:
    """Whether a script failed just now while others run: hosts of a node that ends do not end at once."""
    failed = [word for word in words if word.is_over and not _is_stop(word) and _has_failed(word)]
    is_alone = not all(word.is_over for word in words)
    return bool(failed) and is_alone and max(word.age for word in failed) <= NODE_STATE_DELAY


def _by_cause(words: Sequence[WorkerWord]) -> Ending | None:
    """Return what a worker was told by its host when it was stopped."""
    for cause, outcome in _OUTCOMES.items():
        stopped = _stopped(words) if decide_by_workers(words) is None or _may_be_a_consequence(words) else []
        told = [word for word in stopped if word.status and word.status.cause == cause]
        if told:
            evidence = f"the host of worker {told[0].worker} {_ENDINGS[cause]}"
            return Ending(outcome, evidence + _others(words), BY_MACHINE)
    return None


_OUTCOMES = {PREEMPTION: runs.PREEMPTED, MAINTENANCE: runs.MAINTENANCE, REBOOT: runs.LOST}
_ENDINGS = {
    PREEMPTION: "announced its preemption and stopped it",
    MAINTENANCE: "announced its maintenance and stopped it",
    REBOOT: "was restarted without notice",
}


def by_node(words: Sequence[WorkerWord], node: NodeWord) -> Ending | None:
    """Return how a run ended by what the provider says of its node; without `words` before it had started."""
    silent = _silent(words)
    if node.state is NodeState.PREEMPTED:
        return Ending(runs.PREEMPTED, node.detail or f"the node is {node.state}", BY_MACHINE)
    if node.state in (NodeState.GONE, NodeState.DELETING):
        return Ending(runs.STOPPED, node.detail or "the node was deleted", BY_MACHINE)
    if node.state in (NodeState.STOPPING, NodeState.STOPPED):
        return Ending(runs.STOPPED, "the node was stopped", BY_MACHINE)
    if node.state is NodeState.REPAIRING and not any(word.lives for word in words):
        return Ending(runs.MAINTENANCE, f"the node is {node.state}", BY_MACHINE, silent=silent)
    return None


def _by_hosts(words: Sequence[WorkerWord]) -> Ending | None:
    """Return the end of a run whose program is missing on a host that is up."""
    known = [word for word in words if not word.is_over and (word.status or word.age > NEVER_STARTED_AFTER)]
    gone = [word for word in known if word.host and word.host.state is HostState.GONE]
    absent = [word for word in known if word.host and word.host.state is HostState.ABSENT]
    if absent and all(word.status is None for word in absent):
        reason = (absent[0].host and absent[0].host.detail) or "its host has no trace of it"
        evidence = f"it was never started on worker {absent[0].worker}: {reason}"
        return Ending(runs.FAILED, evidence, BY_MACHINE, silent=_numbers(absent), cause=runs.UNSTARTED)
    if not gone:
        return None
    announced = _announced_on_disk(gone)
    if announced:
        return announced
    word, stopped = gone[0], _stopped(words)
    if stopped:
        return _stop(stopped, f"; what ran on worker {word.worker} ended without a word", _numbers(gone))
    detail = f" ({word.host.detail})" if word.host and word.host.detail else ""
    evidence = f"what ran the script on worker {word.worker} ended without a word{detail}: its host says so"
    return Ending(runs.LOST, evidence + _others(words, gone), BY_MACHINE, silent=_numbers(gone))


def _announced_on_disk(gone: Sequence[WorkerWord]) -> Ending | None:
    """Return what a host had announced that stopped before its worker could say its last word."""
    for word in gone:
        last = word.host.last if word.host and word.host.last else word.status
        outcome = _OUTCOMES.get(last.cause) if last and last.stopped else None
        if last and outcome:
            evidence = f"the host of worker {word.worker} {_ENDINGS[last.cause]}"
            return Ending(outcome, evidence, BY_MACHINE, silent=_numbers(gone))
    return None


def _by_stops(words: Sequence[WorkerWord]) -> Ending | None:
    """Return the end of a run of which a worker was stopped, once the node would show why."""
    stopped = _stopped(words)
    if not stopped or max(word.age for word in stopped) <= NODE_STATE_DELAY:
        return None
    is_saving = any(not word.is_over and (word.lives or word.age <= CHECK_NODE_AFTER) for word in words)
    if is_saving and not stopped_by_host(words):
        return None  # who is asked to stop gets the time to save
    return _stop(stopped, _others(words), () if stopped_by_host(words) else _silent(words))


def _stop(
    stopped: Sequence[WorkerWord], others: str, silent: tuple[int, ...], basis: str = BY_MACHINE
) -> Ending:
    accounts = [word.status.stopped_by for word in stopped if word.status and word.status.stopped_by]
    if accounts:
        evidence = f"stopped by {accounts[0]}{others}"
        return Ending(runs.STOPPED, evidence, basis, silent=silent, stopped_by=accounts[0])
    status = stopped[0].status
    assert status is not None
    evidence = f"worker {status.worker} was ended by {status.stopped}{others}"
    return Ending(runs.STOPPED, evidence, basis, silent=silent)


def _by_silence(words: Sequence[WorkerWord], node: NodeWord) -> Ending | None:
    """Return that a worker is lost, which is a guess: nobody who could know has answered for so long."""
    if node.state is NodeState.UNKNOWN or not all(word.is_readable for word in words):
        return None
    lost = [word for word in words if word.silence > LOST_AFTER and word.host and not word.lives]
    if not lost:
        return None
    word = lost[0]
    asked = f"its host was asked over SSH: {word.host.detail}" if word.host and word.host.detail else ""
    tried = "; ".join(filter(None, (f"the node is {node.state}", asked)))
    evidence = f"no word of worker {word.worker} for {word.silence:.0f} s ({tried})"
    return Ending(runs.LOST, evidence, BY_SILENCE, silent=_numbers(lost))


def _stopped(words: Sequence[WorkerWord]) -> list[WorkerWord]:
    return [word for word in words if word.is_over and _is_stop(word)]


def stopped_by_host(words: Sequence[WorkerWord]) -> list[WorkerWord]:
    """Return the workers that a signal of their host has stopped."""
    return [word for word in words if word.is_over and word.status and word.status.stopped]


def _is_stop(word: WorkerWord) -> bool:
    return bool(word.status and (word.status.stopped or word.status.stopped_by))


def _has_failed(word: WorkerWord) -> bool:
    return bool(word.status and word.status.exit_code != 0) and not _is_consequence(word)


def _is_consequence(word: WorkerWord) -> bool:
    """Whether another worker's end ended this one."""
    return bool(word.status and word.status.peer is not None)


def _silent(words: Sequence[WorkerWord]) -> tuple[int, ...]:
    return tuple(word.worker for word in words if word.silence > CHECK_NODE_AFTER)


def _numbers(words: Sequence[WorkerWord]) -> tuple[int, ...]:
    return tuple(word.worker for word in words)


def _others(words: Sequence[WorkerWord], ended: Sequence[WorkerWord] = ()) -> str:
    """Say that other workers may go on: they would wait for this one for ever, and bill."""
    over = all(word.is_over or word in ended for word in words)
    return "" if over else "; the other workers may keep running until 'tpuctl down'"


def _failure(word: WorkerWord) -> str:
    status = word.status
    assert status is not None
    cause = f" ({status.cause})" if status.cause else ""
    if status.error and status.exit_code is None and not status.has_run:
        return f"worker {status.worker} could not start: {status.error}{cause}"
    if status.error:
        return f"worker {status.worker}: {status.error}{cause}"
    if status.signal:
        return f"worker {status.worker}'s script was ended by {status.signal}{cause}"
    return f"worker {status.worker}'s script ended with exit code {status.exit_code}{cause}"
