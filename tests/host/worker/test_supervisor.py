"""The last word for an attempt whose supervisor ended without one: what was noted decides what it says."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.host.worker.host import SPEC
from tpuctl import runs
from tpuctl.cloud.storage import Bucket
from tpuctl.host import gcs, timing
from tpuctl.host.worker.control import hold
from tpuctl.host.worker.job import processes, script
from tpuctl.host.worker.peers import DecisionObject
from tpuctl.host.worker.records import STOP_FILE, Spec, StopRequest, WorkerStatus, encode
from tpuctl.host.worker.signals import Signals, Stopped, wake
from tpuctl.host.worker.supervisor import Supervisor

NAME = "runs/r1/attempts/1/workers/0/status.json"
STARTED = "2026-01-01T12:00:00Z"
RUNNING = WorkerStatus(0, 1, "77", "running", STARTED, started=STARTED, pid=7)
ERROR = "the program that runs the script was ended by SIGKILL"
STOP = StopRequest("r1", "ada@laptop", STARTED)


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, float]]]:
    """The scripts whose leftovers were ended, with the grace; the handlers of signals are as before then."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in numbers}
    calls: list[tuple[int, float]] = []
    # the real one would end what other tests of this process have started
    monkeypatch.setattr(processes, "end", lambda folder, script, spared, grace: calls.append((script, grace)))
    yield calls
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def folder(tmp_path: Path, worker_bucket: gcs.Bucket, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the attempt, whose script has printed two lines."""
    monkeypatch.setattr(timing, "SIGNAL_DELAY", 0.0)
    place = tmp_path / "r1/1"
    (place / "reports").mkdir(parents=True)
    (place / "log").write_text("step 1\nstep 2\n")
    return place


def note(folder: Path, status: WorkerStatus) -> None:
    """Note the last status on the host's disk."""
    (folder / "last_status.json").write_bytes(encode(status))


def stored(bucket: Bucket) -> WorkerStatus:
    return runs.decode(bucket.read(NAME), WorkerStatus, NAME)


def log(bucket: Bucket) -> bytes:
    return b"".join(bucket.read(item.name) for item in bucket.objects("runs/r1/attempts/1/log/"))


TakeOver = Callable[..., WorkerStatus]


class TestTakeOver:
    @pytest.fixture
    def take_over(self, folder: Path, bucket: Bucket) -> TakeOver:
        def take_over(
            status: WorkerStatus = RUNNING, code: int = -9, kills: int = 0, stop_signal: int = 0,
            spec: Spec = SPEC,
        ) -> WorkerStatus:  # fmt: skip
            note(folder, status)
            Supervisor(spec, str(folder)).take_over(ERROR, code, kills, stop_signal)
            return stored(bucket)

        return take_over

    def test_a_script_that_ran_was_not_watched_to_its_end(
        self, take_over: TakeOver, bucket: Bucket, ended: list[tuple[int, float]], monkeypatch
    ) -> None:
        monkeypatch.setattr(script, "count_oom_kills", lambda: 0)
        status = take_over()
        assert (status.state, status.error, status.exit_code, status.pid) == ("finished", ERROR, None, 7)
        assert (status.cause, status.stopped, status.stopped_by, status.peer) == ("", "", "", None)
        assert (status.started, status.log_chunks) == (STARTED, 1)
        assert status.finished
        assert (log(bucket), ended) == (b"step 1\nstep 2\n", [(7, timing.LEFTOVER_GRACE)])

    @pytest.mark.parametrize(
        ("code", "kills", "cause"),
        [(-9, 2, "out of memory"), (-9, 3, ""), (1, 2, ""), (-15, 2, "")],
    )
    def test_the_kernel_may_have_killed_it_for_want_of_memory(
        self, take_over: TakeOver, monkeypatch: pytest.MonkeyPatch, code: int, kills: int, cause: str
    ) -> None:
        monkeypatch.setattr(script, "count_oom_kills", lambda: 3)
        assert take_over(code=code, kills=kills).cause == cause

    def test_where_only_the_last_word_was_missing_the_script_has_ended_as_noted(
        self, take_over: TakeOver
    ) -> None:
        status = take_over(replace(RUNNING, exit_code=3, cause="disk full"))
        assert (status.exit_code, status.error, status.cause, status.state) == (
            3,
            "",
            "disk full",
            "finished",
        )

    def test_a_script_that_nobody_noted_shows_by_its_lock(self, take_over: TakeOver, folder: Path) -> None:
        assert not take_over(replace(RUNNING, pid=0)).has_run
        os.close(hold(str(folder / "script.lock")))
        assert take_over(replace(RUNNING, pid=0)).has_unnoted_script
        assert not take_over(RUNNING).has_unnoted_script

    def test_a_host_that_stopped_is_why(
        self, take_over: TakeOver, monkeypatch: pytest.MonkeyPatch, ended: list[tuple[int, float]]
    ) -> None:
        monkeypatch.setattr(script, "of_stop", lambda: "preempted")
        status = take_over(stop_signal=signal.SIGTERM)
        assert (status.stopped, status.cause, status.error) == ("SIGTERM", "preempted", ERROR)
        assert ended == [(7, 0.0)], "a host that stops leaves no time"

    @pytest.mark.parametrize("place", ["host", "bucket"])
    def test_who_asked_to_stop_the_run_is_named(
        self, take_over: TakeOver, folder: Path, bucket: Bucket, place: str
    ) -> None:
        if place == "host":
            (folder / STOP_FILE).write_bytes(encode(STOP))
        else:
            bucket.create("runs/r1/stop.json", encode(STOP))
        assert take_over().stopped_by == "ada@laptop"

    @pytest.mark.parametrize(
        ("status", "reason"),
        [
            (RUNNING, f"worker 0 was not watched to its end: {ERROR}"),
            (replace(RUNNING, pid=0), f"worker 0 could not start: {ERROR}"),
            (replace(RUNNING, exit_code=3), "worker 0's script ended with exit code 3"),
            (replace(RUNNING, exit_code=0), ""),
        ],
    )
    def test_the_other_workers_are_told_unless_it_succeeded(
        self, take_over: TakeOver, worker_bucket: gcs.Bucket, status: WorkerStatus, reason: str
    ) -> None:
        spec = replace(SPEC, participants=(0, 1))
        assert take_over(status, spec=spec).peer is None
        decision = DecisionObject(worker_bucket, replace(spec, worker=1)).read()
        assert (decision.reason if decision else "") == reason

    def test_one_that_another_workers_end_has_ended_says_which(
        self, take_over: TakeOver, worker_bucket: gcs.Bucket
    ) -> None:
        spec = replace(SPEC, participants=(0, 1))
        DecisionObject(worker_bucket, replace(spec, worker=1)).end("worker 1's script ended with exit code 7")
        status = take_over(replace(RUNNING, exit_code=143, signal="SIGTERM"), spec=spec)
        assert (status.peer, status.error) == (1, "stopped, because worker 1's script ended with exit code 7")
        assert take_over(spec=spec).error == ERROR


class TestReboot:
    @pytest.fixture
    def after_reboot(self, folder: Path, bucket: Bucket) -> TakeOver:
        def after_reboot(status: WorkerStatus) -> WorkerStatus:
            note(folder, status)
            supervisor = Supervisor(SPEC, str(folder))
            supervisor.note_reboot()
            assert supervisor._sentinel.is_signalled, "its process has ended, too"
            return stored(bucket)

        return after_reboot

    def test_a_script_that_ran_was_stopped_by_it(
        self, after_reboot: TakeOver, bucket: Bucket, ended: list[tuple[int, float]]
    ) -> None:
        """The number of its process may be another's by now."""
        status = after_reboot(RUNNING)
        assert (status.state, status.stopped, status.cause) == ("finished", "a reboot", "reboot")
        assert (status.pid, status.has_unnoted_script, status.error) == (0, True, "")
        assert (log(bucket), [script for script, _ in ended]) == (b"step 1\nstep 2\n", [0])

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"exit_code": 0}, ("", "", 0)),
            ({"exit_code": 3, "cause": "disk full"}, ("", "disk full", 3)),
            ({"error": "no code"}, ("", "", None)),
            ({"stopped": "SIGTERM", "cause": "maintenance"}, ("SIGTERM", "maintenance", None)),
        ],
    )
    def test_what_had_ended_it_before_stays_the_reason(
        self, after_reboot: TakeOver, changes: dict[str, object], said: tuple[object, ...]
    ) -> None:
        status = after_reboot(replace(RUNNING, **changes))
        assert (status.stopped, status.cause, status.exit_code) == said

    def test_a_script_that_never_ran_has_not_run(self, after_reboot: TakeOver) -> None:
        assert not after_reboot(replace(RUNNING, state="preparing", pid=0)).has_run

    def test_a_last_word_that_the_bucket_has_is_left(self, after_reboot: TakeOver, bucket: Bucket) -> None:
        last = replace(RUNNING, state="finished", exit_code=3)
        bucket.upload(NAME, [encode(last)], "application/json")
        generation = bucket.objects(NAME)[0].generation
        assert after_reboot(last).exit_code == 3
        assert bucket.objects(NAME)[0].generation == generation

    def test_one_that_it_does_not_have_is_told_then(self, after_reboot: TakeOver, bucket: Bucket) -> None:
        bucket.upload(NAME, [encode(RUNNING)], "application/json")
        assert after_reboot(replace(RUNNING, state="finished", exit_code=3)).state == "finished"

    def test_the_disk_has_it_too(self, after_reboot: TakeOver, folder: Path) -> None:
        status = after_reboot(RUNNING)
        kept = json.loads((folder / "last_status.json").read_bytes())
        assert (kept["state"], kept["stopped"], kept["supervisor"]) == (
            "finished",
            "a reboot",
            status.supervisor,
        )


