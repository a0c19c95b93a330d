"""The line of a TPU on one host: who is ahead, and what does not block it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cloud.faulty_wire import FaultyWire
from tests.host.worker.host import SPEC, Host
from tests.host.worker.test_program import FAST
from tpuctl.bucket_layout import RunPaths
from tpuctl.cloud.storage import Bucket
from tpuctl.host import gcs, timing
from tpuctl.host.worker import control
from tpuctl.host.worker.control import Turn
from tpuctl.host.worker.records import (
    FINISHED,
    QUEUED,
    RUNNING,
    STARTED,
    StopRequest,
    WorkerStatus,
    encode,
)
from tpuctl.host.worker.reporting import now
from tpuctl.polling import Backoff, poll

LINE = "nodes/sim-project.europe-west4-a.n1.77/runs/"
OWN = replace(SPEC, line=LINE)


class _Blocked(Exception):
    """The turn did not come."""


@pytest.fixture
def counts(
    worker_bucket: gcs.Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[int]]:
    """What a turn notes until it comes, or looks for the `looks`-th time."""

    def wait(looks: int = 1) -> list[int]:
        noted, left = list[int](), [looks]

        def sleep(_: float) -> None:
            left[0] -= 1
            if not left[0]:
                raise _Blocked

        monkeypatch.setattr(timing, "sleep", sleep)
        try:
            Turn(worker_bucket, OWN, str(tmp_path / "r1/1")).wait(noted.append, lambda: None)
        except _Blocked:
            return noted
        return [*noted, 0]

    return wait


def announce(bucket: Bucket, *names: str) -> None:
    for name in names:
        bucket.create(f"{LINE}{name}", b"{}")


def start(folder: Path, run: str) -> Path:
    """Make the lock of a run that nobody holds."""
    lock = folder / run / "1/lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    (lock.parent / STARTED).touch()
    return lock


@contextmanager
def held(lock: Path) -> Iterator[None]:
    with lock.open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def write_status(bucket: Bucket, run: str, **changes: object) -> None:
    status = replace(WorkerStatus(0, 1, "77", RUNNING, now()), **changes)  # type: ignore[arg-type]
    bucket.upload(RunPaths(run).status(1, 0), [encode(status)], "application/json")


class TestLine:
    def test_who_is_alone_is_not_counted(self, counts: Callable[..., list[int]], bucket: Bucket) -> None:
        announce(bucket, "r1/1.json")
        assert counts() == [0]

    def test_only_those_before_are_ahead(
        self, counts: Callable[..., list[int]], bucket: Bucket, tmp_path: Path
    ) -> None:
        announce(bucket, "z/1.json", "a/1.json", "r1/1.json", "b/1.json", "../x/1.json", "a/0.json", "a/b/c")
        with held(start(tmp_path, "z")), held(start(tmp_path, "b")):
            with held(start(tmp_path, "a")):
                assert counts() == [2]
            assert counts() == [1]
        assert counts() == [0]

    def test_one_that_the_bucket_refuses_to_tell_for_minutes_is_left(
        self, counts: Callable[..., list[int]], bucket: Bucket, wire: FaultyWire,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(timing, "REFUSED_TIMEOUT", -1.0)
        wire.plan = [503] * len(timing.REQUEST_PAUSES)
        assert counts() == [], "an outage is waited for"
        wire.plan = [403]
        with pytest.raises(gcs.RefusedError):
            counts()

    def test_a_line_without_this_attempt_is_waited_for_as_a_whole(
        self, counts: Callable[..., list[int]], bucket: Bucket, tmp_path: Path
    ) -> None:
        """Whoever deleted its place has let nobody pass."""
        announce(bucket, "a/1.json", "b/1.json")
        with held(start(tmp_path, "a")), held(start(tmp_path, "b")):
            assert counts() == [2]

    def test_a_dead_supervisor_does_not_block(
        self, counts: Callable[..., list[int]], bucket: Bucket, tmp_path: Path
    ) -> None:
        """Its lock is free: it was killed, or its host was restarted."""
        announce(bucket, "a/1.json", "r1/1.json")
        lock = start(tmp_path, "a")
        assert counts() == [0]
        (lock.parent / STARTED).unlink()
        assert counts() == [1], "it may be about to take its lock"
        long_ago = time.time() - timing.START_TIMEOUT - 1
        os.utime(lock, (long_ago, long_ago))
        assert counts() == [0]

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({}, [1]),
            ({"state": QUEUED}, [1]),
            ({"state": FINISHED}, [0]),
            ({"heartbeat": "2026-01-01T12:00:00Z"}, [0]),
            ({"heartbeat": "2126-01-01T12:00:00Z"}, [0]),
            ({"heartbeat": "soon"}, [0]),
        ],
    )
    def test_one_of_another_login_is_known_by_its_status(
        self,
        counts: Callable[..., list[int]],
        bucket: Bucket,
        changes: dict[str, object],
        expected: list[int],
    ) -> None:
        announce(bucket, "a/1.json", "r1/1.json")
        write_status(bucket, "a", **changes)
        assert counts() == expected

    def test_one_that_was_announced_and_never_came_blocks_for_minutes_only(
        self, counts: Callable[..., list[int]], bucket: Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        announce(bucket, "a/1.json", "r1/1.json")
        assert counts() == [1]
        monkeypatch.setattr(control, "LAUNCH", -1.0)
        assert counts() == [0]

    def test_one_that_does_not_run_on_this_host_blocks_nobody(
        self, counts: Callable[..., list[int]], bucket: Bucket
    ) -> None:
        announce(bucket, "a/1.json", "r1/1.json")
        assert counts() == [1], "its record comes after its place in the line"
        record = RunPaths("a").attempt(1)
        for workers, expected in (b"[1, 2]", [0]), (b"[0]", [1]), (b"{", [1]), (b"1", [1]):
            bucket.upload(record, [b'{"workers": %s}' % workers], "application/json")
            assert counts() == expected, workers

    def test_what_no_line_names_is_waited_for_once_it_has_left_its_own(
        self, counts: Callable[..., list[int]], bucket: Bucket, tmp_path: Path
    ) -> None:
        """Its place was deleted, or it is another bucket's. Who waits, too, is not waited for."""
        announce(bucket, "r1/1.json")
        other = start(tmp_path, "a")
        with held(other):
            assert counts() == [1], "it has said nothing yet"
            for state, started, expected in ((QUEUED, "", 0), (RUNNING, now(), 1), (FINISHED, now(), 0)):
                status = WorkerStatus(0, 1, "77", state, now(), started=started)
                (other.parent / "last_status.json").write_bytes(encode(status))
                assert counts() == [expected], state
            with held(tmp_path / "turn"):
                assert counts() == [1], "another leaves its line at this moment"

    @pytest.mark.parametrize("data", [b"", b"[]", b"null", b"\xff", b"[" * 50_000, b'{"state": 1}'])
    def test_a_hostile_status_blocks_nobody(
        self, counts: Callable[..., list[int]], bucket: Bucket, data: bytes
    ) -> None:
        announce(bucket, "a/1.json", "r1/1.json")
        bucket.upload(RunPaths("a").status(1, 0), [data], "application/json")
        assert counts() == [0]

    def test_a_bucket_that_does_not_answer_lets_nobody_pass(
        self, counts: Callable[..., list[int]], bucket: Bucket, wire: FaultyWire
    ) -> None:
        announce(bucket, "r1/1.json")
        wire.plan = [400, 400, ""]
        assert counts(looks=2) == []
        wire.plan = [400, 400, ""]
        assert counts(looks=3) == [0]


