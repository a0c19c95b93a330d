"""The other workers of an attempt: start with them, end with them. A worker that is alone pays nothing.

One object says for all of them whether they start, and that they end: it is absent, then GO, then END; or END
at once. Each step is a write under the generation that was read, so that of several workers at once one
decides, and the others read it. Only these workers know the attempt's key: what is not sealed with it counts
as absent. Each also watches the next one, in a ring: one that dies without a word is missed by somebody.
"""

from __future__ import annotations

import hmac
import json
import time
from typing import Callable, List, NamedTuple, Optional, Sequence

from tpuctl.host import gcs, timing
from tpuctl.host.worker.records import FINISHED, LAUNCH_FILE, STATUS_FILE, Spec, WorkerStatus, attempt_folder
from tpuctl.host.worker.reporting import say

GO, END = "go", "end"
DECISION = "barrier/decision.json"
"""Name inside the attempt's folder."""
LARGEST_DECISION = 4096
"""Bytes of it that are read."""
LONGEST_REASON = 500
TRIES = 10
"""Of one write, while others write the same object."""


class Decision(NamedTuple):
    """What holds for every worker."""

    state: str
    """GO or END."""
    worker: int
    """Who decided it: with END, the first worker that has ended without success."""
    reason: str = ""
    """A clause with that worker; empty for GO."""

    @property
    def is_end(self) -> bool:
        """Whether every worker has to end."""
        return self.state == END


class DecisionObject:
    """The object in the bucket, as one worker reads and writes it."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec) -> None:
        self._bucket = bucket
        self._worker = spec.worker
        self._name = attempt_folder(spec.folder) + DECISION
        self._key = spec.key.encode()

    def read(self) -> Optional[Decision]:
        """Return what was decided, by one request; None for nothing. Raises gcs.GcsError."""
        return self._read()[1]

    def go(self) -> Decision:
        """Decide that all start, unless one has ended; return what holds. Raises gcs.GcsError."""
        return self._decide(Decision(GO, self._worker), {None})

    def end(self, reason: str, worker: Optional[int] = None) -> Decision:
        """Decide that all end, as this `worker` has, unless another was first; return what holds.

        Raises gcs.GcsError.
        """
        decision = Decision(END, self._worker if worker is None else worker, reason[:LONGEST_REASON])
        return self._decide(decision, {None, GO})

    def _decide(self, decision: Decision, before: "set[Optional[str]]") -> Decision:
        for _ in range(TRIES):
            generation, stored = self._read()
            if (stored.state if stored else None) not in before:
                assert stored is not None
                return stored
            try:
                self._bucket.put(self._name, self._encoded(decision), if_generation=generation)
                return decision
            except gcs.PreconditionError:  # another's, or our own whose answer was lost
                continue
        raise gcs.GcsError("other programs keep writing gs://%s/%s" % (self._bucket.name, self._name))

    def _read(self) -> "tuple[int, Optional[Decision]]":
        generation, data = self._bucket.read(self._name, LARGEST_DECISION)
        try:
            content = json.loads(data)
            decision = Decision(content["state"], content["worker"], content["reason"])
            seal = str(content["seal"]).encode("utf-8", "surrogatepass")
            is_sealed = hmac.compare_digest(seal, self._seal(decision).encode())
        except (ValueError, TypeError, KeyError, RecursionError):
            return generation, None
        return generation, decision if is_sealed else None

    def _encoded(self, decision: Decision) -> bytes:
        return json.dumps({**decision._asdict(), "seal": self._seal(decision)}, indent=2).encode() + b"\n"

    def _seal(self, decision: Decision) -> str:
        text = json.dumps([self._name, *decision])
        return hmac.new(self._key, text.encode(), "sha256").hexdigest()


LARGEST_STATUS = 64 * 1024
"""Bytes of a status."""


class Neighbour:
    """The next worker that has not ended."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec) -> None:
        self._bucket = bucket
        self._folder = attempt_folder(spec.folder) + "workers/"
        ring = sorted(spec.participants)
        place = ring.index(spec.worker) + 1
        self._others: List[int] = ring[place:] + ring[: place - 1]
        self._generation = -1
        self._since = time.monotonic()
        self._next = 0.0

    @property
    def worker(self) -> int:
        """Its number; -1 once all others have ended."""
        return self._others[0] if self._others else -1

    @property
    def has_written(self) -> bool:
        """Whether it has ever written, as of the last look: one that has not was never started."""
        return self._generation != 0

    def due(self) -> bool:
        """Return whether it is time to look again."""
        return bool(self._others) and time.monotonic() >= self._next

    def silence(self) -> float:
        """Return the seconds for which it was seen to write nothing, after a look; 0 for one that has ended.

        Raises gcs.GcsError; then call `forget`.
        """
        now = time.monotonic()
        self._next = now + timing.NEIGHBOUR_INTERVAL
        name = "%s%d/%s" % (self._folder, self.worker, STATUS_FILE)
        generation = self._bucket.stat(name)[0]
        is_late = generation == self._generation and now - self._since > timing.NEIGHBOUR_SILENCE
        has_ended = is_late and self._has_ended(name)
        if has_ended:
            self._others.pop(0)
        if generation != self._generation or has_ended:
            self._generation, self._since = generation, now
        return now - self._since

    def forget(self) -> None:
        """Begin to count anew: a look that failed says nothing about the other."""
        self._generation = -1

    def _has_ended(self, name: str) -> bool:
        try:
            return bool(json.loads(self._bucket.read(name, LARGEST_STATUS)[1])["state"] == FINISHED)
        except (ValueError, TypeError, KeyError, RecursionError):
            return False


