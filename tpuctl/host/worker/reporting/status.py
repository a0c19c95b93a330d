"""Writes this worker's status and heartbeat into the bucket; no other program's write stops it.

Whoever can write to the bucket can write a status. Only the supervisors of one attempt know its key, so only
a status that is sealed with it is another supervisor's, and ends this one; any other is replaced.
"""

from __future__ import annotations

import hmac
import json
import os
import threading
import time
from dataclasses import fields, replace
from typing import Any, Dict, List, Mapping, Optional

from tpuctl.host import gcs, timing
from tpuctl.host.worker.records import (
    FINISHED,
    PREPARING,
    STATUS_FILE,
    Spec,
    WorkerStatus,
    encode,
    status_type,
)
from tpuctl.host.worker.reporting.logs import say

LARGEST_STATUS = 64 * 1024
"""Bytes of a status: a larger object is not read."""
LAST_FILE = "last_status.json"
"""In the attempt's folder on the host: what its end was, also where the bucket could not be told."""
TRIES = 5
"""Of one write, while others write the same object."""

_NAMES = {field.name for field in fields(WorkerStatus)}


class AnotherSupervisorError(Exception):
    """Another supervisor of the same attempt has written the status: two must not train together."""


class StatusWriter:
    """Owns one status object for one supervisor."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec, folder: str = "") -> None:
        """Take the attempt's `folder` on this host, where each status is kept, too; empty for none."""
        self._bucket = bucket
        self._folder = folder
        self._name = spec.folder + STATUS_FILE
        self._key = spec.key.encode()
        self._generation = 0
        self._unconfirmed: List[bytes] = []
        self._written = 0.0
        self._refusal = ""
        self._patience = timing.Patience()
        self._lasting: Optional[gcs.RefusedError] = None
        self._lock = threading.RLock()
        supervisor = os.urandom(8).hex()
        self.last = WorkerStatus(
            spec.worker, spec.attempt, spec.tpu_uid, PREPARING, heartbeat="", token=spec.token,
            supervisor=supervisor, seal=self._seal(supervisor),
        )  # fmt: skip
        """The newest status, also when its write failed: the next write carries it on."""

    def resume(self) -> None:
        """Go on where the supervisor has stopped that wrote the last status in the folder."""
        values = read_last(self._folder) or {}
        known: Dict[str, Any] = {name: values[name] for name in _NAMES if name in values}
        self.last = replace(self.last, **{**known, "refusal": ""})

    def keep(self, status: WorkerStatus) -> None:
        """Keep a status on this host, for the next write."""
        with self._lock:
            self.last = status
            self._keep_last()

    def keep_refusal(self, words: str) -> None:
        """Keep on this host that the bucket does not take the last status: who asks the host learns it."""
        with self._lock:
            self._refusal = words
            self._keep_last()

    def _keep_last(self) -> None:
        if self._folder:
            _keep(encode(replace(self.last, refusal=self._refusal)), self._folder)

    def is_told(self) -> bool:
        """Return whether the bucket has the last word of this worker; raises gcs.GcsError."""
        try:
            return bool(json.loads(self._bucket.read(self._name, LARGEST_STATUS)[1])["state"] == FINISHED)
        except (ValueError, TypeError, KeyError, RecursionError):
            return False

    def check_taken(self) -> None:
        """Raise why the bucket has taken no status for minutes; gcs.RefusedError."""
        if self._lasting:
            raise self._lasting

    def due(self) -> bool:
        """Return whether the next heartbeat is due."""
        return time.monotonic() >= self._written + timing.HEARTBEAT

    def update(self, **changes: Any) -> None:
        """Write the newest status with changes, and the current time; raises as `write` does."""
        with self._lock:
            self.write(replace(self.last, **changes))

    def write(self, status: WorkerStatus) -> None:
        """Write a status, from any thread; raises AnotherSupervisorError and gcs.GcsError."""
        with self._lock:
            self._write(status)

    def _write(self, status: WorkerStatus) -> None:
        """Write a status with the current time, over what any program without the key has written.

        Raises AnotherSupervisorError, and gcs.GcsError if the write fails or others write without end.
        """
        self.last = replace(status, heartbeat=now())
        data = encode(self.last)
        self._keep_last()
        self._unconfirmed.append(data)
        for _ in range(TRIES):
            try:
                self._generation = self._bucket.put(
                    self._name, data, self._generation, status_type(self.last)
                )
            except gcs.PreconditionError:
                if self._after_conflict() != data:
                    continue
            except gcs.RefusedError as error:
                self._lasting = error if self._patience.is_over() else None
                self._written = time.monotonic()  # the next heartbeat tries again
                raise
            self._patience.renew()
            self._refusal, self._lasting = "", None
            self._unconfirmed.clear()
            self._written = time.monotonic()
            return
        raise gcs.GcsError("another program keeps writing gs://%s/%s" % (self._bucket.name, self._name))

    def _after_conflict(self) -> bytes:
        """Take over the generation of the object, and return its content if it is one of our own writes."""
        generation, size = self._bucket.stat(self._name)
        stored = b""
        if 0 < size <= LARGEST_STATUS:
            try:
                stored = self._bucket.get(self._name, generation)
            except FileNotFoundError:
                pass  # replaced in this moment
        self._check_supervisor(stored)
        self._generation = generation
        if stored in self._unconfirmed:  # the response to an earlier write was lost
            return stored
        change = "changed" if generation else "deleted"
        text = "another program has %s gs://%s/%s: it is written again"
        say(text % (change, self._bucket.name, self._name))
        return b""

    def _check_supervisor(self, stored: bytes) -> None:
        """Raise AnotherSupervisorError for a status that is sealed with the key by another supervisor."""
        try:
            content = json.loads(stored)
            supervisor, seal = str(content["supervisor"]), str(content["seal"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return  # no supervisor's
        is_sealed = hmac.compare_digest(_bytes(seal), _bytes(self._seal(supervisor)))
        if is_sealed and supervisor != self.last.supervisor:
            text = "supervisor %s of the same attempt has written gs://%s/%s"
            raise AnotherSupervisorError(text % (supervisor, self._bucket.name, self._name))

    def _seal(self, supervisor: str) -> str:
        return hmac.new(self._key, _bytes(self._name + "\n" + supervisor), "sha256").hexdigest()


def read_last(folder: str) -> Optional[Mapping[str, object]]:
    """Return the newest status in an attempt's folder; None without one."""
    try:
        with open(os.path.join(folder, LAST_FILE), "rb") as stream:
            content = json.loads(stream.read(LARGEST_STATUS))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def status_of(content: object) -> Optional[WorkerStatus]:
    """Return the status that is in a decoded object; None where it is none."""
    if not isinstance(content, dict):
        return None
    try:
        return WorkerStatus(**{name: value for name, value in content.items() if name in _NAMES})
    except TypeError:
        return None


def has_finished(folder: str) -> bool:
    """Return whether an attempt's last word is on this host's disk."""
    return (read_last(folder) or {}).get("state") == FINISHED


def _keep(data: bytes, folder: str) -> None:
    """Write a status beside the script's own files, whole or not at all; a full disk keeps the old one."""
    path = os.path.join(folder, LAST_FILE)
    try:
        with open(path + ".part", "wb") as stream:
            stream.write(data)
        os.replace(path + ".part", path)
    except OSError as error:
        say("%s: %s" % (path, error))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def now() -> str:
    """Return the current time as ISO-8601, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
