"""Tells the bucket of one worker: heartbeats and the log while the script runs, and the last word."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Callable, List, Optional

from tpuctl.host import gcs, timing
from tpuctl.host.worker.errand import Errand
from tpuctl.host.worker.records import (
    EXECUTED,
    FINISHED,
    NOTEBOOK,
    REPORTS_FOLDER,
    RUNNING,
    Spec,
    WorkerStatus,
    attempt_folder,
)
from tpuctl.host.worker.reporting.logs import LogShipper, say
from tpuctl.host.worker.reporting.status import AnotherSupervisorError, StatusWriter
from tpuctl.host.worker.signals import Signals

LARGEST_FILE = 32 * 1024 * 1024
"""Most bytes of one report: larger files belong in the run's outputs."""


def ship(bucket: gcs.Bucket, name: str, folder: str) -> None:
    """Copy the finished files of `folder` to the bucket's folder `name`; files over LIMIT are skipped."""
    files = _finished_files(folder)
    if not files:
        return
    import mimetypes  # noqa: PLC0415  slow, and most scripts write no report

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
