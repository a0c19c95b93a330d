"""What a worker tells the bucket: status, log, reports.

- Ships a growing local log to the bucket as numbered, immutable chunks.
- Writes this worker's status and heartbeat into the bucket; no other program's write stops it.

  Whoever can write to the bucket can write a status. Only the supervisors of one attempt know its key, so
  only a status that is sealed with it is another supervisor's, and ends this one; any other is replaced.
- Tells the bucket of one worker: heartbeats and the log while the script runs, and the last word.
"""

from __future__ import annotations

import hmac
import json
import os
import signal
import sys
import threading
import time
from dataclasses import fields, replace
from itertools import takewhile
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from tpuctl.host import gcs, timing
from tpuctl.host.worker.errand import Errand
from tpuctl.host.worker.records import (
    EXECUTED,
    FINISHED,
    LOG_FOLDER,
    NOTEBOOK,
    ORDERED_LOG,
    PIECES,
    PREPARING,
    REPORTS_FOLDER,
    RUNNING,
    STATUS_FILE,
    Piece,
    Spec,
    WorkerStatus,
    attempt_folder,
    encode,
    ordered_log_file,
    pieces_text,
    read_pieces,
    status_type,
)
from tpuctl.host.worker.signals import Signals

CHUNK = 4 * 1024 * 1024
"""Most bytes of one chunk, which is an object, and a `Piece` of records.py."""
TEXT = "text/plain; charset=utf-8"
SET = 32
"""Chunks that are joined into one object: the most that the service takes at once."""
FEW = 8
"""Chunks of a whole log that stay as they are."""


class _Stored(NamedTuple):
    """An object of a worker's log."""

    item: gcs.Item
    number: int
    """Of its first chunk."""
    pieces: List[Piece]
    """The chunks that it has: one, unless some were joined."""
    is_left: bool
    """Whether another object has its chunk, too: it was to be deleted."""


class LogShipper:
    """Reads a file from the last offset and writes what is new as the next chunk."""

    def __init__(self, bucket: gcs.Bucket, folder: str, worker: int, path: str) -> None:
        """Take the attempt's `folder` in the bucket, and the log's `path` on this host."""
        self._bucket = bucket
        self._folder = folder
        self._worker = worker
        self._name = ""
        self._path = path
        self._offset = 0
        self._pending = b""
        self._began = time.monotonic()
        self._next = 0.0
        self._is_behind = False
        self._joined = 0
        """How many chunks there were when some were joined last."""
        self._start = ""
        """The last object that they were joined into."""
        self._may_join = True
        self.chunks = 0

    def due(self) -> bool:
        """Return whether it is time to ship again."""
        return time.monotonic() >= self._next

    def resume(self) -> None:
        """Begin behind what is in the bucket, whoever has shipped it."""
        self._is_behind = True

    def _find_place(self) -> None:
        stored = [one for one in self._stored() if not one.is_left]
        self.chunks = max([self.chunks, *(one.number + len(one.pieces) - 1 for one in stored)])
        self._offset, self._is_behind = sum(one.item.size for one in stored), False

    def _stored(self) -> List[_Stored]:
        """Return this worker's objects from the last joined one on, in the order of the log."""
        folder = self._folder + LOG_FOLDER
        glob = "%s*-%04d-*.log" % (folder, self._worker)
        found: List[_Stored] = []
        for item in self._bucket.list(folder, glob, start=self._start):
            file = item.name[len(folder) :]
            match = ORDERED_LOG.fullmatch(file)
            if match:
                alone = Piece(file, item.generation, item.size, item.updated)
                pieces = read_pieces(item.metadata.get(PIECES, ""), file, item.size) or [alone]
                found.append(_Stored(item, int(match[2]), pieces, False))
        joined = {piece.file for one in found for piece in one.pieces[1:]}
        found = [one._replace(is_left=one.pieces[0].file in joined) for one in found]
        return sorted(found, key=lambda one: one.number)

    def is_full(self) -> bool:
        """Return whether a set of chunks can be joined while as many newer ones stay."""
        return self._may_join and self.chunks >= self._joined + 2 * SET

    def join(self, is_over: bool = False) -> None:
        """Join chunks into objects of SET each: full sets without the newest, or all once the log is over.

        A joined object says which chunks it has before one of them is deleted: readers read each once,
        wherever this ends, and the next call deletes the rest. What the bucket refuses is not tried again.
        """
        if not self._may_join:
            return
        self._joined = self.chunks - SET
        try:
            stored = self._stored()
            for one in stored:
                if one.is_left:
                    self._bucket.delete(one.item)
            single = [one for one in stored if len(one.pieces) == 1 and not one.is_left]
            is_rest = is_over and (len(single) >= FEW or len(single) < len(stored))
            least = 2 if is_rest else 2 * SET
            while len(single) >= least:
                row = _row(single)
                self._join(row)
                single = single[len(row) :]
        except gcs.RefusedError:
            self._may_join = False
            raise

    def _join(self, row: Sequence[_Stored]) -> None:
        """Make one object of chunks without a gap, over the first, and delete the others."""
        self._start, self._joined = row[0].item.name, row[-1].number
        if len(row) > 1:
            said = pieces_text([one.pieces[0] for one in row])
            self._bucket.compose([one.item for one in row], TEXT, {PIECES: said})
            for one in row[1:]:
                self._bucket.delete(one.item)

    def ship(self) -> None:
        """Ship everything that is new; a chunk that fails is retried with the same bytes the next time.

        The pause begins with a chunk: what a silent script prints is shipped at the next look.
        """
        if self._is_behind:
            self._find_place()
        before = self.chunks
        with open(self._path, "rb") as stream:
            while True:
                stream.seek(self._offset)
                self._pending = self._pending or stream.read(CHUNK)
                if not self._pending:
                    break
                try:
                    self._put()
                except gcs.RefusedError:
                    self._next = time.monotonic() + timing.HEARTBEAT
                    raise
        if self.chunks > before:
            self._next = time.monotonic() + self._pause()

    def _put(self) -> None:
        """Create the next chunk; a name that another program has taken is left to it."""
        self._name = self._name or self._next_name()  # the same name again after a failure
        while not self._bucket.create(self._name, self._pending, TEXT):
            text = "another program has written gs://%s/%s: it is skipped"
            say(text % (self._bucket.name, self._name))
            self.chunks += 1
            self._name = self._next_name()
        self.chunks += 1
        self._offset += len(self._pending)
        self._pending, self._name = b"", ""

    def _next_name(self) -> str:
        moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._bucket.now()))
        return self._folder + ordered_log_file(moment, self._worker, self.chunks + 1)

    def _pause(self) -> float:
        age = time.monotonic() - self._began
        return next(pause for limit, pause in timing.LOG_INTERVALS if age < limit)


