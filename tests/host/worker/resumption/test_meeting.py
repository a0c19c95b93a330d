"""Hosts of a run that are back after a reboot: which of them start the next attempt, and which records."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.host.worker.counting_bucket import CountingBucket
from tests.host.worker.host import SPEC
from tpuctl import runs
from tpuctl.host import timing
from tpuctl.host.worker.records import Resumption, WorkerStatus, encode
from tpuctl.host.worker.resumption import Meeting, Successor

NOW = 1_767_268_800.0  # 2026-01-01T12:00:00Z
ATTEMPT = "runs/r1/attempts/1/"
TPU = {
    "name": "n1", "uid": "77", "project": "p", "zone": "z", "accelerator": "v3-32", "runtime": "base",
    "hosts": 4, "spot": False,
}  # fmt: skip
RECORD = {
    "attempt": 1, "created": "2026-01-01T10:00:00Z", "tpu": TPU, "workers": [0, 1], "token": "first",
    "login": "ada", "schema": 1,
    "price": {"amount": "8.00", "currency": "USD", "source": "the list", "as_of": "2026-01-01T00:00:00Z"},
}  # fmt: skip
STOPPED = {"state": "finished", "stopped": "SIGTERM", "finished": "2026-01-01T11:59:00Z"}


class Hosts:
    """Hosts of attempt 1 of the run r1, whose only clock is the bucket's: it moves when one pauses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.bucket = CountingBucket()
        self.bucket.time = NOW
        self.pauses: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None
        """Called at each pause."""
        self._capsys = capsys
        monkeypatch.setattr(timing, "sleep", self._sleep)
        monkeypatch.setattr("tpuctl.host.worker.resumption.time.monotonic", self.bucket.now)
        self.write(f"{ATTEMPT}attempt.json", RECORD)

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.bucket.time += seconds
        self.meanwhile()

    def meeting(self, worker: int = 0, hosts: int = 1, key: str = SPEC.key, **status: object) -> Meeting:
        """Return the meeting as a worker sees it whose last word was this one."""
        spec = replace(
            SPEC, worker=worker, folder=f"{ATTEMPT}workers/{worker}/", key=key,
            participants=tuple(range(hosts)) if hosts > 1 else (),
            resumption=Resumption(2, "nodes/n/runs/"),
        )  # fmt: skip
        word = WorkerStatus(worker, 1, "77", **{"heartbeat": "2026-01-01T11:58:00Z", **STOPPED, **status})  # type: ignore[arg-type]
        return Meeting(self.bucket, spec, word)  # type: ignore[arg-type]

    def say(self, worker: int, **status: object) -> None:
        """Write the last word of a worker into the bucket."""
        word = WorkerStatus(worker, 1, "77", **{"heartbeat": "", **STOPPED, **status})  # type: ignore[arg-type]
        self.bucket.put(f"{ATTEMPT}workers/{worker}/status.json", encode(word))

    def write(self, name: str, content: object) -> None:
        self.bucket.put(name, json.dumps(content).encode())

    def read(self, name: str) -> dict[str, object]:
        return dict(json.loads(self.bucket.get(name)))

    def said(self) -> list[str]:
        return [line.removeprefix("[tpuctl] ") for line in self._capsys.readouterr().err.splitlines()]


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Hosts:
    """The run's hosts."""
    return Hosts(monkeypatch, capsys)


