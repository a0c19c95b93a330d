"""What holds a script back, and what stops it: locks of attempts, the line of its TPU, requests to stop.

In the line a run waits for the end of what was submitted to the TPU before. The line needs no server.

The order is that of the generations of the objects which say that an attempt is to run on the node: it is
the same for every host. Each host knows by itself whether what is ahead has ended there.

What no such object names works on the host all the same: its objects were deleted, or are in another bucket.
Two lines have no common order, and each may come first on another host: so nobody waits for what still waits.
What has left its line is waited for on the first host of a run alone, where one at a time leaves. The others
wait for what still runs there when all are ready.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import re
import time
from typing import BinaryIO, Callable, List, NamedTuple, Optional, Set, Union

from tpuctl.host import gcs, timing
from tpuctl.host.worker.records import (
    FINISHED,
    LARGEST_STOP,
    LOCK_FILE,
    RUNNING,
    STARTED,
    STATUS_FILE,
    STOP_FILE,
    Spec,
    StopRequest,
    read_stop,
)
from tpuctl.host.worker.reporting import read_last, say


def is_held(lock: BinaryIO) -> bool:
    """Return whether another process holds the lock, whose file is open; if not, this one shares it now."""
    return not _try(lock, fcntl.LOCK_SH)


def take(lock: Union[BinaryIO, int]) -> bool:
    """Return whether this process holds the lock alone by now; False where another one does.

    Who only looks at a lock shares it for that moment, which is waited for.
    """
    while not _try(lock, fcntl.LOCK_EX):
        if not _try(lock, fcntl.LOCK_SH):
            return False
        fcntl.flock(lock, fcntl.LOCK_UN)
        timing.sleep(timing.LOOK)
    return True


def _try(lock: Union[BinaryIO, int], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def first_lock(folder: str) -> Optional[BinaryIO]:
    """Return the lock of the attempt in a folder, held, for a supervisor to inherit.

    None where a supervisor has started before, or is being started. One whose start was cut off, as the host
    went down, has not started.
    """
    lock = open(os.path.join(folder, LOCK_FILE), "ab")  # noqa: SIM115  the caller closes it
    if not take(lock) or os.path.exists(os.path.join(folder, STARTED)):
        lock.close()
        return None
    os.utime(lock.fileno())  # it says when the supervisor was started
    return lock


def is_started(folder: str) -> bool:
    """Return whether a supervisor has started in a folder, or is being started."""
    return is_held_in(folder, LOCK_FILE) or os.path.exists(os.path.join(folder, STARTED))


def is_held_in(folder: str, name: str) -> bool:
    """Return whether a process holds the lock of this name in a folder; nobody holds one that is absent."""
    try:
        path = os.path.join(folder, name)  # of a pipe that a job left there, nobody waits for the other end
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as lock:
            return is_held(lock)
    except OSError:
        return False


def live_attempts(folder: str) -> List[str]:
    """Return the folders of attempts of other runs than that in `folder` whose supervisors live on this host.

    What the bucket lists does not count: their records may be gone, or in another bucket.
    """
    own = os.path.dirname(os.path.abspath(folder))
    locks = glob.glob(os.path.join(glob.escape(os.path.dirname(own)), "*", "*", LOCK_FILE))
    others = [os.path.dirname(lock) for lock in locks]
    return [other for other in others if os.path.dirname(other) != own and is_held_in(other, LOCK_FILE)]


def hold(path: str) -> int:
    """Return a descriptor that holds a lock, for a child to inherit: held until the last copy is closed.

    -1 where no file can be made, as on a full disk.
    """
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1
    try:
        take(descriptor)
    except OSError:  # a file system without locks
        pass
    return descriptor


ENTRY = re.compile(r"([a-z0-9][a-z0-9-]{0,62})/([1-9][0-9]{0,3})\.json")
ATTEMPT_FILE = "attempt.json"
TURN_FILE = "turn"
"""In the folder of all runs on the host: who leaves a line locks it for that moment."""
LARGEST_STATUS = 64 * 1024
LARGEST_ATTEMPT = 256 * 1024
MOST_ENTRIES = 10_000
LONGEST_REST = 600.0
"""Seconds for which a host waits for a run that has ended on the first host."""
LAUNCH = 300.0
"""Seconds within which a submission that was announced may still be on its way to this host."""


class _Entry(NamedTuple):
    """An attempt that was submitted to the node before this one."""

    run: str
    attempt: str
    announced: float
    """When, by this process's monotonic clock."""