def _row(single: Sequence[_Stored]) -> Sequence[_Stored]:
    """Return the first chunks, at most SET, without those after a gap in their numbers."""
    first = single[0].number
    return [one for _, one in takewhile(lambda at: at[1].number == first + at[0], enumerate(single[:SET]))]


PREFIX = "[tpuctl] "


def say(text: str) -> None:
    """Write a line into the supervisor's own log; a full disk ends nothing."""
    try:
        print(PREFIX + text, file=sys.stderr, flush=True)
    except OSError:
        pass


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


LARGEST_FILE = 32 * 1024 * 1024
"""Most bytes of one report: larger files belong in the run's outputs."""


def ship(bucket: gcs.Bucket, name: str, folder: str) -> None:
    """Copy the finished files of `folder` to the bucket's folder `name`, but those over LARGEST_FILE."""
    files = _finished_files(folder)
    if not files:
        return
    import mimetypes  # slow, and most scripts write no report

    for file in files:
        path = os.path.join(folder, file)
        size = os.path.getsize(path)
        if size > LARGEST_FILE:
            say("the report %s has %d bytes: skipped" % (file, size))
            continue
        with open(path, "rb") as stream:
            data = stream.read()
        kind = mimetypes.guess_type(file)[0] or "application/octet-stream"
        if not bucket.create(name + file, data, kind):
            say("another program has written the report %s" % file)