class TestRecords:
    """What the first worker writes: the laptop reads it, and tells it from what a watcher writes."""

    def test_a_maintenance_leaves_the_verdict_of_the_attempt_and_the_next_one(self, hosts: Hosts) -> None:
        state = b'model_checkpoint_path: "gs://b/runs/r1/checkpoints/ckpt-300"\nall: "ckpt-299"\n'
        hosts.bucket.put("runs/r1/checkpoints/checkpoint", state)
        assert hosts.meeting(cause="maintenance", started="2026-01-01T10:30:00Z").wait() is True
        assert hosts.read(f"{ATTEMPT}verdict.json") == {
            "run": "r1", "outcome": "maintenance", "attempt": 1, "decided": "2026-01-01T12:00:00Z",
            "evidence": "the host of worker 0 had its maintenance; its run resumed by itself",
            "basis": "machine", "ended": "2026-01-01T11:59:00Z", "tpu": TPU, "worker": 0,
            "started": "2026-01-01T10:00:00Z", "restarts": True, "schema": 1, "checkpoint": "ckpt-300",
            "begun": "2026-01-01T10:30:00Z", "price": RECORD["price"],
        }  # fmt: skip
        assert hosts.read("nodes/n/runs/r1/2.json") == {"run": "r1", "attempt": 2}
        following = hosts.read("runs/r1/attempts/2/attempt.json")
        assert following == {
            **RECORD, "attempt": 2, "created": "2026-01-01T12:00:00Z", "token": following["token"],
        }  # fmt: skip
        assert following["token"] not in ("", "first", SPEC.key)
        assert (hosts.pauses, hosts.said()) == ([], [])

    def test_a_reboot_without_notice_lost_the_attempt(self, hosts: Hosts) -> None:
        assert hosts.meeting(cause="reboot", finished="").wait() is True
        verdict = hosts.read(f"{ATTEMPT}verdict.json")
        assert (verdict["outcome"], verdict["ended"]) == ("lost", "2026-01-01T11:58:00Z")
        assert verdict["evidence"] == "the host of worker 0 was restarted; its run resumed by itself"
        assert verdict["checkpoint"] == ""

    def test_the_laptop_reads_them(self, hosts: Hosts) -> None:
        assert hosts.meeting(cause="reboot").wait() is True
        verdict = runs.decode(hosts.bucket.get(f"{ATTEMPT}verdict.json"), runs.Verdict, "verdict.json")
        assert (verdict.basis, verdict.tpu) == (runs.BY_MACHINE, runs.Tpu(**TPU))  # type: ignore[arg-type]
        assert verdict.price
        assert (verdict.begun, verdict.price.amount) == ("", "8.00"), "it was in line"
        following = runs.decode(
            hosts.bucket.get("runs/r1/attempts/2/attempt.json"), runs.Attempt, "attempt.json"
        )
        assert (following.workers, following.login) == ((0, 1), "ada")

    @pytest.mark.parametrize(
        ("state", "checkpoint"),
        [
            (b'model_checkpoint_path: "ckpt-7"', "ckpt-7"),
            (b'all_model_checkpoint_paths: "ckpt-6"\nmodel_checkpoint_path: "/a/b/ckpt-7"\n', "ckpt-7"),
            (b'model_checkpoint_path: "ckpt-\xff"\n', "ckpt-\ufffd"),
            (b'model_checkpoint_path: ""\n', ""),
            (b'old_model_checkpoint_path: "ckpt-7"\n', ""),
            (b"", ""),
        ],
    )
    def test_the_checkpoint_is_the_last_one_of_tensorflows_state(
        self, hosts: Hosts, state: bytes, checkpoint: str
    ) -> None:
        hosts.bucket.put("runs/r1/checkpoints/checkpoint", state)
        assert hosts.meeting(cause="reboot").wait() is True
        assert hosts.read(f"{ATTEMPT}verdict.json")["checkpoint"] == checkpoint

    def test_an_attempt_of_anybody_else_is_not_theirs(self, hosts: Hosts) -> None:
        hosts.write("runs/r1/attempts/2/attempt.json", {**RECORD, "attempt": 2})
        assert hosts.meeting(cause="maintenance").wait() is False
        assert hosts.meeting(cause="maintenance", key="another").wait() is False
        assert hosts.read("runs/r1/attempts/2/attempt.json")["token"] == "first"
        assert hosts.bucket.stat(f"{ATTEMPT}verdict.json") == (0, 0)


class TestLease:
    """A watcher that starts the next attempt has a lease of it."""

    def is_leased(self, hosts: Hosts, age: float, lease: object) -> bool:
        hosts.write("runs/r1/attempts/2/lease.json", lease)
        hosts.write("runs/r1/attempts/2/lease.json.part", lease)
        hosts.bucket.time += age
        return hosts.meeting(cause="reboot").successor.is_leased()

    @pytest.mark.parametrize(
        ("lease", "age", "is_leased"),
        [
            ({}, 60, True), ({}, 61, False), ({"seconds": 5}, 5, True), ({"seconds": 5}, 6, False),
            ({"seconds": "5"}, 60, True), ({"seconds": 5, "is_over": True}, 0, False), ([], 60, True),
        ],
    )  # fmt: skip
    def test_it_counts_for_as_long_as_it_says_and_else_for_a_minute(
        self, hosts: Hosts, lease: object, age: float, is_leased: bool
    ) -> None:
        assert self.is_leased(hosts, age, lease) is is_leased

    def test_hosts_wait_for_its_end(self, hosts: Hosts) -> None:
        hosts.write("runs/r1/attempts/2/lease.json", {"seconds": 30})
        assert hosts.meeting(cause="reboot").wait() is True
        assert 30 < sum(hosts.pauses) < 40
        assert hosts.pauses[0] == 0.2
        assert hosts.pauses == sorted(hosts.pauses)


