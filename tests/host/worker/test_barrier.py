"""All workers start or none: who says so, how many requests that takes, and what a stranger can do to it."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.host.worker.counting_bucket import CountingBucket
from tests.host.worker.host import SPEC
from tpuctl.bucket_layout import RunPaths
from tpuctl.cloud.storage import Bucket
from tpuctl.host import gcs, timing
from tpuctl.host.worker import peers as peers_module
from tpuctl.host.worker.peers import END, GO, Barrier, Decision, DecisionObject, Peers
from tpuctl.host.worker.records import Spec

ATTEMPT = "runs/r1/attempts/1/"
DECISION = f"{ATTEMPT}barrier/decision.json"


def spec(worker: int, workers: int) -> Spec:
    return replace(
        SPEC, worker=worker, folder=RunPaths("r1").worker(1, worker), participants=tuple(range(workers))
    )


def barrier(bucket: object, worker: int, workers: int) -> Barrier:
    own = spec(worker, workers)
    return Barrier(bucket, own, DecisionObject(bucket, own))  # type: ignore[arg-type]


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were asked for; none takes time."""
    pauses: list[float] = []
    monkeypatch.setattr(timing, "sleep", pauses.append)
    return pauses


class TestStart:
    def test_the_first_worker_decides_once_the_last_is_ready(
        self, worker_bucket: gcs.Bucket, bucket: Bucket
    ) -> None:
        barriers = [barrier(worker_bucket, worker, 3) for worker in range(3)]
        assert [barriers[number]._look() for number in (0, 1, 0, 1)] == [None] * 4
        assert barriers[2]._look() is None
        assert [barriers[number]._look() for number in (1, 0, 1, 2)] == [None, *[Decision(GO, 0)] * 3]

    def test_a_worker_that_cannot_start_is_decided_before_the_others_wait(
        self, worker_bucket: gcs.Bucket
    ) -> None:
        reason = "worker 2 could not start: PackageError: no such package"
        assert DecisionObject(worker_bucket, spec(2, 3)).end(reason) == Decision(END, 2, reason)
        assert barrier(worker_bucket, 0, 3).wait() == barrier(worker_bucket, 1, 3).wait()
        assert barrier(worker_bucket, 0, 3).wait() == Decision(END, 2, reason)

    def test_one_that_falls_silent_after_it_was_ready_keeps_the_others_from_starting(
        self, sleeps: list[float]
    ) -> None:
        bucket = CountingBucket()
        bucket.put(f"{ATTEMPT}workers/0/status.json", b"{}")
        bucket.put(f"{ATTEMPT}workers/1/status.json", b"{}")
        assert barrier(bucket, 1, 2)._look() is None
        bucket.time += 2 * timing.FRESH
        bucket.put(f"{ATTEMPT}workers/0/status.json", b"{}")
        first = barrier(bucket, 0, 2)
        assert first._look() is None
        bucket.put(f"{ATTEMPT}workers/1/status.json", b"{}")
        assert first._look() == Decision(GO, 0)