def _finished_files(folder: str) -> List[str]:
    """Return names of plain files: no links, which may point anywhere, and no drafts."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    return sorted(name for name in names if not name.startswith(".") and not name.endswith(".part"))


class Reporter:
    """Owns what one supervisor writes about itself; `folder` is the attempt's on this host."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec, folder: str, signals: Signals) -> None:
        self.log = os.path.join(folder, "log")
        """What the script prints."""
        self.reports = os.path.abspath(os.path.join(folder, "reports"))
        """Files about the packages, and what the script leaves there."""
        self.status = StatusWriter(bucket, spec, folder)
        self._bucket = bucket
        self._spec = spec
        self._signals = signals
        self._shipper = LogShipper(bucket, attempt_folder(spec.folder), spec.worker, self.log)
        self._patience = timing.Patience()
        self._heartbeat = Errand(self.status.due, self._beat)
        self._shipping = Errand(self._shipper.due, self._ship)

    def start(self) -> None:
        """Write heartbeats, and ship the log, until `finish`."""
        self._heartbeat.start()
        self._shipping.start()

    def resume(self) -> None:
        """Go on where another supervisor of the attempt has stopped."""
        self.status.resume()
        self._shipper.resume()

    def attempt(self, work: Callable[[], object]) -> bool:
        """Return whether `work` succeeded: the script keeps running while the bucket cannot be reached."""
        try:
            work()
            return True
        except AnotherSupervisorError as error:
            say(str(error))
            self._signals.number = signal.SIGTERM  # two must not train into the same checkpoints
        except (gcs.GcsError, OSError) as error:
            say(str(error))
        except Exception as error:  # such as an answer that is no JSON: nothing ends the watch over a script
            say("%s: %s" % (type(error).__name__, error))
        return False

    def retry(
        self, work: Callable[[], None], deadline: float, on_refusal: Callable[[str], None] = lambda _: None
    ) -> bool:
        """Try `work` until it succeeds, the deadline has passed, or the host is stopped.

        What the bucket refuses is tried more and more seldom, and given up sooner; `on_refusal` gets why.
        """
        refusal = ""

        def note_refusal() -> None:
            nonlocal refusal
            refusal = ""
            try:
                work()
            except gcs.RefusedError as error:
                refusal = error.answer
                raise

        pauses = timing.growing(timing.POLL_INTERVAL, timing.LONGEST_REFUSED_PAUSE)
        while not self.attempt(note_refusal):
            if refusal:
                on_refusal(refusal)
            is_late = bool(refusal) and self._patience.is_over()
            if self._signals.number or is_late or time.monotonic() > deadline:
                return False
            if refusal:
                timing.wait_until(lambda: bool(self._signals.number), next(pauses))
            else:
                timing.pause()
        self._patience.renew()
        return True

    def update(self, **changes: object) -> bool:
        """Return whether the newest status was written, with changes."""
        return self.attempt(lambda: self.status.update(**changes))

    def finish_log(self, status: WorkerStatus, deadline: float) -> WorkerStatus:
        """Ship the rest of the log, and the reports; return the status with what could not be shipped."""
        self._shipping.end()
        is_whole = self.retry(self._shipper.ship, deadline, self.status.keep_refusal)
        if is_whole and not self._signals.number:  # a host that is being stopped has no time
            self.attempt(lambda: self._shipper.join(is_over=True))
        elif not is_whole and not status.error:
            status = replace(status, error="the end of the log could not be shipped")
        self.attempt(self._ship_reports)  # a by-product: the run ends also without them
        return status

    def finish(self, status: WorkerStatus, deadline: float) -> None:
        """Write the last status; raises gcs.GcsError where that is not possible until the deadline."""
        self._heartbeat.end()
        last = replace(status, state=FINISHED, log_chunks=self._shipper.chunks)
        if not self.retry(lambda: self.status.write(last), deadline, self.status.keep_refusal):
            raise gcs.GcsError("the last status could not be written")

    def _ship(self) -> None:
        if self.attempt(self._shipper.ship) and self._shipper.is_full():
            self.attempt(self._shipper.join)

    def _beat(self) -> None:
        self.update(log_chunks=self._shipper.chunks, quiet=self._quiet())

    def _quiet(self) -> Optional[int]:
        """Return for how long the script has printed nothing; None where none runs, or its log is gone."""
        try:
            is_running = self.status.last.state == RUNNING
            return max(0, int(time.time() - os.stat(self.log).st_mtime)) if is_running else None
        except OSError:
            return None

    def _ship_reports(self) -> None:
        ship(self._bucket, self._spec.folder + REPORTS_FOLDER, self.reports)
        first = min(self._spec.participants or (self._spec.worker,))
        if self._spec.kind == NOTEBOOK and self._spec.worker == first:
            self._ship_notebook(os.path.basename(self._spec.script))

    def _ship_notebook(self, name: str) -> None:
        """Write the notebook with its outputs among the run's; that of another attempt has its number."""
        path = os.path.join(os.path.dirname(self.reports), EXECUTED, name)
        if not os.path.exists(path):
            return
        with open(path, "rb") as stream:
            data = stream.read()
        stem, number = os.path.splitext(name)[0], self._spec.attempt
        written = name if number == 1 else "%s-attempt%d.ipynb" % (stem, number)
        place = "runs/%s/outputs/%s" % (self._spec.run, written)
        if not self._bucket.create(place, data, "application/x-ipynb+json"):
            say("another program has written %s" % place)
