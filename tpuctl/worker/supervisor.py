"""Runs one script from start to end: code, packages, process, log, heartbeat, last word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Optional

from tpuctl.worker import bundle, environment, gcs, packages, reports
from tpuctl.worker.logs import LogShipper
from tpuctl.worker.spec import Spec
from tpuctl.worker.status import Status, now

TICK = 0.25
GRACE = 15.0
"""Seconds between SIGTERM and SIGKILL for the script: a preempted VM has about 30 in all."""
HEARSAY = 1.0
"""Seconds within which a host that goes away tells all of its programs."""
ENDED_BY_OTHERS = tuple(code for one in (signal.SIGTERM, signal.SIGKILL) for code in (-one, 128 + one))
"""Codes of a script that was told to end, or says that it was."""
PATIENCE = 3600.0
"""Seconds for which the last word is tried again, when the bucket cannot be reached."""
STARTED = "started"
"""File in the attempt's folder which says that the first status is in the bucket."""


class _Stopped(Exception):
    """The host was told to stop before the script had started."""


class Supervisor:
    """One worker's part of one attempt; `folder` is where it keeps everything on this host."""

    def __init__(self, spec: Spec, folder: str) -> None:
        self._spec = spec
        self._folder = folder
        self._log = os.path.join(folder, "log")
        self._code = os.path.join(folder, "code")
        self._reports = os.path.abspath(os.path.join(folder, "reports"))
        bucket = gcs.Bucket(spec.bucket)
        self._bucket = bucket
        self._status = Status(bucket, spec)
        self._shipper = LogShipper(bucket, spec.folder, self._log)
        self._preparing = False
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._stop_signal = 0
        self._term_sent = 0.0

    def run(self) -> None:
        """Run the script to its end, whatever that is, and leave the last word in the bucket."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        with open(self._log, "ab"):
            pass
        os.makedirs(self._reports, exist_ok=True)
        self._status.write(state="preparing", started=now())
        with open(os.path.join(self._folder, STARTED), "w", encoding="utf-8"):
            pass
        try:
            outcome = self._wait(self._start(self._prepare()))
        except _Stopped:
            outcome = {"error": "it was told to stop before the script had started"}
        except (bundle.BundleError, packages.PackageError, gcs.GcsError, OSError) as error:
            self._preparing = False
            outcome = {"error": "%s: %s" % (type(error).__name__, error)}
        self._finish(outcome)

    def _prepare(self) -> str:
        """Fetch code and packages, and return the packages' folder; a signal ends this with _Stopped."""
        spec = self._spec
        self._preparing = True
        if self._stop_signal:
            raise _Stopped
        bundle.fetch(self._bucket, spec.bundle, spec.bundle_sha256, self._code)
        installed = packages.ensure(spec.dependencies, os.path.join(self._folder, "packages"), self._log)
        self._preparing = False
        return installed

    def _start(self, installed: str) -> "subprocess.Popen[bytes]":
        spec = self._spec
        command: List[str] = [sys.executable, "-u", spec.script, *spec.arguments]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._code,
                env=environment.of_job(spec, installed, self._reports),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._process

    def _wait(self, process: "subprocess.Popen[bytes]") -> Dict[str, Any]:
        self._try(lambda: self._status.write(state="running", pid=process.pid))
        while process.poll() is None:
            self._pass_on_stop(process)
            self._tell()
            time.sleep(TICK)
        code = process.returncode
        if code in ENDED_BY_OTHERS:
            self._hear_of_the_end()
        if code < 0:
            return {"exit_code": 128 - code, "signal": signal.Signals(-code).name}
        return {"exit_code": code}

    def _hear_of_the_end(self) -> None:
        """Wait a moment for our own signal: a host that goes away may tell the script first."""
        end = time.monotonic() + HEARSAY
        while not self._stop_signal and time.monotonic() < end:
            time.sleep(0.01)

    def _tell(self) -> None:
        """Ship and beat when due."""
        if self._shipper.due():
            self._try(self._shipper.ship)
        if self._status.due():
            self._try(lambda: self._status.write(log_chunks=self._shipper.chunks))

    def _try(self, work: Callable[[], None]) -> bool:
        """Do it if the bucket lets us; the script goes on when it cannot be reached for a while."""
        try:
            work()
            return True
        except gcs.PreconditionError as error:
            print("[tpuctl] somebody else has written %s" % error, file=sys.stderr, flush=True)
            self._stop_signal = signal.SIGTERM  # two must not train into the same checkpoints
        except (gcs.GcsError, OSError) as error:
            print("[tpuctl] %s" % error, file=sys.stderr, flush=True)
        return False

    def _pass_on_stop(self, process: "subprocess.Popen[bytes]") -> None:
        if not self._stop_signal:
            return
        if not self._term_sent:
            self._term_sent = time.monotonic()
            _signal_group(process.pid, signal.SIGTERM)
        elif time.monotonic() > self._term_sent + GRACE:
            _signal_group(process.pid, signal.SIGKILL)

    def _finish(self, outcome: Dict[str, Any]) -> None:
        if self._stop_signal:
            outcome["stopped"] = signal.Signals(self._stop_signal).name
        outcome["finished"] = now()
        end = time.monotonic() + PATIENCE
        if not self._insist(self._shipper.ship, end):
            outcome.setdefault("error", "the end of the log could not be shipped")
        self._try(self._ship_reports)
        if not self._insist(lambda: self._write_end(outcome), end):
            raise gcs.GcsError("the bucket does not know how this ended")

    def _ship_reports(self) -> None:
        """Reports are a by-product: a bucket that does not take them does not keep the run from its end."""
        reports.ship(self._bucket, self._spec.folder + "reports/", self._reports)

    def _write_end(self, outcome: Dict[str, Any]) -> None:
        self._status.write(state="finished", log_chunks=self._shipper.chunks, **outcome)

    def _insist(self, work: Callable[[], None], end: float) -> bool:
        """Do it until it works, the time is up, or the host is told to stop: a run must not end unheard."""
        while not self._try(work):
            if self._stop_signal or time.monotonic() > end:
                return False
            time.sleep(TICK)
        return True

    def _on_signal(self, number: int, _frame: Optional[object]) -> None:
        self._stop_signal = number
        if self._preparing:
            self._preparing = False
            raise _Stopped
        if self._process and self._process.returncode is None:
            self._pass_on_stop(self._process)  # at once: the loop may be waiting for the bucket


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass
