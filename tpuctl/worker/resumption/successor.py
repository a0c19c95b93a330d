"""Makes the next attempt of a run on the same hosts: its secret, its records in the bucket, its spec.

The workers derive secrets and tokens from the attempt before, so that they agree on one attempt, and tell it
from one that a watcher has made. Objects are created only, as terraform/ lets hosts.
"""

from __future__ import annotations

import hmac
import json
import re
import time
from dataclasses import replace
from typing import Dict, Mapping, Optional, Tuple

from tpuctl.worker import gcs
from tpuctl.worker.records import MAINTENANCE, Spec, WorkerStatus, attempt_folder

LIMIT = 64 * 1024
"""Bytes of a record that are read."""
LEASE_SECONDS = 60
"""After which a lease that nobody has written again is late, whatever it claims: any job may have made it."""
CHECKPOINT = re.compile(rb'^model_checkpoint_path: "([^"]{1,1000})"', re.MULTILINE)
JSON = "application/json"


class Successor:
    """The attempt after that of a spec, as its workers make it."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec) -> None:
        self._bucket = bucket
        self._spec = spec
        self._former = attempt_folder(spec.folder)
        self.number = spec.attempt + 1
        self._folder = "runs/%s/attempts/%d/" % (spec.run, self.number)

    def spec(self, *, lost_at_once: int) -> Spec:
        """Return the spec of this worker's part."""
        spec, former = self._spec, self._spec.resumption
        assert former is not None
        left = former.restarts - 1 if former.restarts > 0 else former.restarts
        return replace(
            spec,
            attempt=self.number,
            token=self._derived("attempt"),
            key=self._derived("key"),
            folder="%sworkers/%d/" % (self._folder, spec.worker),
            line=former.line,
            line_timeout=0.0,
            resumption=replace(former, restarts=left, lost_at_once=lost_at_once) if left else None,
        )

    def look(self) -> Optional[bool]:
        """Return whether the workers have made it; None for no attempt, False for one of a watcher."""
        generation, record = self._read("attempt.json")
        if not generation:
            return None
        return record.get("token") == self._derived("attempt")

    def is_leased(self) -> bool:
        """Return whether a watcher starts it now."""
        name = self._folder + "lease.json"
        generation, lease = self._read("lease.json")
        if not generation or lease.get("is_over"):
            return False
        ages = [item.age for item in self._bucket.list(name) if item.name == name]
        seconds = lease.get("seconds")
        longest = seconds if isinstance(seconds, int) else LEASE_SECONDS
        return bool(ages) and ages[0] <= min(longest, LEASE_SECONDS)

    def make(self, status: WorkerStatus) -> None:
        """Write its records; `status` is the last word of this worker. Another's attempt is left as it is."""
        former = record_in(self._bucket.get(self._former + "attempt.json"))
        self._create(self._former + "verdict.json", self._verdict(former, status))
        resumption = self._spec.resumption
        assert resumption is not None
        note = {"run": self._spec.run, "attempt": self.number}
        self._create("%s%s/%d.json" % (resumption.line, self._spec.run, self.number), note)
        record = {
            **former, "attempt": self.number, "created": self._now(), "token": self._derived("attempt"),
        }  # fmt: skip
        self._create(self._folder + "attempt.json", record)

    def _verdict(self, former: Mapping[str, object], status: WorkerStatus) -> Mapping[str, object]:
        """Return how the attempt before has ended."""
        is_announced = status.cause == MAINTENANCE
        how = "had its maintenance" if is_announced else "was restarted"
        begun = status.started or (None if status.has_run else "")  # empty: it was in line for the TPU
        return {
            "run": self._spec.run, "outcome": MAINTENANCE if is_announced else "lost",
            "attempt": self._spec.attempt, "decided": self._now(),
            "evidence": "the host of worker %d %s; its run resumed by itself" % (status.worker, how),
            "basis": "machine", "ended": status.finished or status.heartbeat, "tpu": former["tpu"],
            "worker": status.worker, "started": former["created"], "restarts": True, "schema": 1,
            "begun": begun, "price": former.get("price"), "checkpoint": self._checkpoint(),
        }  # fmt: skip

    def _checkpoint(self) -> str:
        """Return the name of the checkpoint that TensorFlow's state file names; empty without one."""
        name = "runs/%s/checkpoints/checkpoint" % self._spec.run
        match = CHECKPOINT.search(self._bucket.read(name, LIMIT)[1])
        return match.group(1).decode("utf-8", "replace").rpartition("/")[2] if match else ""

    def _read(self, name: str) -> Tuple[int, Mapping[str, object]]:
        """Return the generation and content of a record; what is no record is empty."""
        generation, data = self._bucket.read(self._folder + name, LIMIT)
        return generation, record_in(data)

    def _create(self, name: str, record: Mapping[str, object]) -> None:
        self._bucket.create(name, json.dumps(record, indent=2).encode() + b"\n", JSON)

    def _derived(self, what: str) -> str:
        text = "%s %s %d" % (what, self._spec.run, self.number)
        return hmac.new(self._spec.key.encode(), text.encode(), "sha256").hexdigest()

    def _now(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._bucket.now()))


def record_in(data: bytes) -> Dict[str, object]:
    """Return the content of an object, which anybody may have written; empty for what is no record."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
