"""The other workers of an attempt: start with them, end with them. A worker that is alone pays nothing."""

from __future__ import annotations

import time
from typing import Callable, Optional

from tpuctl.worker import gcs, timing
from tpuctl.worker.peers.barrier import Barrier
from tpuctl.worker.peers.decision import Decision, DecisionObject
from tpuctl.worker.peers.neighbour import Neighbour
from tpuctl.worker.records import LAUNCH_FILE, Spec, WorkerStatus, attempt_folder
from tpuctl.worker.reporting.logs import say


class Peers:
    """One worker's word to the others, and theirs to it."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec, on_end: Callable[[], None]) -> None:
        """Take `on_end`, which is called once another worker's end has ended this one."""
        self._bucket = bucket
        self._spec = spec
        self._on_end = on_end
        self.are_any = len(spec.participants) > 1
        self.end: Optional[Decision] = None
        """That another worker has ended without success, or that the others gave this one up; None else."""
        self._has_told = False
        if self.are_any:
            self._decision = DecisionObject(bucket, spec)
            self._neighbour = Neighbour(bucket, spec)
        self._next = time.monotonic() + timing.PEER_INTERVAL

    def wait_for_all(self, check: Callable[[], object] = lambda: None) -> None:
        """Return once every worker is ready, or one has ended: `end` says so then.

        What `check` raises ends the wait.
        """
        if self.are_any:
            self._note(Barrier(self._bucket, self._spec, self._decision).wait(check))

    def due(self) -> bool:
        """Return whether it is time to look at them."""
        return self.are_any and self.end is None and time.monotonic() >= self._next

    def look(self) -> None:
        """Learn whether another has ended, or is silent for too long. Raises gcs.GcsError."""
        self._next = time.monotonic() + timing.PEER_INTERVAL
        try:
            self._look()
        except BaseException:
            self._neighbour.forget()
            raise

    def _look(self) -> None:
        self._note(self._decision.read())
        if self.end is None and self._neighbour.due():
            worker, silence = self._neighbour.worker, self._neighbour.silence()
            if silence > timing.NEIGHBOUR_SILENCE:
                reason = "worker %d has not been heard of for %d minutes" % (worker, silence / 60)
                self._note(self._decision.end(reason, worker))
            elif silence >= timing.LAUNCH_SILENCE and self._is_left_out():
                reason = "worker %d was not started, and nobody starts it any more" % worker
                self._note(self._decision.end(reason, worker))

    def _is_left_out(self) -> bool:
        """Return whether the neighbour was never started, and nobody seems to start it any more."""
        if self._neighbour.has_written:
            return False
        items = self._bucket.list(attempt_folder(self._spec.folder) + LAUNCH_FILE)
        return min((item.age for item in items), default=float("inf")) > timing.LAUNCH_SILENCE

    def tell_end(self, reason: str) -> None:
        """Tell the others that this worker has ended without success; `end` is set if another was first.

        Raises gcs.GcsError.
        """
        if self.are_any and self.end is None:
            self._has_told = True  # what the other thread reads now may be this
            decision = self._decision.end(reason)
            self._has_told = decision.worker == self._spec.worker
            self._note(decision)

    def _note(self, decision: Optional[Decision]) -> None:
        if decision and decision.is_end and self.end is None and not self._has_told:
            self.end = decision
            say("stopping, because %s" % decision.reason)
            self._on_end()


def reason_of(status: WorkerStatus) -> str:
    """Return a clause that says how a worker ended that did not succeed."""
    if status.stopped:
        return "worker %d was stopped by %s" % (status.worker, status.stopped)
    if status.exit_code is None:
        words = "was not watched to its end" if status.has_run else "could not start"
        return "worker %d %s: %s" % (status.worker, words, status.error)
    if status.signal:
        return "worker %d's script was ended by %s" % (status.worker, status.signal)
    return "worker %d's script ended with exit code %d" % (status.worker, status.exit_code)
