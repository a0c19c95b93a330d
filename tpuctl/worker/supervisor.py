"""Runs one script from start to end: code, packages, process, log, heartbeats, last status."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from typing import Callable, Optional

from tpuctl.worker import gcs, timing
from tpuctl.worker.control import chips
from tpuctl.worker.control.stops import Stops
from tpuctl.worker.errand import Errand
from tpuctl.worker.job import causes
from tpuctl.worker.job.abandoned import abandoned
from tpuctl.worker.job.script import STOP_CODES, Script, Sentinel
from tpuctl.worker.peers.peers import Peers, reason_of
from tpuctl.worker.preparation import environment, steps
from tpuctl.worker.records import (
    FINISHED,
    PREPARING,
    QUEUED,
    READY,
    REPORTS_FOLDER,
    RUNNING,
    STARTED,
    Spec,
    WorkerStatus,
    attempt_folder,
)
from tpuctl.worker.reporting import reports
from tpuctl.worker.reporting.logs import LogShipper, say
from tpuctl.worker.reporting.status import AnotherSupervisorError, StatusWriter, now


class _Stopped(BaseException):
    """The host or the run was stopped, or another worker ended, before the script started.

    Raised by a signal at any moment: nothing that handles errors on the way may take it for one.
    """


class Supervisor:
    """One worker's part of one attempt; `folder` holds all of its files on this host."""

    def __init__(self, spec: Spec, folder: str, guard: int = 0) -> None:
        """Take the pid of the `guard` above this process; 0 for none."""
        self._spec = spec
        self._folder = folder
        self._guard = guard
        self._log = os.path.join(folder, "log")
        self._reports = os.path.abspath(os.path.join(folder, "reports"))
        self._bucket = gcs.Bucket(spec.bucket)
        self._status = StatusWriter(self._bucket, spec, folder)
        self._shipper = LogShipper(self._bucket, attempt_folder(spec.folder), spec.worker, self._log)
        self._preparing = False
        self._stop_signal = 0
        self._stop_time = 0.0
        self._stop_cause: Optional[str] = None
        self._stops = Stops(self._bucket, spec, folder)
        self._is_cancelled = False
        self._oom_kills = causes.count_oom_kills()
        self._sentinel = Sentinel()
        self._peers = Peers(self._bucket, spec, on_end=_wake)
        self._watching = Errand(self._peers.due, lambda: self._try(self._peers.look))
        self._heartbeat = Errand(self._status.due, self._beat)
        self._shipping = Errand(self._shipper.due, lambda: self._try(self._shipper.ship))
        self._listening = Errand(lambda: not self._stops.request, self._listen)

    def run(self) -> None:
        """Run the script until it ends, however it ends, and leave the last status in the bucket."""
        self._hear_signals()
        self._announce()
        self._heartbeat.start()
        self._shipping.start()
        self._listening.start()
        if self._peers.are_any:
            self._watching.start()
        try:
            self._finish(self._run_script())
        finally:
            self._sentinel.close()

    def take_over(self, error: str, code: int, oom_kills: int, stop_signal: int) -> None:
        """Say the last word for a supervisor that ended with `code` and without one, and end what it left."""
        self._hear_signals()
        self._stop_signal = stop_signal
        self._status.resume()
        self._shipper.resume()
        say(error)
        self._try(self._stops.look)
        self._try(self._stops.look_in_bucket)
        self._is_cancelled = bool(self._stops.request)
        status = self._status.last
        if status.exit_code is None:  # else only its last word was missing
            cause = causes.of_failure(self._log, "SIGKILL", oom_kills) if code == -signal.SIGKILL else ""
            status = replace(status, error=error, cause=cause)
        try:
            self._finish(status)
        finally:
            self._sentinel.close()

    def _hear_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGUSR1, lambda number, frame: self._interrupt())

    def _announce(self) -> None:
        """Write the first status: `launch` waits for the file that follows it."""
        with open(self._log, "ab"):
            pass
        os.makedirs(self._reports, exist_ok=True)
        self._status.write(replace(self._status.last, state=PREPARING, started=now()))
        started = os.path.join(self._folder, STARTED)
        with open(started + ".part", "w", encoding="ascii") as stream:
            stream.write(str(os.getpid()))
        os.replace(started + ".part", started)

    def _run_script(self) -> WorkerStatus:
        """Return the status that says how the script ended, or why it did not start."""
        try:
            return self._watch(self._start(self._prepare()))
        except _Stopped:
            self._is_cancelled = bool(self._stops.request) and not self._stop_signal
            return replace(self._status.last, error=self._why_not_started())
        except (*steps.ERRORS, gcs.GcsError, OSError) as error:
            self._preparing = False
            text = "%s: %s" % (type(error).__name__, error)
            return replace(self._status.last, error=text, cause=causes.of_error(error))

    def _prepare(self) -> str:
        """Prepare the host, wait for the other workers, and return the packages' folder.

        A signal ends this with _Stopped, as do somebody's request and another worker's end.
        """
        self._preparing = True
        self._check()
        if self._spec.line:
            self._await_turn()
        self._end_earlier()
        installed = steps.prepare(self._bucket, self._spec, self._folder, self._log, self._reports)
        if self._peers.are_any:
            self._try(lambda: self._status.update(state=READY))
            self._peers.wait_for_all()
        self._preparing = False
        self._check()
        return installed

    def _end_earlier(self) -> None:
        """End the scripts of earlier runs that nobody watches: they hold the chips."""
        others = abandoned(self._folder)
        if others:
            from tpuctl.worker.job import leftovers  # noqa: PLC0415  where there are none, a start needs none

            leftovers.end_earlier(others)

    def _end_leftovers(self, script: int) -> None:
        from tpuctl.worker.job import leftovers  # noqa: PLC0415  as above

        grace = timing.SIGNAL_DELAY if self._stop_signal else timing.LEFTOVER_GRACE
        leftovers.end(self._folder, script, (self._guard, self._sentinel.pid), grace)

    def _await_turn(self) -> None:
        from tpuctl.worker.control.turns import Turn  # noqa: PLC0415  most runs wait for none

        def note(ahead: int) -> None:
            self._try(lambda: self._status.update(state=QUEUED, ahead=ahead))

        Turn(self._bucket, self._spec, self._folder).wait(note)
        self._try(lambda: self._status.update(state=PREPARING, ahead=0))

    def _check(self) -> None:
        if self._stop_signal or self._stops.request or self._peers.end:
            raise _Stopped

    def _why_not_started(self) -> str:
        if self._peers.end and not self._stop_signal and not self._is_cancelled:
            return "not started, because %s" % self._peers.end.reason
        subject = "run" if self._is_cancelled else "host"
        return "the %s was stopped before the script started" % subject

    def _start(self, installed: str) -> Script:
        self._try(lambda: chips.write_holders(self._log))
        variables = environment.of_job(self._spec, installed, self._reports)
        command = (self._spec.script, *self._spec.arguments)
        return Script(command, self._code_folder, variables, self._log)

    @property
    def _code_folder(self) -> str:
        return os.path.join(self._folder, steps.CODE)

    def _watch(self, script: Script) -> WorkerStatus:
        """Wait until the script ends; a host that stops ends it, as does another worker's end."""
        self._try(lambda: self._status.update(state=RUNNING, pid=script.pid))
        code = script.poll()
        while code is None:
            request = self._stops.request
            self._is_cancelled = bool(request)
            if self._stop_signal:
                self._stop(script)
            elif request:
                script.stop(grace=request.grace)
            elif self._peers.end:
                script.stop()
            timing.pause()
            code = script.poll()
        if code in STOP_CODES and not self._is_cancelled and not self._peers.end:
            # A host that shuts down may signal the script before the supervisor.
            timing.wait_until(lambda: bool(self._stop_signal), timing.SIGNAL_DELAY, interval=0.01)
        if code < 0:
            return self._ended(128 - code, signal.Signals(-code).name)
        return self._ended(code, "")

    def _stop(self, script: Script) -> None:
        """End the script: by the host's own signal where the host stops, else by ours."""
        if self._sentinel.is_signalled:
            script.stop(is_signalled=True)
        elif time.monotonic() >= self._stop_time + timing.SIGNAL_DELAY:
            script.stop()
        self._ask_why()

    def _ask_why(self) -> None:
        """Ask the host once why it stops, and keep the answer: it may leave no time for a last word."""
        if self._stop_cause is None:
            self._stop_cause = causes.of_stop()
            name = signal.Signals(self._stop_signal).name
            self._status.keep(replace(self._status.last, stopped=name, cause=self._stop_cause))

    def _listen(self) -> None:
        """Look whether somebody asks to stop the run; the main thread may wait for a package then."""
        if self._try(self._stops.look) and self._stops.request:
            say("%s asks to stop the run" % self._stops.request.by)
            _wake()

    def _ended(self, code: int, name: str) -> WorkerStatus:
        status = replace(self._status.last, exit_code=code, signal=name)
        if not code:
            return status
        if not self._stop_signal and not self._is_cancelled:
            self._is_cancelled = self._try(self._stops.look_in_bucket) and bool(self._stops.request)
        cause = causes.of_failure(self._log, name, self._oom_kills)
        return replace(status, cause=cause, tail=causes.last_line(self._log))

    def _beat(self) -> None:
        self._try(lambda: self._status.update(log_chunks=self._shipper.chunks))

    def _write_status(self, status: WorkerStatus) -> None:
        self._status.write(replace(status, log_chunks=self._shipper.chunks))

    def _try(self, work: Callable[[], object]) -> bool:
        """Return whether `work` succeeded: the script keeps running while the bucket cannot be reached."""
        try:
            work()
            return True
        except AnotherSupervisorError as error:
            say(str(error))
            self._stop_signal = signal.SIGTERM  # two must not train into the same checkpoints
        except (gcs.GcsError, OSError) as error:
            say(str(error))
        except Exception as error:  # such as an answer that is no JSON: nothing ends the watch over a script
            say("%s: %s" % (type(error).__name__, error))
        return False

    def _finish(self, status: WorkerStatus) -> None:
        if self._stop_signal:
            self._ask_why()
            status = replace(
                status, stopped=signal.Signals(self._stop_signal).name, cause=self._stop_cause or ""
            )
        if self._is_cancelled and self._stops.request:
            status = replace(status, stopped_by=self._stops.request.by)
        status = replace(status, finished=now())
        self._status.keep(status)
        deadline = time.monotonic() + timing.LAST_WRITE_TIMEOUT
        if status.exit_code != 0 and not status.stopped_by:
            self._retry(lambda: self._peers.tell_end(reason_of(status)), deadline)
            status = self._with_peer(status)
        self._try(lambda: self._end_leftovers(status.pid))
        self._shipping.end()
        if not self._retry(self._shipper.ship, deadline) and not status.error:
            status = replace(status, error="the end of the log could not be shipped")
        self._try(self._ship_reports)  # a by-product: the run ends also without them
        self._heartbeat.end()
        self._watching.end()
        if not self._retry(lambda: self._write_status(replace(status, state=FINISHED)), deadline):
            raise gcs.GcsError("the last status could not be written")

    def _with_peer(self, status: WorkerStatus) -> WorkerStatus:
        """Return the status of a worker that was not the first to end."""
        end = self._peers.end
        if end is None or status.stopped:
            return status
        error = status.error or "stopped, because %s" % end.reason
        return replace(status, error=error, peer=None if end.worker == self._spec.worker else end.worker)

    def _ship_reports(self) -> None:
        reports.ship(self._bucket, self._spec.folder + REPORTS_FOLDER, self._reports)

    def _retry(self, work: Callable[[], None], deadline: float) -> bool:
        """Try `work` until it succeeds, the deadline has passed, or the host is stopped."""
        while not self._try(work):
            if self._stop_signal or time.monotonic() > deadline:
                return False
            timing.pause()
        return True

    def _on_signal(self, number: int, _frame: Optional[object]) -> None:
        self._stop_time = self._stop_time or time.monotonic()
        self._stop_signal = number
        self._interrupt()

    def _interrupt(self) -> None:
        """End the preparation, in the main thread."""
        if self._preparing:
            self._preparing = False
            raise _Stopped


def _wake() -> None:
    """Interrupt the main thread: it may wait for a package, or for other workers."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
