"""Brings the hosts of an attempt together after a reboot: all of them start the next one, or none.

Each host writes an object again and again while it waits. Once all are there, the first worker makes the next
attempt; the others look for it. A run that has ended, or that somebody asks to stop, has none.
"""

from __future__ import annotations

import hmac
import json
import re
import time
from dataclasses import replace
from typing import Dict, Mapping, Optional, Tuple

from tpuctl.host import gcs, timing
from tpuctl.host.worker.records import (
    MAINTENANCE,
    REBOOT,
    STATUS_FILE,
    STOP_FILE,
    Spec,
    WorkerStatus,
    attempt_folder,
)
from tpuctl.host.worker.reporting.logs import say
from tpuctl.host.worker.reporting.status import status_of

FOLDER = "resume/"
"""Inside the attempt's folder; its names end like those of statuses, which hosts may overwrite."""
LIMIT = 64 * 1024
"""Bytes of a verdict or a status that are read."""
RESTARTED = (MAINTENANCE, REBOOT)
"""Causes of a stop after which a host comes back with its disk."""


class _Refused(Exception):
    """No reboot has ended the attempt."""


class Meeting:
    """One worker's view of it; `status` is its last word."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec, status: WorkerStatus) -> None:
        self._bucket = bucket
        self._spec = spec
        self._status = status
        self._folder = attempt_folder(spec.folder) + FOLDER
        self._workers = sorted(spec.participants) or [spec.worker]
        self._written = -timing.FRESH
        self.successor = Successor(bucket, spec)

    def wait(self) -> bool:
        """Return whether the workers have made the next attempt; False where this one is not resumed here.

        A bucket that cannot be reached delays it. It gives up in the end.
        """
        end = time.monotonic() + timing.MEETING_TIMEOUT
        for pause in timing.growing(timing.FIRST_LOOK, timing.LONGEST_MEETING_LOOK):
            answer = self._try()
            if answer is not None:
                return answer
            if time.monotonic() > end:
                say("not resumed: not every host of the run came back")
                return False
            timing.sleep(pause)
        raise AssertionError("the pauses have no end")

    def refuse(self) -> None:
        """Tell the others that this worker resumes nothing; raises gcs.GcsError."""
        if len(self._workers) > 1:
            self._bucket.create(self._place("no"), b"{}\n", "application/json")

    def _try(self) -> Optional[bool]:
        try:
            return self._look()
        except _Refused as refusal:
            say("not resumed: %s" % refusal)
            return self._try_to_refuse()
        except (gcs.GcsError, OSError, ValueError, KeyError) as error:
            say("waiting to resume the run: %s: %s" % (type(error).__name__, error))
            return None

    def _try_to_refuse(self) -> Optional[bool]:
        try:
            self.refuse()
        except (gcs.GcsError, OSError):
            return None
        return False

    def _look(self) -> Optional[bool]:
        made = self.successor.look()
        if made is not None:
            return made
        reason = self._reason_against()
        if reason:
            say("not resumed: %s" % reason)
            return False
        if not self._is_peer_restarted():
            return None
        self._appear()
        return self._lead() if self._spec.worker == self._workers[0] else None

    def _lead(self) -> Optional[bool]:
        """Make the next attempt if all are here; raises _Refused where no host was to come back."""
        told = self._restarted()
        if told is None or self.successor.is_leased() or not self._are_all_here():
            return None
        self.successor.make(told)
        return self.successor.look()

    def _reason_against(self) -> str:
        run = "runs/%s/" % self._spec.run
        if self._bucket.stat(run + STOP_FILE)[0]:
            return "somebody asked to stop the run"
        if len(self._workers) > 1 and self._bucket.stat(self._place("no"))[0]:
            return "another host of the run has ended for good"
        verdict = record_in(self._bucket.read(run + "verdict.json", LIMIT)[1])
        attempt = verdict.get("attempt")
        if isinstance(attempt, int) and attempt >= self._spec.attempt and not verdict.get("restarts"):
            return "the run has ended: %s" % verdict.get("outcome")
        return ""

    def _is_peer_restarted(self) -> bool:
        """Return whether the worker whose end ended this one was stopped with its host; False while unknown.

        Raises _Refused where it ended by itself.
        """
        if self._status.stopped or self._status.peer is None:
            return True
        other = self._word(self._status.peer)
        return bool(other and other.stopped)

    def _restarted(self) -> Optional[WorkerStatus]:
        """Return the word of a worker whose host says that it was to come back; None while none does.

        A host of several may get no notice of the maintenance of all. Raises _Refused where none did.
        """
        if self._status.cause in RESTARTED:
            return self._status
        words = [self._word(worker) for worker in self._workers if worker != self._spec.worker]
        told = [word for word in words if word and word.cause in RESTARTED]
        if not told and all(words):
            raise _Refused("no host of the run announced a maintenance: somebody has stopped the TPU")
        return told[0] if told else None

    def _word(self, worker: int) -> Optional[WorkerStatus]:
        """Return a worker's last word; None while its host is down. Raises _Refused for its own end."""
        name = "%sworkers/%d/%s" % (attempt_folder(self._spec.folder), worker, STATUS_FILE)
        generation, data = self._bucket.read(name, LIMIT)
        status = status_of(record_in(data)) if generation else None
        if status is None or not status.is_finished:
            return None
        if status.stopped_by or not (status.stopped or status.peer is not None):
            raise _Refused("worker %d has ended by itself" % worker)
        return status

    def _appear(self) -> None:
        """Say that this host is up, so that nobody counts on one that has gone down again."""
        if len(self._workers) > 1 and time.monotonic() > self._written + timing.FRESH / 3:
            self._bucket.put(self._place("%04d" % self._spec.worker), b"{}\n")
            self._written = time.monotonic()

    def _are_all_here(self) -> bool:
        if len(self._workers) == 1:
            return True
        ages = {item.name: item.age for item in self._bucket.list(self._folder)}
        places = [self._place("%04d" % worker) for worker in self._workers]
        return all(ages.get(place, timing.FRESH) < timing.FRESH for place in places)

    def _place(self, name: str) -> str:
        """Return the object of this name: only who has the key knows it."""
        place = self._folder + name
        seal = hmac.new(self._spec.key.encode(), place.encode(), "sha256").hexdigest()[:32]
        return "%s-%s/%s" % (place, seal, STATUS_FILE)


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
        for line in (resumption.line, *resumption.others):
            self._create("%s%s/%d.json" % (line, self._spec.run, self.number), note)
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
