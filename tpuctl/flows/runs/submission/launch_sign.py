"""Says in the bucket that the workers of an attempt are still being started, once that takes long.

Workers that were started wait for the others. Where who starts them is killed, they learn it by the age of
this object, which is the bucket's.
"""

from __future__ import annotations

import threading

from tpuctl.errors import TpuctlError
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.runs import encode, submitter

FIRST = 20.0
"""Seconds after which the first sign is given, before workers look for one; most starts take less."""
INTERVAL = 15.0
"""Between two signs."""


class LaunchSign:
    """Gives the sign while its block runs, in a thread of its own."""

    def __init__(
        self, run: StoredRun, attempt: int, first: float = FIRST, interval: float = INTERVAL
    ) -> None:
        self._bucket = run.bucket
        self._name = run.paths.launch(attempt)
        self._content = encode({"by": submitter()})
        self._pauses = first, interval
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._give, name="launch sign", daemon=True)

    def __enter__(self) -> LaunchSign:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _give(self) -> None:
        first, interval = self._pauses
        pause = first
        while not self._ended.wait(pause):
            pause = interval
            try:
                self._bucket.upload(self._name, [self._content], "application/json")
            except TpuctlError:
                pass  # the next one may be heard in time