READY_FOLDER = "barrier/ready/"
"""Inside the attempt's folder."""


class Barrier:
    """One worker's view of it."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec, decision: DecisionObject) -> None:
        self._bucket = bucket
        self._spec = spec
        self._decision = decision
        self._folder = attempt_folder(spec.folder)
        self._next = -timing.FRESH
        self._leads = spec.worker == min(spec.participants)

    def wait(self, check: Callable[[], object] = lambda: None) -> Decision:
        """Say that this worker is ready, and return what was decided for all, however long that takes.

        A bucket that cannot be reached delays it: nobody starts alone. What `check` raises after a look ends
        the wait.
        """
        for pause in timing.growing(timing.FIRST_LOOK, timing.LONGEST_LOOK):
            decision = self._try(self._look)
            if decision:
                return decision
            check()
            timing.sleep(pause)
        raise AssertionError("the pauses have no end")

    def _look(self) -> Optional[Decision]:
        if time.monotonic() >= self._next:  # again and again: somebody may empty the bucket
            self._bucket.create(self._ready(self._spec.worker), b"ready\n", "text/plain")
            self._next = time.monotonic() + timing.FRESH
        if self._leads and self._are_all_ready():
            return self._decision.go()
        return self._decision.read()

    def _are_all_ready(self) -> bool:
        """Return whether all have said so, and none has fallen silent since."""
        items = {item.name: item.age for item in self._bucket.list(self._folder + READY_FOLDER)}
        names = [self._ready(worker) for worker in self._spec.participants]
        if not all(name in items for name in names):
            return False
        return max(items[name] for name in names) < timing.FRESH or self._do_all_live(self._spec.participants)

    def _do_all_live(self, workers: Sequence[int]) -> bool:
        """Return whether each has written its status lately: one may have died while it waited."""
        folder = self._folder + "workers/"
        items = self._bucket.list(folder, glob="%s*/%s" % (folder, STATUS_FILE))
        ages = {item.name: item.age for item in items}
        names = ["%s%d/%s" % (folder, worker, STATUS_FILE) for worker in workers]
        return all(ages.get(name, float("inf")) < timing.FRESH for name in names)

    def _ready(self, worker: int) -> str:
        """Return the object that says that a worker is ready: only who has the key knows its name."""
        place = "%s%s%04d" % (self._folder, READY_FOLDER, worker)
        seal = hmac.new(self._spec.key.encode(), place.encode(), "sha256").hexdigest()[:32]
        return "%s-%s" % (place, seal)

    def _try(self, work: Callable[[], Optional[Decision]]) -> Optional[Decision]:
        try:
            return work()
        except (gcs.GcsError, OSError, ValueError) as error:
            say("waiting for the other workers: %s: %s" % (type(error).__name__, error))
            return None


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