@pytest.fixture
def pausing(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time, which only pauses move."""
    pausing = SimpleNamespace(now=0.0)

    def sleep(seconds: float) -> None:
        pausing.now += seconds

    monkeypatch.setattr(timing, "sleep", sleep)
    for module in (timing, peers_module):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: pausing.now))
    return pausing


def test_workers_whose_bucket_was_emptied_meanwhile_say_again_that_they_are_ready(
    pausing: SimpleNamespace,
) -> None:
    bucket = CountingBucket()
    barriers = [barrier(bucket, worker, 3) for worker in range(3)]
    assert barriers[0]._look() is barriers[1]._look() is None
    bucket.clear()
    pausing.now = bucket.time = timing.FRESH + 1
    assert barriers[0]._look() is barriers[1]._look() is barriers[2]._look() is None
    assert barriers[0]._look() == Decision(GO, 0)


def test_a_bucket_that_refuses_for_minutes_ends_the_wait(pausing: SimpleNamespace) -> None:
    """The chips would be held for ever."""
    bucket = CountingBucket()
    bucket.is_deleted = True

    def check() -> None:
        if pausing.now > timing.REFUSED_TIMEOUT:
            raise gcs.RefusedError("POST x", 403, "No right.")

    with pytest.raises(gcs.RefusedError, match="403 No right"):
        barrier(bucket, 0, 2).wait(check)
    assert pausing.now <= timing.REFUSED_TIMEOUT + 2 * timing.LONGEST_LOOK


@pytest.mark.parametrize("workers", [4, 64, 256])
def test_the_cost_of_a_barrier(sleeps: list[float], workers: int) -> None:
    """Each look is one request; a listing of up to 1,000 objects is one, too. One worker is a minute late."""
    bucket = CountingBucket()
    barriers = [barrier(bucket, worker, workers) for worker in range(workers)]
    for each in barriers[:-1]:
        assert each._look() is None
    pauses, waited, looks = timing.growing(timing.FIRST_LOOK, timing.LONGEST_LOOK), 0.0, 0
    while waited < 60:
        waited += next(pauses)
        looks += 1
        assert barriers[0]._look() is barriers[1]._look() is None
    assert looks <= 40
    for each in (barriers[-1], barriers[0], *barriers[1:]):
        each._look()
    assert [each._look() for each in barriers] == [Decision(GO, 0)] * workers
    first = bucket.requests.pop("GET runs/r1/attempts/1/barrier/decision.json")
    assert first <= looks + 3 * workers + looks + 6
    assert bucket.requests.pop("LIST runs/r1/attempts/1/barrier/ready/") <= looks + 3
    assert Counter(name.split()[0] for name in bucket.requests) == {"PUT": workers + 1}


def test_a_worker_that_is_alone_asks_for_nothing() -> None:
    bucket = CountingBucket()
    for participants in ((), (0,)):
        alone = Peers(bucket, replace(SPEC, participants=participants), on_end=lambda: None)  # type: ignore[arg-type]
        alone.wait_for_all()
        assert not alone.due()
        alone.tell_end("worker 0 could not start")
        assert alone.end is None
    assert not bucket.requests


class TestTrouble:
    def test_a_bucket_that_cannot_be_reached_delays_the_start(
        self, worker_bucket: gcs.Bucket, wire, sleeps: list[float]
    ) -> None:
        tries = len(timing.REQUEST_PAUSES)
        other = barrier(worker_bucket, 1, 2)
        assert other._look() is None
        wire.plan = [503] * (3 * tries)
        assert barrier(worker_bucket, 0, 2).wait() == Decision(GO, 0)
        assert len(sleeps) >= 3

    @pytest.mark.parametrize("fault", ["lose", "cut", "short"])
    def test_a_lost_answer_decides_nothing_twice(
        self, worker_bucket: gcs.Bucket, wire, sleeps: list[float], fault: str
    ) -> None:
        assert barrier(worker_bucket, 1, 2)._look() is None
        for place in range(5):
            wire.plan = [""] * place + [fault]
            assert barrier(worker_bucket, 0, 2).wait() == Decision(GO, 0)

    @pytest.mark.parametrize(
        "content",
        [
            b"", b"{", b"null", b"[1]", b"[" * 5000, b"\xff", b'{"state": "go", "worker": 0, "reason": ""}',
            b'{"state": "end", "worker": 0, "reason": "", "seal": "\\ud800"}', b" " * 100_000,
            b'{"state": {"a": [NaN]}, "worker": 0, "reason": "", "seal": 3}',
        ],
    )  # fmt: skip
    def test_what_has_no_seal_of_the_attempt_counts_as_absent(
        self, worker_bucket: gcs.Bucket, bucket: Bucket, content: bytes
    ) -> None:
        bucket.upload(DECISION, [content], "application/json")
        decision = DecisionObject(worker_bucket, spec(0, 2))
        assert decision.read() is None
        assert decision.go() == Decision(GO, 0) == DecisionObject(worker_bucket, spec(1, 2)).read()

    def test_a_stranger_cannot_say_that_a_worker_is_ready(
        self, worker_bucket: gcs.Bucket, bucket: Bucket
    ) -> None:
        bucket.upload(f"{ATTEMPT}barrier/ready/0001-{'0' * 32}", [b"ready\n"], "text/plain")
        first = barrier(worker_bucket, 0, 2)
        assert (first._look(), first._look()) == (None, None)
        own, strange = (item.name for item in bucket.objects(f"{ATTEMPT}barrier/ready/"))
        assert (own[:-32], len(own)) == (f"{ATTEMPT}barrier/ready/0000-", len(strange))

    def test_the_seal_of_another_attempt_is_none(self, worker_bucket: gcs.Bucket, bucket: Bucket) -> None:
        DecisionObject(worker_bucket, replace(spec(1, 2), key="other")).end("worker 1 could not start")
        assert DecisionObject(worker_bucket, spec(0, 2)).read() is None


class TestEnd:
    def test_the_first_of_two_failures_is_the_one_that_counts(self, worker_bucket: gcs.Bucket) -> None:
        """Also after all were started, and for workers that fail at once."""
        objects = [DecisionObject(worker_bucket, spec(worker, 8)) for worker in range(8)]
        assert objects[0].go() == Decision(GO, 0)
        ends: list[Decision] = []
        threads = [
            threading.Thread(
                target=lambda each=each, number=number: ends.append(each.end(f"worker {number}")), daemon=True
            )
            for number, each in enumerate(objects)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (end,) = set(ends)
        assert end == objects[3].read() == objects[3].go()
        assert (end.state, end.reason) == (END, f"worker {end.worker}")

    def test_a_long_reason_is_cut_and_still_sealed(self, worker_bucket: gcs.Bucket) -> None:
        end = DecisionObject(worker_bucket, spec(0, 2)).end('"\\\N{SNOWMAN}\ud800' * 10_000)
        assert len(end.reason) == 500
        assert DecisionObject(worker_bucket, spec(1, 2)).read() == end


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A time that only the test moves, in its first element."""
    now = [1000.0]
    monkeypatch.setattr("tpuctl.host.worker.peers.time.monotonic", lambda: now[0])
    return now


class TestSilence:
    def peers(self, bucket: CountingBucket, worker: int, workers: int = 3) -> Peers:
        return Peers(bucket, spec(worker, workers), on_end=lambda: None)  # type: ignore[arg-type]

    def write(self, bucket: CountingBucket, worker: int, state: str = "running") -> None:
        bucket.put(f"{ATTEMPT}workers/{worker}/status.json", json.dumps({"state": state}).encode())

    def test_the_next_worker_misses_one_that_dies_without_a_word(self, clock: list[float]) -> None:
        bucket = CountingBucket()
        peers, others = self.peers(bucket, 2), self.peers(bucket, 1)
        self.write(bucket, 0)
        for _ in range(15):
            peers.look()
            clock[0] += 60
        assert peers.end is None
        clock[0] += 60
        peers.look()
        reason = "worker 0 has not been heard of for 16 minutes"
        assert peers.end == Decision(END, 0, reason)
        others.look()
        assert others.end == peers.end

    def test_one_that_never_came_is_missed_too(self, clock: list[float]) -> None:
        peers = self.peers(CountingBucket(), 0)
        peers.look()
        clock[0] += 901
        peers.look()
        assert peers.end
        assert peers.end.worker == 1

    def test_one_that_nobody_starts_any_more_is_given_up_after_a_minute(self, clock: list[float]) -> None:
        """Who started the others was killed: a slow start gives signs meanwhile."""
        bucket = CountingBucket()
        peers = self.peers(bucket, 0)
        bucket.put(f"{ATTEMPT}launch.json", b"{}")
        for _ in range(2):
            peers.look()
            clock[0] += timing.LAUNCH_SILENCE
            bucket.time += timing.LAUNCH_SILENCE
        bucket.put(f"{ATTEMPT}launch.json", b"{}")
        peers.look()
        assert peers.end is None
        clock[0] += timing.LAUNCH_SILENCE
        bucket.time += timing.LAUNCH_SILENCE + 1
        peers.look()
        assert peers.end == Decision(END, 1, "worker 1 was not started, and nobody starts it any more")

    def test_one_that_was_started_is_not_asked_about(self, clock: list[float]) -> None:
        bucket = CountingBucket()
        peers = self.peers(bucket, 0)
        self.write(bucket, 1, "preparing")
        for _ in range(10):
            peers.look()
            clock[0] += timing.LAUNCH_SILENCE
        assert peers.end is None
        assert not [name for name in bucket.requests if "launch.json" in name]

    def test_an_outage_of_its_own_is_no_silence_of_the_other(self, clock: list[float]) -> None:
        bucket = CountingBucket()
        peers = self.peers(bucket, 2)
        self.write(bucket, 0)
        peers.look()
        bucket.is_down = True
        for _ in range(20):
            clock[0] += 60
            with pytest.raises(gcs.GcsError):
                peers.look()
        bucket.is_down = False
        peers.look()
        clock[0] += 600
        peers.look()
        assert peers.end is None

    def test_one_that_has_ended_is_not_missed_but_the_one_after_it(self, clock: list[float]) -> None:
        bucket = CountingBucket()
        peers = self.peers(bucket, 0)
        self.write(bucket, 1, "finished")
        self.write(bucket, 2)
        for _ in range(16):
            peers.look()
            clock[0] += 61
        assert peers.end is None
        for _ in range(16):
            peers.look()
            clock[0] += 61
        assert peers.end
        assert peers.end.worker == 2
