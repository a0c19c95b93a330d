"""How far a whole run has come, by what the bucket has under its name."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS
from tpuctl import runs
from tpuctl.errors import ConflictError
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission.plan import SubmitRequest
from tpuctl.flows.runs.whole import Stage, look, new_name, require_same
from tpuctl.host.worker.records import encode
from tpuctl.runs import BY_MACHINE, Run, Verdict

RECORD = Run("r1", CREATED, "ada@laptop", "jobs/train.py", ("--rate", "1"), "0" * 64, "jax", "v3-32", (), {})
ENDED = Verdict("r1", runs.FAILED, 1, CREATED, "because", 1, BY_MACHINE, tpu=ATTEMPT.tpu)
RESTARTS = msgspec.structs.replace(ENDED, restarts=True)


@pytest.mark.parametrize(
    ("stage", "is_over", "is_restarted"),
    [
        (Stage(), False, False),
        (Stage(attempt=1), False, False),
        (Stage(attempt=2), False, True),
        (Stage(ENDED, attempt=1), True, False),
        (Stage(ENDED, attempt=2), True, True),
        (Stage(RESTARTS, attempt=1), False, True),
    ],
)
def test_a_run_is_over_unless_another_attempt_follows(
    stage: Stage, is_over: bool, is_restarted: bool
) -> None:
    assert (stage.is_over, stage.is_restarted) == (is_over, is_restarted)


@pytest.fixture
def memory() -> MemoryBucket:
    return MemoryBucket()


@pytest.fixture
def run(memory: MemoryBucket) -> StoredRun:
    """A run that is recorded, and was not started."""
    run = StoredRun(cast("Any", memory), "r1")
    run.create(RECORD)
    return run


def stage_of(run: StoredRun) -> Stage:
    """Return the stage as another command finds it."""
    witnesses = Witnesses(MemoryProvider(node(ATTEMPT.tpu.name, id=ATTEMPT.tpu.id)))
    return look(StoredRun(run.bucket, "r1"), witnesses)


class TestLook:
    def test_a_run_without_an_attempt_is_at_its_beginning(self, run: StoredRun) -> None:
        assert stage_of(run) == Stage()
        run.end(ENDED)
        assert stage_of(run) == Stage(ENDED)

    def test_a_run_is_launched_once_every_worker_has_spoken(
        self, run: StoredRun, memory: MemoryBucket
    ) -> None:
        run.create_attempt(ATTEMPT)
        for worker in ATTEMPT.workers:
            assert stage_of(run) == Stage(None, ATTEMPT.tpu, 1, is_launched=False)
            memory.put(run.paths.status(1, worker), encode(replace(STATUS, worker=worker)))
        assert stage_of(run) == Stage(None, ATTEMPT.tpu, 1, is_launched=True)

    def test_a_run_that_has_ended_has_a_verdict(self, run: StoredRun) -> None:
        run.create_attempt(ATTEMPT)
        run.end(ENDED)
        assert stage_of(run) == Stage(ENDED, ATTEMPT.tpu, 1, is_launched=False)

    def test_an_attempt_that_ended_before_its_start_counts_as_none(self, run: StoredRun) -> None:
        run.create_attempt(ATTEMPT)
        run.end(msgspec.structs.replace(ENDED, cause=runs.UNSTARTED))
        assert stage_of(run) == Stage()


class TestSameName:
    def request(self, script: str, *arguments: str) -> Any:
        return SimpleNamespace(script=Path(script), arguments=arguments)

    def test_of_a_run_that_does_not_exist_yet_is_free(self, memory: MemoryBucket) -> None:
        require_same(StoredRun(cast("Any", memory), "r2"), self.request("other.py"))

    @pytest.mark.parametrize("script", ["train.py", "elsewhere/train.py"])
    def test_with_the_same_script_and_arguments_means_the_run(self, run: StoredRun, script: str) -> None:
        require_same(run, self.request(script, "--rate", "1"))

    @pytest.mark.parametrize(
        "words", [("other.py", "--rate", "1"), ("train.py", "--rate", "2"), ("train.py",)]
    )
    def test_of_another_script_or_with_other_arguments_is_taken(
        self, run: StoredRun, words: tuple[str, ...]
    ) -> None:
        with pytest.raises(ConflictError) as caught:
            require_same(run, self.request(*words))
        assert caught.value.message == (
            "There is a run 'r1' already, of jobs/train.py or with other arguments."
        )
        assert caught.value.hint == "Choose another --name, or none."


def test_two_runs_of_one_second_have_two_names() -> None:
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    names = {new_name(SubmitRequest("train.py"), at) for _ in range(8)}
    assert len(names) > 1
    ends = {name.rpartition("-")[2] for name in names}
    assert {len(end) for end in ends} == {4}
