"""Every fact of a run, with where it is from: by records in a bucket in memory."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, TPU
from tpuctl import runs
from tpuctl.catalogue.prices import Price
from tpuctl.cloud.storage import Bucket
from tpuctl.datasets import PinnedDataset
from tpuctl.errors import TpuctlError
from tpuctl.flows.runs.description import RunDescription, find_described
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import FINISHED, RUNNING, StopRequest, WorkerStatus
from tpuctl.host.worker.records import encode as encode_word
from tpuctl.nodes import NodeId
from tpuctl.recovery import Machine, Restarts
from tpuctl.runs import Attempt, Git, Run, Verdict, encode
from tpuctl.upkeep import REMOVAL_TYPE, Note, Notes

NODE = node(id=NodeId("cloud-tpu", TPU.project, TPU.zone, TPU.name, TPU.uid))
RUN = Run("r1", CREATED, "ada@laptop", "job.py", (), "a" * 64, "jax", "v3-32", (), {})
LATER = "2026-01-01T13:30:00Z"
FOLDER = "gs://b/runs/r1"


class Site:
    """The run r1 in a bucket whose clock the test moves."""

    def __init__(self) -> None:
        self.memory = MemoryBucket()
        self.bucket = cast("Bucket", self.memory)
        self.run = StoredRun(self.bucket, "r1")

    def submit(self, attempt: Attempt | None = ATTEMPT, **changes: Any) -> None:
        self.run.create(msgspec.structs.replace(RUN, **changes))
        if attempt:
            self.run.create_attempt(attempt)

    def say(self, *statuses: WorkerStatus, attempt: int = 1) -> None:
        for status in statuses:
            name = self.run.paths.status(attempt, status.worker)
            self.memory.put(name, encode_word(replace(status, attempt=attempt)))

    def describe(self) -> RunDescription:
        witnesses = Witnesses(MemoryProvider(NODE))
        return RunDescription(StoredRun(self.bucket, "r1"), witnesses, lambda tpu: Price(Decimal(8), "USD"))

    def facts(self) -> dict[str, tuple[str, str]]:
        return {fact.name: (fact.value, fact.source) for fact in self.describe().facts()}


@pytest.fixture
def site() -> Site:
    """Nothing is recorded yet."""
    return Site()


class TestRequest:
    def test_everything_that_was_asked_for(self, site: Site) -> None:
        site.submit(
            None, arguments=("--name", "a b"), origin="r0", seeds={"--seed": "7", "PYTHONHASHSEED": "1"},
            git=Git("0f" * 20, "diff"), dataset=PinnedDataset("pets", "1.0.0", "0" * 64),
            requires_python=">=3.10", dependencies=("optax", "flax"), requirements="lock.txt", setup="make",
            environment={"B": "1", "A": runs.NOT_STORED}, restarts=Restarts(after_loss=2, after_failure=1),
            machine=Machine("v3-32", ("z1", "z2"), True, "base", "ada", max_price="3.5"),
        )  # fmt: skip
        known = site.facts()
        assert list(known)[:2] == ["run", "folder"]
        assert known["run"] == ("r1", "bucket")
        assert known["folder"] == (f"{FOLDER}/", "bucket")
        asked = {name: value for name, (value, source) in known.items() if source == "run.json"}
        assert asked == {
            "submitted by": "ada@laptop", "submitted at": f"{CREATED}, by the clock of that machine",
            "command": "job.py --name 'a b'", "repeats": "r0", "seeds": "--seed 7, PYTHONHASHSEED 1",
            "bundle": f"gs://b/bundles/{'a' * 64}.tar.gz", "git commit": f"{'0f' * 20}, with changes",
            "dataset": "pets/1.0.0", "framework": "jax", "accelerator": "v3-32", "requires Python": ">=3.10",
            "dependencies": "optax, flax", "lock file": "lock.txt", "setup": "make",
            "restarts": "2 times after a loss, 1 times after a failure, in z1, z2, at most 3.5 per hour",
        }  # fmt: skip
        assert known["environment"] == ("A, B", "run.json, names only; values are not shown")

    def test_what_was_not_asked_for_is_no_fact(self, site: Site) -> None:
        site.submit(None, git=Git("0f" * 20, ""))
        known = site.facts()
        asked = {name for name, (_, source) in known.items() if source.startswith("run.json")}
        assert asked == {
            "submitted by", "submitted at", "command", "bundle", "git commit", "framework", "accelerator",
        }  # fmt: skip
        assert known["git commit"][0] == "0f" * 20

    @pytest.mark.parametrize(
        ("restarts", "words"),
        [
            (Restarts(after_loss=None), "without end after a loss, 0 times after a failure, in z1"),
            (Restarts(after_failure=3), "0 times after a loss, 3 times after a failure, in z1"),
            (Restarts(), None),
        ],
    )
    def test_restarts_are_said_where_there_are_any(
        self, site: Site, restarts: Restarts, words: str | None
    ) -> None:
        site.submit(None, restarts=restarts, machine=Machine("v3-32", ("z1",), True, "base", "ada"))
        assert site.facts().get("restarts", (None,))[0] == words

    def test_tags_and_notes_are_said_with_who_wrote_them(self, site: Site) -> None:
        site.submit(None)
        notes = Notes("r1", {"keep": "", "team": "vision"}, (Note("good", "ada", LATER),))
        site.memory.put("runs/r1/notes.json", encode(notes))
        known = site.facts()
        assert known["tags"] == ("keep, team=vision", "notes.json")
        assert known["note"] == ("good", f"ada at {LATER}")
        site.memory.put("runs/r1/notes.json", b"{")
        text, source = site.facts()["tags"]
        assert text.startswith("unknown: runs/r1/notes.json ")
        assert source == "notes.json"


class TestStart:
    @pytest.mark.parametrize(("seconds", "label"), [(600, "not started"), (601, "abandoned")])
    def test_a_run_without_an_attempt_may_be_on_its_way(self, site: Site, seconds: float, label: str) -> None:
        site.submit(None)
        site.memory.pass_time(seconds)
        description = site.describe()
        assert (description.label, description.verdict) == (label, None)
        known = site.facts()
        assert known["state"] == (label, "bucket")
        assert ("reason" in known) is (label == "abandoned")
        if label == "abandoned":
            assert known["reason"][1] == "bucket"
        assert not known.keys() & {"duration", "cost", "log"}

    @pytest.mark.parametrize("seconds", [30, 31])
    def test_what_workers_say_is_grouped(self, site: Site, seconds: float) -> None:
        site.submit()
        running = replace(STATUS, state=RUNNING, pid=7, log_chunks=2)
        site.say(
            replace(running, worker=2), replace(running, worker=0), replace(STATUS, worker=1, state="ready")
        )
        site.memory.pass_time(seconds)
        known = site.facts()
        silent = f"silent for {seconds} s, " * (seconds > 30)
        assert known["workers 0, 2"] == (f"running, {silent}the script runs", "their status.json")
        assert known["worker 1"] == (f"ready{', silent for 31 s' * (seconds > 30)}", "status.json")
        assert known["worker 3"] == ("has not written yet", "status.json")
        assert known["log"] == (f"4 pieces in {FOLDER}/attempts/1/log/", "workers")
        assert known["attempt 1"] == (
            f"on n1 in europe-west4-a (v3-32, base), workers 0-3, started {CREATED}",
            "attempts/1/attempt.json",
        )
        assert known["state"] == ("starting", "workers")

    def test_a_spot_node_is_said(self, site: Site) -> None:
        tpu = msgspec.structs.replace(TPU, spot=True)
        site.submit(msgspec.structs.replace(ATTEMPT, tpu=tpu, workers=(0,)))
        assert "(v3-32, spot, base), worker 0, started" in site.facts()["attempt 1"][0]

    def test_a_status_that_cannot_be_read_is_said(self, site: Site) -> None:
        site.submit()
        site.memory.put(site.run.paths.status(1, 0), b"{")
        assert site.facts()["worker 0"][0] == "its status cannot be read"

    def test_an_attempt_that_cannot_be_read_is_said(self, site: Site) -> None:
        site.submit()
        site.memory.put("runs/r1/attempts/1/attempt.json", b"{}")
        known = site.facts()
        assert known["attempt 1"][0].startswith("unknown: runs/r1/attempts/1/attempt.json ")
        text, source = known["workers"]
        assert text.startswith("unknown: runs/r1/attempts/1/attempt.json ")
        assert source == "bucket"

    def test_a_request_that_cannot_be_read_is_said(self, site: Site) -> None:
        site.memory.put("runs/r1/run.json", b"{}")
        text, source = site.facts()["request"]
        assert text.startswith("unknown: runs/r1/run.json ")
        assert source == "run.json"

    @pytest.mark.parametrize("folder", ["checkpoints", "outputs"])
    def test_results_are_named_once_there_are_any(self, site: Site, folder: str) -> None:
        site.submit()
        assert site.facts()[folder] == ("none yet", "bucket")
        site.memory.put(f"runs/r1/{folder}/x", b"x")
        assert site.facts()[folder] == (f"{FOLDER}/{folder}/", "bucket")

    def test_time_counts_from_the_submission(self, site: Site) -> None:
        site.submit()
        site.memory.pass_time(90)
        assert site.facts()["duration"] == ("1m30s", "bucket's clock, since it was submitted")

    @pytest.mark.parametrize(("seconds", "duration"), [(0, "0s"), (-5, "0s"), (1, "1s")])
    def test_time_is_never_less_than_none(self, site: Site, seconds: float, duration: str) -> None:
        site.submit()
        site.memory.pass_time(seconds)
        assert site.facts()["duration"][0] == duration


class TestEnd:
    def test_a_verdict_says_all_that_it_knows(self, site: Site) -> None:
        site.submit()
        verdict = Verdict(
            "r1", runs.FAILED, 1, LATER, "because", 3, runs.BY_WORKERS, stopped_by="bob", ended=LATER,
            tpu=TPU, cause="disk full", last_line="OSError: [Errno 28]",
        )  # fmt: skip
        site.run.end(verdict)
        site.say(*(replace(STATUS, worker=worker, state=FINISHED) for worker in range(4)))
        source = "verdict.json, said by workers"
        known = site.facts()
        assert {name: value for name, (value, place) in known.items() if place == source} == {
            "state": "failed", "reason": "because", "exit code": "3", "cause": "disk full",
            "last line": "OSError: [Errno 28]", "stopped by": "bob", "ended": LATER, "decided": LATER,
        }  # fmt: skip
        assert known["duration"][0] == "1h30m"
        assert site.describe().label == "failed"

    def test_an_attempt_that_was_added_after_the_end_does_not_count(self, site: Site) -> None:
        site.submit()
        site.say(*(replace(STATUS, worker=worker, state=FINISHED, exit_code=0) for worker in range(4)))
        site.run.end(Verdict("r1", runs.SUCCEEDED, 1, LATER, "all ended", 0, runs.BY_WORKERS, tpu=TPU))
        before = site.facts()
        site.run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=2))
        assert site.facts() == before

    def test_a_success_has_an_exit_code_and_one_of_an_earlier_version_no_basis(self, site: Site) -> None:
        site.submit()
        site.run.end(Verdict("r1", runs.SUCCEEDED, 1, LATER, "all ended", 0))
        known = site.facts()
        assert known["exit code"] == ("0", "verdict.json, said by an earlier version")
        assert not known.keys() & {"cause", "last line", "stopped by", "ended"}

    def test_a_verdict_without_an_end_ends_the_time_where_it_was_decided(self, site: Site) -> None:
        site.submit()
        site.run.end(Verdict("r1", runs.SUCCEEDED, 1, LATER, "all ended", 0, tpu=TPU))
        assert site.facts()["duration"][0] == "1h30m"

    def test_a_worker_that_has_ended_runs_no_script(self, site: Site) -> None:
        site.submit()
        site.say(replace(STATUS, pid=7), replace(STATUS, worker=1, state=FINISHED, pid=7, exit_code=0))
        known = site.facts()
        assert known["worker 0"][0] == "running, the script runs"
        assert known["worker 1"][0] == "finished, exit code 0"

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"exit_code": 0}, "finished, exit code 0"),
            ({"exit_code": 137, "signal": "SIGKILL"}, "finished, ended by SIGKILL"),
            ({"exit_code": 143, "stopped": "SIGTERM", "stopped_by": "ada"},
             "finished, exit code 143, stopped by ada"),
            ({"stopped": "SIGTERM", "cause": "preempted"}, "finished, stopped by SIGTERM, cause: preempted"),
            ({"error": "no code", "tail": "step 7"}, "finished, error: no code, last line: step 7"),
        ],
    )  # fmt: skip
    def test_how_a_worker_ended(self, site: Site, fields: dict[str, Any], words: str) -> None:
        site.submit(msgspec.structs.replace(ATTEMPT, workers=(0,)))
        site.say(replace(STATUS, state=FINISHED, **fields))
        assert site.facts()["worker 0"][0] == words

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (encode_word(StopRequest("r1", "bob", LATER, 5)), f"by bob at {LATER}, with 5 s to save"),
            (b"[[", "unknown: "),
            (encode_word(StopRequest("r2", "bob", LATER)), "unknown: it is of another run"),
        ],
    )
    def test_a_request_to_stop_is_said(self, site: Site, data: bytes, words: str) -> None:
        site.submit()
        assert "asked to stop" not in site.facts()
        site.memory.put("runs/r1/stop.json", data)
        value, source = site.facts()["asked to stop"]
        assert (value.startswith(words), source) == (True, "stop.json")


class TestRestart:
    def restart(self, site: Site, seconds: float, uid: str = TPU.uid, checkpoint: str = "") -> None:
        """Record the end of the first attempt, and a second one so many seconds after it."""
        site.submit()
        ended = site.memory.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        first = Verdict("r1", runs.LOST, 1, LATER, "no word", ended=ended, checkpoint=checkpoint)
        site.memory.put(site.run.paths.attempt_verdict(1), encode(first))
        site.memory.pass_time(seconds)
        tpu = msgspec.structs.replace(TPU, uid=uid)
        site.run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=2, tpu=tpu))

    def test_the_gap_on_the_same_node_has_a_price(self, site: Site) -> None:
        self.restart(site, 90, checkpoint="ckpt-300")
        known = site.facts()
        assert known["end of attempt 1"] == (
            "lost at 2026-01-01T12:00:00Z: no word", "attempts/1/verdict.json",
        )  # fmt: skip
        assert known["resumed from"] == ("ckpt-300", "attempts/1/verdict.json, the last committed checkpoint")
        assert known["gap"] == ("1m30s, which cost 0.20 USD", "until attempt 2 was recorded")
        assert known["steps lost"] == ("unknown", "log and checkpoint")
        assert "attempt 2" in known

    def test_the_gap_between_two_nodes_has_none(self, site: Site) -> None:
        self.restart(site, 90, uid="8")
        known = site.facts()
        assert known["gap"][0] == "1m30s, on no TPU"
        assert "resumed from" not in known

    def test_clocks_that_differ_make_no_gap_less_than_none(self, site: Site) -> None:
        self.restart(site, -5, uid="8")
        assert site.facts()["gap"][0].startswith("0s")


class TestFind:
    def test_a_run_is_found_by_its_name(self, site: Site) -> None:
        assert find_described(site.bucket, "r1") is None
        assert find_described(site.bucket, "No Name") is None
        site.submit()
        described = find_described(site.bucket, "r1")
        assert described
        assert described.name == "r1"

    def test_one_that_is_being_removed_is_none(self, site: Site) -> None:
        site.memory.put("runs/r1/run.json", b"{}", REMOVAL_TYPE)
        with pytest.raises(TpuctlError, match="is being removed"):
            find_described(site.bucket, "r1")
