"""This worker's status and heartbeat in the bucket, written under generation preconditions."""

from __future__ import annotations

import json
import time
from typing import Any, Dict, List

from tpuctl.worker import gcs
from tpuctl.worker.spec import SCHEMA, Spec

HEARTBEAT = 10.0


class Status:
    """The status object; only ever replaced by the process that created it."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec) -> None:
        self._bucket = bucket
        self._name = spec.folder + "status.json"
        self._generation = 0
        self._unsure: List[bytes] = []
        self._written = 0.0
        self._content: Dict[str, Any] = {
            "schema": SCHEMA,
            "worker": spec.worker,
            "attempt": spec.attempt,
            "tpu_uid": spec.tpu_uid,
        }

    def due(self) -> bool:
        """Tell whether the next heartbeat is due."""
        return time.monotonic() >= self._written + HEARTBEAT

    def write(self, **changes: Any) -> None:
        """Write the status with `changes`; raises gcs.PreconditionError when somebody else has written it."""
        self._content.update(changes, heartbeat=now())
        data = json.dumps(self._content, indent=2).encode() + b"\n"
        self._unsure.append(data)
        try:
            self._generation = self._bucket.put(self._name, data, if_generation=self._generation)
        except gcs.PreconditionError:
            self._generation = self._after_own_write(data)
        self._unsure.clear()
        self._written = time.monotonic()

    def _after_own_write(self, data: bytes) -> int:
        """A write whose answer was lost fails the next precondition: go on from it when it is one of ours."""
        generation = self._bucket.generation(self._name)
        found = self._bucket.get(self._name) if generation else b""
        if found not in self._unsure:
            raise gcs.PreconditionError(self._name)
        return generation if found == data else self._bucket.put(self._name, data, if_generation=generation)


def now() -> str:
    """Return the current time as ISO-8601, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
