"""Waits until every worker of an attempt is ready: the script starts on all of them or on none.

Each worker creates one object that says so. The first of the workers lists these, and decides; the others
read the decision, one object a look.
"""

from __future__ import annotations

import hmac
import time
from typing import Callable, Optional, Sequence

from tpuctl.worker import gcs, timing
from tpuctl.worker.peers.decision import Decision, DecisionObject
from tpuctl.worker.records import STATUS_FILE, Spec, attempt_folder
from tpuctl.worker.reporting.logs import say

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