class TestReasonsAgainst:
    @pytest.mark.parametrize(
        ("name", "content", "reason"),
        [
            ("stop.json", {}, "somebody asked to stop the run"),
            ("verdict.json", {"attempt": 1, "outcome": "succeeded"}, "the run has ended: succeeded"),
            ("verdict.json", {"attempt": 2, "outcome": "lost"}, "the run has ended: lost"),
            ("verdict.json", {"attempt": 1, "restarts": False}, "the run has ended: None"),
            ("verdict.json", {"attempt": 0, "outcome": "lost"}, ""),  # of an earlier attempt
            ("verdict.json", {"attempt": 1, "outcome": "lost", "restarts": True}, ""),
            ("verdict.json", {"attempt": "1", "outcome": "lost"}, ""),
            ("verdict.json", [], ""),
        ],
    )
    def test_a_run_that_is_to_stop_or_has_ended_is_not_resumed(
        self, hosts: Hosts, name: str, content: object, reason: str
    ) -> None:
        hosts.write(f"runs/r1/{name}", content)
        assert hosts.meeting(cause="reboot").wait() is not bool(reason)
        assert hosts.said() == ([f"not resumed: {reason}"] if reason else [])

    @pytest.mark.parametrize(("cause", "is_resumed"), [("preempted", False), ("", False), ("reboot", True)])
    def test_a_host_that_was_not_to_come_back_resumes_nothing(
        self, hosts: Hosts, cause: str, is_resumed: bool
    ) -> None:
        assert hosts.meeting(cause=cause).wait() is is_resumed
        reason = "no host of the run announced a maintenance: somebody has stopped the TPU"
        assert hosts.said() == ([] if is_resumed else [f"not resumed: {reason}"])
        names = [item.name for item in hosts.bucket.list(ATTEMPT)]
        assert not [name for name in names if "/resume/" in name], "nobody else is there to be told"

    def test_an_empty_request_to_stop_is_one(self, hosts: Hosts) -> None:
        hosts.bucket.put("runs/r1/stop.json", b"")
        assert hosts.meeting(cause="reboot").wait() is False

    def test_a_host_that_was_stopped_itself_asks_no_other_why(self, hosts: Hosts) -> None:
        other, leader = hosts.meeting(1, 2, cause="reboot"), hosts.meeting(0, 2, cause="reboot", peer=1)
        assert [other._look(), leader._look()] == [None, True]

    def test_one_host_that_ends_for_good_ends_it_for_the_others(self, hosts: Hosts) -> None:
        hosts.say(1, cause="", stopped="", exit_code=1)
        assert hosts.meeting(0, 2, cause="").wait() is False
        assert hosts.said() == ["not resumed: worker 1 has ended by itself"]
        assert hosts.meeting(1, 2, cause="maintenance").wait() is False
        assert hosts.said() == ["not resumed: another host of the run has ended for good"]

    def test_only_the_hosts_of_the_attempt_can_say_so(self, hosts: Hosts) -> None:
        hosts.meeting(1, 2, key="another").refuse()
        hosts.write(f"{ATTEMPT}resume/no", {})
        assert hosts.meeting(1, 2, cause="reboot")._look() is None
        assert hosts.meeting(0, 2, cause="reboot")._look() is True

    @pytest.mark.parametrize(
        ("word", "answer"),
        [
            ({"cause": "maintenance"}, True),
            ({"cause": "reboot", "peer": 0, "stopped": ""}, True),
            ({"cause": "maintenance", "stopped_by": "ada"}, False),
            ({"cause": "", "stopped": "", "exit_code": 0}, False),
            ({"cause": ""}, False),  # neither of both was to come back
            ({"cause": "maintenance", "state": "running"}, None),
        ],
    )
    def test_the_notice_of_any_host_counts_for_all(
        self, hosts: Hosts, word: dict[str, object], answer: bool | None
    ) -> None:
        hosts.say(1, **word)
        other, leader = hosts.meeting(1, 2, cause="maintenance"), hosts.meeting(0, 2, cause="")
        assert other._look() is None
        assert leader._try() is answer

    @pytest.mark.parametrize(
        ("word", "answer"),
        [
            ({"cause": "reboot"}, True),  # stopped with its host
            ({"cause": "reboot", "stopped": "", "peer": 0}, None),
            ({"cause": "reboot", "stopped": "", "exit_code": 1}, False),
            (None, None),
        ],
    )
    def test_a_host_that_another_ones_end_ended_asks_whether_that_was_stopped(
        self, hosts: Hosts, word: dict[str, object] | None, answer: bool | None
    ) -> None:
        if word is not None:
            hosts.say(1, **word)
        other = hosts.meeting(1, 2, cause="reboot")
        leader = hosts.meeting(0, 2, cause="reboot", stopped="", peer=1)
        assert other._look() is None
        assert leader._try() is answer