class Turn:
    """The place of one attempt in the line of its node; `folder` is the attempt's on this host."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec, folder: str) -> None:
        self._bucket = bucket
        self._spec = spec
        self._folder = os.path.abspath(folder)
        self._runs = os.path.dirname(os.path.dirname(self._folder))
        self._listed: Set[str] = set()
        """The folders of all attempts in the line, also of those behind this one."""
        self._ahead: Optional[List[_Entry]] = None
        """What has not ended; None before the line is known."""
        self._patience = timing.Patience()

    def wait(self, note: Callable[[int], object], leave: Callable[[], object]) -> None:
        """Return once everything ahead has ended on this host; `note` gets each new count of what has not.

        `leave` notes on this host that the line is left. Raises TimeoutError after the time for which the run
        is to wait.
        """
        start, limit = time.monotonic(), self._spec.line_timeout
        count = 0
        for pause in timing.growing(timing.FIRST_LOOK, timing.LONGEST_LOOK):
            ahead = self.look()
            if ahead == 0:
                ahead = self.leave(leave)
            if ahead == 0:
                return
            if ahead is not None and ahead != count:
                count = ahead
                note(count)
            if limit and time.monotonic() >= start + limit:
                raise TimeoutError("its turn did not come within %.0f s, %d ahead" % (limit, count))
            timing.sleep(pause)

    def look(self) -> Optional[int]:
        """Return how many are ahead on this host by now; None while that is not known.

        Raises gcs.RefusedError where the bucket has refused for minutes to say it.
        """
        try:
            entries = self._entries() if self._ahead is None else self._ahead
            self._ahead = [entry for entry in entries if self._blocks(entry)]
        except (gcs.GcsError, OSError, ValueError) as error:
            if isinstance(error, gcs.RefusedError) and self._patience.is_over():
                raise
            say("the line for the TPU is not known: %s" % error)
        else:
            self._patience.renew()
        return None if self._ahead is None else len(self._ahead)

    def leave(self, leave: Callable[[], object]) -> int:
        """Leave the line unless runs that it does not name keep this one waiting; return how many do."""
        if self._spec.worker != min(self._spec.participants, default=self._spec.worker):
            leave()
            return 0
        with open(os.path.join(self._runs, TURN_FILE), "ab") as lock:
            if not take(lock):
                return 1
            others = [folder for folder in live_attempts(self._folder) if folder not in self._listed]
            ahead = len([folder for folder in others if _has_left_its_line(folder)])
            if not ahead:
                leave()
            return ahead

    def _entries(self) -> List[_Entry]:
        """Return what was submitted to the node before: no other can come between, so it is listed once."""
        own = "%s/%d.json" % (self._spec.run, self._spec.attempt)
        listed, generation, now = [], None, time.monotonic()
        for item in self._bucket.list(self._spec.line, most=MOST_ENTRIES):
            name = item.name[len(self._spec.line) :]
            match = ENTRY.fullmatch(name)
            if match:
                self._listed.add(os.path.join(self._runs, *match.groups()))
            if name == own:
                generation = item.generation
            elif match:
                entry = _Entry(match.group(1), match.group(2), now - item.age)
                listed.append((item.generation, entry))
        return [entry for place, entry in sorted(listed) if generation is None or place < generation]

    def _blocks(self, entry: _Entry) -> bool:
        """Return whether an attempt may still use this host."""
        folder = os.path.join(self._runs, entry.run, entry.attempt)
        try:
            return _is_alive(folder)
        except FileNotFoundError:  # another login started it, or it was never here
            return self._is_said_to_run(entry)

    def _is_said_to_run(self, entry: _Entry) -> bool:
        """Return whether an attempt's worker on this host has not said in the bucket that it has ended."""
        name = "runs/%s/attempts/%s/workers/%d/%s" % (
            entry.run,
            entry.attempt,
            self._spec.worker,
            STATUS_FILE,
        )
        generation, data = self._bucket.read(name, LARGEST_STATUS)
        if not generation:
            return time.monotonic() < entry.announced + LAUNCH and self._may_come(entry)
        try:
            status = json.loads(data)
            beat = timing.moment(status["heartbeat"])
            is_over = status["state"] == FINISHED
        except (ValueError, TypeError, KeyError, RecursionError):
            return False  # no status: nobody waits for it
        return not is_over and abs(time.time() - beat) < timing.NEIGHBOUR_SILENCE  # by this host's own clock

    def _may_come(self, entry: _Entry) -> bool:
        """Return whether an attempt that has written nothing here may be on its way to this host.

        Its record, which comes after the entry, says which hosts of a slice it uses.
        """
        name = "runs/%s/attempts/%s/%s" % (entry.run, entry.attempt, ATTEMPT_FILE)
        generation, data = self._bucket.read(name, LARGEST_ATTEMPT)
        try:
            return not generation or self._spec.worker in json.loads(data)["workers"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return True


def _has_left_its_line(folder: str) -> bool:
    """Return whether a live attempt is at work: before its first status it may be."""
    status = read_last(folder)
    return status is None or bool(status.get("started") and status.get("state") != FINISHED)


def runs_beside(folder: str) -> bool:
    """Return whether the script of another run is at work on this host."""
    others = (read_last(other) or {} for other in live_attempts(folder))
    return any(status.get("state") == RUNNING for status in others)


def _is_alive(folder: str) -> bool:
    """Return whether a supervisor holds the lock of its attempt; raises FileNotFoundError without a lock."""
    path = os.path.join(folder, LOCK_FILE)
    with open(path, "rb") as lock:
        if is_held(lock):
            return True
        is_young = time.time() < os.fstat(lock.fileno()).st_mtime + timing.START_TIMEOUT
    return is_young and not os.path.exists(os.path.join(folder, STARTED))


class Stops:
    """Looks for the request to stop one run; `folder` is the attempt's on this host."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec, folder: str) -> None:
        self._bucket = bucket
        self._run = spec.run
        self._name = "runs/%s/%s" % (spec.run, STOP_FILE)
        self._path = os.path.join(folder, STOP_FILE)
        self._refused = 0
        """Generation of an object that is no request: it is said once."""
        self._next = time.monotonic() + timing.HEARTBEAT
        self.request: Optional[StopRequest] = None
        """Who asks, once somebody does; never taken back."""

    def look(self) -> bool:
        """Return whether somebody asks by now: the host's file is looked for each time.

        The bucket is asked with each heartbeat. Raises gcs.GcsError where it does not answer.
        """
        if self.request is None:
            self.request = self._on_disk()
        if self.request is None and time.monotonic() >= self._next:
            self.look_in_bucket()
        return self.request is not None

    def look_in_bucket(self) -> None:
        """Ask the bucket now: a script may have failed because those of other workers were stopped."""
        self._next = time.monotonic() + timing.HEARTBEAT
        self.request = self.request or self._in_bucket()

    def _on_disk(self) -> Optional[StopRequest]:
        try:
            with open(self._path, "rb") as stream:
                data = stream.read(LARGEST_STOP)
        except OSError:
            return None
        try:
            return read_stop(data, self._run)
        except ValueError as error:
            say("%s is no request to stop this run: %s" % (self._path, error))
            os.unlink(self._path)
            return None

    def _in_bucket(self) -> Optional[StopRequest]:
        """Return the request in the bucket; anybody may have written it, and what is none stops nothing."""
        generation, size = self._bucket.stat(self._name)
        if not generation or generation == self._refused:
            return None
        try:
            if size > LARGEST_STOP:
                raise ValueError("it has %d bytes" % size)
            return read_stop(self._bucket.get(self._name, generation), self._run)
        except FileNotFoundError:  # replaced in this moment
            return None
        except ValueError as error:
            say("gs://%s/%s is no request to stop this run: %s" % (self._bucket.name, self._name, error))
            self._refused = generation
            return None
