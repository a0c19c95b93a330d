"""Runs one script from start to end: code, packages, process, log, heartbeats, last status."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Callable, Mapping, Optional

from tpuctl.host import gcs, timing
from tpuctl.host.worker.control import LONGEST_REST, Stops, Turn, runs_beside
from tpuctl.host.worker.errand import Errand
from tpuctl.host.worker.job import chips, processes, script
from tpuctl.host.worker.job.script import STOP_CODES, Script, Sentinel, command
from tpuctl.host.worker.peers import Peers, reason_of
from tpuctl.host.worker.preparation import steps
from tpuctl.host.worker.records import (
    CODE,
    ENVIRONMENT_FILE,
    PREPARING,
    QUEUED,
    READY,
    REBOOT,
    RUNNING,
    SCRIPT_LOCK_FILE,
    STARTED,
    Spec,
    WorkerStatus,
    identity,
)
from tpuctl.host.worker.reporting import Reporter, now, say
from tpuctl.host.worker.signals import Signals, Stopped, wake


class Supervisor:
    """One worker's part of one attempt; `folder` holds all of its files on this host."""

    def __init__(self, spec: Spec, folder: str, guard: int = 0) -> None:
        """Take the pid of the `guard` above this process; 0 for none."""
        self._spec = spec
        self._folder = folder
        self._guard = guard
        self._bucket = gcs.Bucket(spec.bucket)
        self._signals = Signals()
        self._reporter = Reporter(self._bucket, spec, folder, self._signals)
        self._status = self._reporter.status
        self._log = self._reporter.log
        self._stop_cause: Optional[str] = None
        self._stops = Stops(self._bucket, spec, folder)
        self._is_cancelled = False
        self._leftover_grace = timing.LEFTOVER_GRACE
        self._packages: Optional[Callable[[], object]] = None
        """Writes which packages the script can import, until that is written."""
        self._oom_kills = script.count_oom_kills()
        self._sentinel = Sentinel()
        self._peers = Peers(self._bucket, spec, on_end=wake)
        self._watching = Errand(self._peers.due, lambda: self._try(self._peers.look))
        self._listening = Errand(lambda: not self._stops.request, self._listen)

    def run(self) -> None:
        """Run the script until it ends, however it ends, and leave the last status in the bucket."""
        self._signals.hear()
        self._announce()
        self._reporter.start()
        self._listening.start()
        if self._peers.are_any:
            self._watching.start()
        try:
            self._finish(self._run_script())
        finally:
            self._sentinel.close()

    def take_over(self, error: str, code: int, oom_kills: int, stop_signal: int) -> None:
        """Say the last word for a supervisor that ended with `code` and without one, and end what it left."""
        self._signals.hear()
        self._signals.number = stop_signal
        self._reporter.resume()
        say(error)
        self._try(self._stops.look)
        self._try(self._stops.look_in_bucket)
        status = self._status.last
        if self._stops.request and status.exit_code is None:  # else it had ended by itself
            self._is_cancelled, self._leftover_grace = True, float(self._stops.request.grace)
        if not status.pid and os.path.exists(self._script_lock):
            status = replace(status, has_unnoted_script=True)
        if status.exit_code is None:  # else only its last word was missing
            cause = script.of_failure(self._log, "SIGKILL", oom_kills) if code == -signal.SIGKILL else ""
            status = replace(status, error=error, cause=cause)
        try:
            self._finish(status)
        finally:
            self._sentinel.close()

    def note_reboot(self) -> None:
        """Say the last word for an attempt that its host's restart has ended without one.

        A script that had ended by itself before has ended so. An attempt that has said its last word is left.
        """
        self._signals.hear()
        self._reporter.resume()
        try:
            status = self._status.last
            if not (status.is_finished and self._status.is_told()):
                self._finish(_after_reboot(status))
        finally:
            self._sentinel.close()

    def _announce(self) -> None:
        """Write the first status: `launch` waits for the file that follows it."""
        with open(self._log, "ab"):
            pass
        for folder in (self._reporter.reports, steps.tpu_logs(self._reporter.reports)):
            os.makedirs(folder, exist_ok=True)
        began = "" if self._spec.line else now()  # time in the line is no time on the TPU
        self._status.write(replace(self._status.last, state=PREPARING, started=began))
        started = os.path.join(self._folder, STARTED)
        with open(started + ".part", "w", encoding="ascii") as stream:
            stream.write("%d %s" % (os.getpid(), identity(self._spec.key)))
        os.replace(started + ".part", started)

    def _run_script(self) -> WorkerStatus:
        """Return the status that says how the script ended, or why it did not start."""
        try:
            return self._watch(self._start(self._prepare()))
        except Stopped:
            self._is_cancelled = bool(self._stops.request) and not self._signals.number
            return replace(self._status.last, error=self._why_not_started())
        except (*steps.ERRORS, gcs.GcsError, OSError) as error:
            self._signals.can_interrupt = False
            text = "%s: %s" % (type(error).__name__, error)
            return replace(self._status.last, error=text, cause=script.of_error(error))

    def _prepare(self) -> steps.Prepared:
        """Prepare the host, and wait for the other workers.

        A signal ends this with Stopped, as do somebody's request and another worker's end.
        """
        self._signals.can_interrupt = True
        self._check()
        if self._spec.line:
            self._await_turn()
        self._end_earlier()
        prepared = steps.prepare(self._bucket, self._spec, self._folder, self._log, self._reporter.reports)
        self._try(lambda: chips.await_devices(self._spec, self._log))
        if self._peers.are_any:
            self._reporter.update(state=READY)
            self._peers.wait_for_all(self._status.check_taken)
            if self._spec.line:
                self._await_rest()
        self._try(lambda: chips.await_free(self._spec, self._log))
        self._signals.can_interrupt = False
        self._check()
        return prepared

    def _end_earlier(self) -> None:
        """End the scripts of earlier runs that nobody watches: they hold the chips."""
        others = processes.abandoned(self._folder)
        if others:
            processes.end_earlier(others)

    def _end_leftovers(self, script: int) -> None:
        grace = timing.SIGNAL_DELAY if self._signals.number else self._leftover_grace
        processes.end(self._folder, script, (self._guard, self._sentinel.pid), grace)

    def _await_turn(self) -> None:
        def note(ahead: int) -> None:
            self._reporter.update(state=QUEUED, ahead=ahead)

        def leave() -> None:
            self._reporter.update(state=PREPARING, ahead=0, started=now())

        Turn(self._bucket, self._spec, self._folder).wait(note, leave)

    def _await_rest(self) -> None:
        """Wait for the run before this one on this host: it has ended on the first one."""
        timing.wait_until(lambda: not runs_beside(self._folder), LONGEST_REST, interval=timing.FIRST_LOOK)

    def _check(self) -> None:
        if self._signals.number or self._stops.request or self._peers.end:
            raise Stopped

    def _why_not_started(self) -> str:
        if self._peers.end and not self._signals.number and not self._is_cancelled:
            return "not started, because %s" % self._peers.end.reason
        subject = "run" if self._is_cancelled else "host"
        return "the %s was stopped before the script started" % subject

    def _start(self, prepared: steps.Prepared) -> Script:
        variables = steps.of_job(self._spec, prepared, self._reporter.reports, self._code_folder)
        self._packages = lambda: self._write_packages(prepared, variables)
        started = command(self._spec, variables, prepared.interpreter)
        working = steps.working_folder(self._spec, self._code_folder)
        return Script(started, working, variables, self._log, self._script_lock)

    @property
    def _script_lock(self) -> str:
        return os.path.join(self._folder, SCRIPT_LOCK_FILE)

    @property
    def _code_folder(self) -> str:
        return os.path.join(self._folder, CODE)

    def _watch(self, script: Script) -> WorkerStatus:
        """Wait until the script ends; a host that stops ends it, as does another worker's end."""
        if self._reporter.update(state=RUNNING, pid=script.pid, quiet=0):
            self._note_packages()
        watch = chips.ChipWatch(self._spec, script.pid, self._folder, self._note_chip)
        looking = Errand(watch.due, lambda: self._try(watch.look))
        looking.start()
        try:
            code = self._wait_for(script)
        finally:
            looking.end()
        if code < 0:
            return self._ended(128 - code, signal.Signals(-code).name)
        return self._ended(code, "")

    def _note_chip(self, has_none: bool) -> None:
        self._reporter.update(has_no_chip=has_none)

    def _wait_for(self, script: Script) -> int:
        code = script.poll()
        while code is None:
            request = self._stops.request
            self._is_cancelled = bool(request)
            if self._signals.number:
                self._stop(script)
            elif request:
                script.stop(grace=request.grace)
            elif self._peers.end:
                script.stop()
            timing.pause()
            code = script.poll()
        if code in STOP_CODES and not self._is_cancelled and not self._peers.end:
            # A host that shuts down may signal the script before the supervisor.
            timing.wait_until(lambda: bool(self._signals.number), timing.SIGNAL_DELAY, interval=0.01)
        return code

    def _note_packages(self) -> None:
        """Write which packages the script can import, while it runs: nothing of its start waits for that."""
        if self._packages and self._try(self._packages):
            self._packages = None

    def _write_packages(self, prepared: steps.Prepared, variables: Mapping[str, str]) -> None:
        from tpuctl.host.worker.preparation import inventory  # the script has started by then

        name = self._spec.folder + ENVIRONMENT_FILE
        self._bucket.create(name, inventory.record(prepared, variables), "application/json")

    def _stop(self, script: Script) -> None:
        """End the script: by the host's own signal where the host stops, else by ours."""
        if self._sentinel.is_signalled:
            script.stop(is_signalled=True)
        elif time.monotonic() >= self._signals.since + timing.SIGNAL_DELAY:
            script.stop()
        self._ask_why()

    def _ask_why(self) -> None:
        """Ask the host once why it stops, and keep the answer: it may leave no time for a last word."""
        if self._stop_cause is None:
            self._stop_cause = script.of_stop()
            stopped = self._signals.name
            self._status.keep(replace(self._status.last, stopped=stopped, cause=self._stop_cause))

    def _listen(self) -> None:
        """Look whether somebody asks to stop the run; the main thread may wait for a package then."""
        if self._try(self._stops.look) and self._stops.request:
            say("%s asks to stop the run" % self._stops.request.by)
            wake()

    def _ended(self, code: int, name: str) -> WorkerStatus:
        status = replace(self._status.last, exit_code=code, signal=name)
        if not code:
            return status
        if not self._signals.number and not self._is_cancelled:
            self._is_cancelled = self._try(self._stops.look_in_bucket) and bool(self._stops.request)
        cause = script.of_failure(self._log, name, self._oom_kills)
        return replace(status, cause=cause, tail=script.last_line(self._log))

    def _try(self, work: Callable[[], object]) -> bool:
        return self._reporter.attempt(work)

    def _finish(self, status: WorkerStatus) -> None:
        if self._signals.number:
            self._ask_why()
            status = replace(status, stopped=self._signals.name, cause=self._stop_cause or "")
        if self._is_cancelled and self._stops.request:
            status = replace(status, stopped_by=self._stops.request.by)
        status = replace(status, finished=now())
        self._status.keep(status)
        deadline = time.monotonic() + timing.LAST_WRITE_TIMEOUT
        is_end_of_all = status.exit_code != 0 and not status.stopped_by
        is_told = not is_end_of_all or self._try(lambda: self._peers.tell_end(reason_of(status)))
        self._try(lambda: self._end_leftovers(status.pid))
        if not is_told and not self._signals.number:
            self._reporter.retry(
                lambda: self._peers.tell_end(reason_of(status)), deadline, self._status.keep_refusal
            )
        if is_end_of_all:
            status = self._with_peer(status)
        self._note_packages()
        status = self._reporter.finish_log(status, deadline)
        self._watching.end()
        self._reporter.finish(status, deadline)

    def _with_peer(self, status: WorkerStatus) -> WorkerStatus:
        """Return the status of a worker that was not the first to end."""
        end = self._peers.end
        if end is None or status.stopped:
            return status
        error = status.error or "stopped, because %s" % end.reason
        return replace(status, error=error, peer=None if end.worker == self._spec.worker else end.worker)


def _after_reboot(status: WorkerStatus) -> WorkerStatus:
    """Return the last word for an attempt that was at work when its host was restarted, or had ended."""
    if status.exit_code is None and not status.error and not status.stopped:
        status = replace(status, stopped="a reboot", cause=REBOOT)
    if status.pid:
        status = replace(status, pid=0, has_unnoted_script=True)  # its number may be another's by now
    return status