SLOW = f"""{FAST}
import time
from tpuctl.host.worker.reporting import StatusWriter
update = StatusWriter.update
def slow(self, **changes):
    if changes.get('state') == 'queued':
        open('is_slow', 'w').close()
        time.sleep(600)
    update(self, **changes)
StatusWriter.update = slow
"""
"""A bucket that lets the supervisor wait for the answer to the status which says that it waits."""


class TestSupervisor:
    def test_it_waits_and_its_status_says_so_and_it_starts_in_its_turn(self, host: Host) -> None:
        announce(host.bucket, "r0/1.json", "r1/1.json")
        lock = start(host.folder.parent.parent, "r0")
        with held(lock), host.supervise("print('done')", FAST, line=LINE) as process:
            status = poll(
                lambda: status if (status := host.find_status()) and status.state == QUEUED else None,
                awaiting="the line", timeout=60, backoff=Backoff(0.05, 0.2),
            )  # fmt: skip
            assert (status.ahead, status.pid, status.started) == (1, 0, "")
            left = now()
            lock.unlink()
            start_again = lock.parent / "lock"
            start_again.touch()
            assert process.wait(60) == 0
        assert (host.status().exit_code, host.status().ahead) == (0, 0)
        assert host.status().started >= left, "time in the line is no time on the TPU"
        assert host.log() == b"done\n"

    def test_a_request_to_stop_ends_its_waiting(self, host: Host) -> None:
        announce(host.bucket, "r0/1.json", "r1/1.json")
        with (
            held(start(host.folder.parent.parent, "r0")),
            host.supervise("print('never')", FAST, line=LINE) as process,
        ):
            poll(
                lambda: ((status := host.find_status()) and status.state == QUEUED) or None,
                awaiting="the line", timeout=60, backoff=Backoff(0.05, 0.2),
            )  # fmt: skip
            request = StopRequest("r1", "ada@example.com", now(), 5)
            host.ask_to_stop(request)
            assert process.wait(60) == 0
        status = host.status()
        assert (status.stopped_by, status.pid, status.started) == ("ada@example.com", 0, "")
        assert host.log() == b""

    def test_a_request_to_stop_ends_it_also_while_it_writes_its_status(self, host: Host) -> None:
        announce(host.bucket, "r0/1.json", "r1/1.json")
        with (
            held(start(host.folder.parent.parent, "r0")),
            host.supervise("print('never')", SLOW, line=LINE) as process,
        ):
            poll(lambda: (host.folder / "is_slow").exists() or None, awaiting="the status", timeout=60)
            request = StopRequest("r1", "ada@example.com", now(), 5)
            host.ask_to_stop(request)
            assert process.wait(60) == 0
        assert host.status().stopped_by == "ada@example.com"
