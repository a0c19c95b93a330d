"""Defines what is known of a run's workers: their own words, and those of their machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tpuctl.host.worker.records import RUNNING, UNKNOWN, WorkerStatus
from tpuctl.nodes import NodeState


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
