"""One worker's word to the others: how its end is called, and when it listens.

How often a decision is tried, how much of it is read, and what it is as an object.
"""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.host.worker.counting_bucket import CountingBucket
from tests.host.worker.host import SPEC
from tpuctl.host import gcs
from tpuctl.host.worker.peers import END, GO, Decision, DecisionObject, Peers, reason_of
from tpuctl.host.worker.records import WorkerStatus

STATUS = WorkerStatus(2, 1, "77", "finished", "2026-01-01T12:00:00Z", error="oh")
OWN = replace(SPEC, participants=(0, 1, 2))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "worker 2 could not start: oh"),
        ({"pid": 7}, "worker 2 was not watched to its end: oh"),
        ({"has_unnoted_script": True}, "worker 2 was not watched to its end: oh"),
        ({"pid": 7, "exit_code": 0}, "worker 2's script ended with exit code 0"),
        ({"pid": 7, "exit_code": 7}, "worker 2's script ended with exit code 7"),
        ({"pid": 7, "exit_code": 137, "signal": "SIGKILL"}, "worker 2's script was ended by SIGKILL"),
        ({"pid": 7, "exit_code": 143, "stopped": "SIGTERM"}, "worker 2 was stopped by SIGTERM"),
    ],
)
def test_how_a_worker_ended_is_a_clause(changes: dict[str, object], reason: str) -> None:
    assert reason_of(replace(STATUS, **changes)) == reason  # type: ignore[arg-type]


