"""The one object by which the workers of an attempt start together and end together.

It is absent, then GO, then END; or END at once. Each step is a write under the generation that was read, so
that of several workers at once one decides, and the others read it. Only these workers know the attempt's
key: what is not sealed with it counts as absent.
"""

from __future__ import annotations

import hmac
import json
from typing import NamedTuple, Optional

from tpuctl.worker import gcs
from tpuctl.worker.records import Spec, attempt_folder

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