class TestSeveral:
    def test_the_first_worker_makes_the_attempt_once_all_are_back(self, hosts: Hosts) -> None:
        leader, *others = (hosts.meeting(worker, 3, cause="reboot") for worker in range(3))
        assert [others[0]._look(), leader._look(), others[1]._look()] == [None] * 3
        assert hosts.bucket.stat("runs/r1/attempts/2/attempt.json") == (0, 0)
        assert [meeting.wait() for meeting in (leader, *others)] == [True] * 3
        assert hosts.pauses == []

    @pytest.mark.parametrize(("age", "answer"), [(44, True), (45, None)])
    def test_one_that_has_gone_down_again_is_waited_for(
        self, hosts: Hosts, age: float, answer: bool | None
    ) -> None:
        assert hosts.meeting(1, 2, cause="reboot")._look() is None
        hosts.bucket.time += age
        assert hosts.meeting(0, 2, cause="reboot")._look() is answer

    def test_one_that_waits_says_again_and_again_that_it_is_up(self, hosts: Hosts) -> None:
        other = hosts.meeting(1, 2, cause="reboot")
        written = []
        for _ in range(33):
            other._look()
            written.append(sum(count for name, count in hosts.bucket.requests.items() if "/resume/" in name
                               and name.startswith("PUT")))  # fmt: skip
            hosts.bucket.time += 1
        assert (written[0], written[15], written[16], written[32]) == (1, 1, 2, 3)

    def test_names_tell_the_worker_and_end_as_statuses_do(self, hosts: Hosts) -> None:
        """terraform/ lets hosts overwrite objects of this name only."""
        hosts.meeting(1, 2, cause="reboot")._look()
        (name,) = (item.name for item in hosts.bucket.list(f"{ATTEMPT}resume/"))
        assert name.startswith(f"{ATTEMPT}resume/0001-")
        assert name.endswith("/status.json")
        assert len(name.split("/")[-2]) == len("0001-") + 32

    def test_a_stranger_cannot_say_that_a_host_is_up(self, hosts: Hosts) -> None:
        hosts.meeting(1, 2, key="another", cause="reboot")._look()
        hosts.write(f"{ATTEMPT}resume/0001-{'0' * 32}/status.json", {})
        assert hosts.meeting(0, 2, cause="reboot")._look() is None

    def test_they_give_up_after_six_hours(self, hosts: Hosts) -> None:
        assert hosts.meeting(0, 2, cause="reboot").wait() is False
        assert hosts.said() == ["not resumed: not every host of the run came back"]
        assert 6 * 3600 < sum(hosts.pauses) <= 6 * 3600 + 10
        assert max(hosts.pauses) == 10

    def test_a_bucket_that_cannot_be_reached_is_waited_for(self, hosts: Hosts) -> None:
        def recover() -> None:
            hosts.bucket.is_down = len(hosts.pauses) < 3

        hosts.bucket.is_down, hosts.meanwhile = True, recover
        assert hosts.meeting(cause="reboot").wait() is True
        assert hosts.said() == ["waiting to resume the run: GcsError: 503"] * 3

    def test_a_refusal_is_said_again_until_the_bucket_has_it(
        self, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        create = hosts.bucket.create

        def fail_once(*values: object) -> bool:
            hosts.bucket.is_down = not hosts.pauses
            return create(*values)  # type: ignore[arg-type]

        hosts.meanwhile = lambda: setattr(hosts.bucket, "is_down", False)
        monkeypatch.setattr(hosts.bucket, "create", fail_once)
        hosts.say(1, cause="", stopped="")
        assert hosts.meeting(0, 2, cause="").wait() is False
        assert hosts.said() == ["not resumed: worker 1 has ended by itself"] * 2
        assert any("/resume/no-" in item.name for item in hosts.bucket.list(ATTEMPT))


def test_a_successor_is_of_the_attempt_that_follows() -> None:
    spec = replace(SPEC, attempt=7, folder="runs/r1/attempts/7/workers/0/")
    assert Successor(CountingBucket(), spec).number == 8  # type: ignore[arg-type]