class Crew:
    """Worker 0 of three, whose clock the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bucket = CountingBucket()
        clock = SimpleNamespace(monotonic=self.bucket.now)
        monkeypatch.setattr("tpuctl.host.worker.peers.time", clock)
        self.ends: list[str] = []
        self.peers = self.of(0)

    def of(self, worker: int) -> Peers:
        folder = f"runs/r1/attempts/1/workers/{worker}/"
        own = replace(OWN, worker=worker, folder=folder)
        return Peers(self.bucket, own, on_end=lambda: self.ends.append(f"worker {worker}"))  # type: ignore[arg-type]

    def decision(self) -> Decision | None:
        return DecisionObject(self.bucket, OWN).read()  # type: ignore[arg-type]

    def write(self, worker: int) -> None:
        self.bucket.put(f"runs/r1/attempts/1/workers/{worker}/status.json", b'{"state": "running"}')


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Crew:
    """Nobody has said anything yet."""
    return Crew(monkeypatch)


def test_it_listens_every_five_seconds_until_one_has_ended(crew: Crew) -> None:
    assert not crew.peers.due()
    crew.bucket.time += 4.9
    assert not crew.peers.due()
    crew.bucket.time += 0.1
    assert crew.peers.due()
    crew.peers.look()
    assert not crew.peers.due()
    crew.of(1).tell_end("worker 1 could not start")
    crew.bucket.time += 5
    crew.peers.look()
    crew.bucket.time += 5
    assert not crew.peers.due()


def test_anothers_end_ends_it_once(crew: Crew, capsys: pytest.CaptureFixture[str]) -> None:
    other = crew.of(1)
    other.tell_end("worker 1 could not start")
    crew.peers.look()
    crew.peers.look()
    assert crew.peers.end == Decision(END, 1, "worker 1 could not start")
    assert (crew.ends, other.end) == (["worker 0"], None), "who told it has ended already"
    assert capsys.readouterr().err == "[tpuctl] stopping, because worker 1 could not start\n"


def test_of_two_that_end_the_second_learns_of_the_first_and_changes_nothing(crew: Crew) -> None:
    crew.of(1).tell_end("worker 1 could not start")
    crew.peers.tell_end("worker 0 could not start")
    assert crew.peers.end == crew.decision() == Decision(END, 1, "worker 1 could not start")
    crew.peers.tell_end("again")
    assert crew.ends == ["worker 0"]


def test_its_own_end_ends_only_the_others(crew: Crew) -> None:
    crew.peers.tell_end("worker 0 could not start")
    crew.peers.look()
    assert (crew.peers.end, crew.ends) == (None, [])
    assert crew.decision() == Decision(END, 0, "worker 0 could not start")


def test_the_next_worker_is_looked_at_each_minute(crew: Crew) -> None:
    """And one that falls silent is given up after a quarter of an hour."""
    crew.write(1)
    name = "GET runs/r1/attempts/1/workers/1/status.json"
    for seconds, looks in ((0, 1), (59, 1), (1, 2), (59, 2), (1, 3)):
        crew.bucket.time += seconds
        crew.peers.look()
        assert crew.bucket.requests[name] == looks
    crew.bucket.time += 900 - 120
    crew.peers.look()
    assert crew.peers.end is None
    crew.bucket.time += 60
    crew.peers.look()
    assert crew.peers.end == Decision(END, 1, "worker 1 has not been heard of for 16 minutes")


@pytest.mark.parametrize(("age", "is_left_out"), [(60, False), (61, True)])
def test_one_that_nobody_starts_any_more_is_left_out_after_a_minute(
    crew: Crew, age: float, is_left_out: bool
) -> None:
    crew.peers.look()
    crew.bucket.time += 120
    crew.bucket.put("runs/r1/attempts/1/launch.json", b"{}")
    crew.bucket.time += age
    crew.peers.look()
    assert (crew.peers.end is not None) is is_left_out


def test_the_ring_goes_on_behind_the_last_worker(crew: Crew) -> None:
    peers = crew.of(2)
    for _ in range(2):
        peers.look()
        crew.bucket.time += 60
    assert peers.end == Decision(END, 0, "worker 0 was not started, and nobody starts it any more")


def test_a_look_that_fails_says_nothing_about_the_other(crew: Crew) -> None:
    crew.peers.look()
    crew.bucket.time += 60
    crew.bucket.is_down = True
    with pytest.raises(gcs.GcsError):
        crew.peers.look()
    crew.bucket.is_down = False
    crew.peers.look()
    assert crew.peers.end is None


NAME = "runs/r1/attempts/1/barrier/decision.json"


class Contended(CountingBucket):
    """Others write the object before each write of ours, so many times."""

    others = 0

    def put(self, name: str, data: bytes, if_generation: int | None = None, content_type: str = "") -> int:
        if self.others:
            self.others -= 1
            self._count("PUT", name)
            raise gcs.PreconditionError(name)
        return super().put(name, data, if_generation, content_type)


def decision_of(bucket: CountingBucket, worker: int = 0, key: str = SPEC.key) -> DecisionObject:
    spec: Any = replace(SPEC, worker=worker, workers=2, participants=(0, 1), key=key)
    return DecisionObject(bucket, spec)  # type: ignore[arg-type]


@pytest.mark.parametrize("others", [1, 9])
def test_a_write_that_another_was_before_is_tried_again(others: int) -> None:
    bucket = Contended()
    bucket.others = others
    assert decision_of(bucket).go() == Decision(GO, 0)
    assert bucket.requests == {f"GET {NAME}": others + 1, f"PUT {NAME}": others + 1}


def test_where_others_keep_writing_it_gives_up_after_ten_tries() -> None:
    bucket = Contended()
    bucket.others = 10
    with pytest.raises(gcs.GcsError, match=f"^other programs keep writing gs://b/{NAME}$"):
        decision_of(bucket).end("worker 0 was killed")
    assert bucket.requests[f"PUT {NAME}"] == 10


def test_an_end_replaces_a_start_and_no_other_end() -> None:
    bucket = CountingBucket()
    first, second = decision_of(bucket), decision_of(bucket, 1)
    assert first.go() == second.go() == Decision(GO, 0)
    assert not first.go().is_end
    end = second.end("worker 0 has died", worker=0)
    assert end == Decision(END, 0, "worker 0 has died")
    assert end.is_end
    assert first.end("worker 0 was stopped") == first.go() == end
    assert second.end("no", worker=1) == end


def test_the_object_is_json_with_a_seal() -> None:
    bucket = CountingBucket()
    decision_of(bucket, 1).end("worker 1 could not start")
    data = bucket.read(NAME, 1 << 20)[1]
    content = json.loads(data)
    assert len(content.pop("seal")) == 64
    assert content == {"state": "end", "worker": 1, "reason": "worker 1 could not start"}
    assert data.endswith(b"}\n")


@pytest.mark.parametrize(("size", "is_read"), [(4_096, True), (4_097, False)])
def test_only_a_small_object_is_a_decision(size: int, is_read: bool) -> None:
    bucket = CountingBucket()
    decision_of(bucket).go()
    content = bucket.read(NAME, 1 << 20)[1].strip()
    bucket.put(NAME, content[:-1] + b" " * (size - len(content)) + b"}")
    assert (decision_of(bucket).read() is not None) == is_read


@pytest.mark.parametrize(("field", "value"), [("state", "end"), ("worker", 1), ("reason", "x")])
def test_each_field_is_sealed(field: str, value: object) -> None:
    bucket = CountingBucket()
    decision_of(bucket).go()
    content = json.loads(bucket.read(NAME, 1 << 20)[1])
    bucket.put(NAME, json.dumps({**content, field: value}).encode())
    assert decision_of(bucket).read() is None