class TestSignals:
    """The first one says since when, and interrupts once where it may."""

    @pytest.fixture
    def signals(self) -> Iterator[Signals]:
        """Hears until the test has ended."""
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
        before = {number: signal.getsignal(number) for number in numbers}
        heard = Signals()
        heard.hear()
        yield heard
        for number, handler in before.items():
            signal.signal(number, handler)

    def test_before_any_there_is_none(self, signals: Signals) -> None:
        assert (signals.number, signals.name, signals.since) == (0, "", 0.0)

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_stop_is_noted_without_an_interruption(self, signals: Signals, number: signal.Signals) -> None:
        signal.raise_signal(number)
        assert (signals.number, signals.name) == (number, number.name)
        assert signals.since > 0

    def test_the_first_says_since_when_and_the_last_which(self, signals: Signals) -> None:
        signals.since = 7.0
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert (signals.since, signals.name) == (7.0, "SIGTERM")

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
    def test_it_interrupts_once_where_it_may(self, signals: Signals, number: signal.Signals) -> None:
        signals.can_interrupt = True
        with pytest.raises(Stopped):
            signal.raise_signal(number)
        assert not signals.can_interrupt
        signal.raise_signal(number)

    def test_another_thread_wakes_the_main_one(self, signals: Signals) -> None:
        """That is no stop of the host."""
        wake()
        signals.can_interrupt = True
        with pytest.raises(Stopped):
            wake()
        assert signals.number == 0
