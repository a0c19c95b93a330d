"""One line about each run, and following one run to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider
from tests.flows.runs.records import ATTEMPT, CREATED, STATUS, write_chunk, write_run, write_status
from tpuctl import clock, runs
from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.cloud.storage import Bucket
from tpuctl.datasets import PinnedDataset
from tpuctl.errors import ConfigError, InterruptedByUser
from tpuctl.flows.runs.logs import Line, LogReader, follow
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.summaries import Summary, summaries
from tpuctl.nodes import Node, NodeId
from tpuctl.runs import Run
from tpuctl.worker.records import FINISHED, PREPARING, RUNNING, encode

AT = clock.parse(CREATED)


def end_all(run: StoredRun, exit_code: int = 0) -> None:
    """Write the last status of every worker."""
    for worker in ATTEMPT.workers:
        status = replace(STATUS, worker=worker, state=FINISHED, finished=CREATED, exit_code=exit_code)
        run.bucket.upload(run.paths.status(1, worker), [encode(status)], "application/json")


class TestSummaries:
    def test_runs_are_listed_oldest_first_with_what_they_are(self, bucket: Bucket) -> None:
        dataset = PinnedDataset("pets", "1.0.0", "0" * 64)
        for name, made_from in (("b", dataset), ("a", None)):
            run = Run(name, CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {}, made_from)
            StoredRun(bucket, name).create(run)
        assert summaries(bucket, MemoryProvider(), AT) == [
            Summary("b", CREATED, "v3-32", "pets/1.0.0", "not started", "ada@laptop"),
            Summary("a", CREATED, "v3-32", "", "not started", "ada@laptop"),
        ]

    @pytest.mark.parametrize("state", [PREPARING, RUNNING])
    def test_a_run_without_a_verdict_is_as_far_as_its_workers(self, bucket: Bucket, state: str) -> None:
        attempt = write_run(bucket).last_attempt()
        assert [summary.state for summary in summaries(bucket, MemoryProvider(), AT)] == ["starting"]
        for worker in ATTEMPT.workers:
            write_status(attempt, worker, state)
        assert [summary.state for summary in summaries(bucket, MemoryProvider(), AT)] == [state]

    def test_a_run_that_has_ended_gets_its_verdict(self, bucket: Bucket) -> None:
        run = write_run(bucket)
        end_all(run)
        assert [summary.state for summary in summaries(bucket, MemoryProvider(), AT)] == [runs.SUCCEEDED]
        stored = StoredRun(bucket, "r1").verdict()
        assert stored
        assert stored.outcome == runs.SUCCEEDED

    def test_a_run_whose_node_is_gone_was_stopped(self, bucket: Bucket) -> None:
        write_run(bucket)
        later = AT + timedelta(seconds=31)
        assert [summary.state for summary in summaries(bucket, MemoryProvider(), later)] == [runs.STOPPED]


class TestFollow:
    @pytest.fixture
    def run(self, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> StoredRun:
        """A run that has just sent heartbeats."""
        monkeypatch.setattr(clock, "now", lambda: AT)
        run = write_run(bucket)
        for worker in ATTEMPT.workers:
            write_status(run.last_attempt(), worker, RUNNING)
        return run

    def follow(
        self, run: StoredRun, events: list[Callable[[], object]]
    ) -> tuple[list[str], str, list[float]]:
        """Follow a run in whose pauses these things happen; return its lines, its outcome, the pauses."""
        lines, pauses = list[Line](), list[float]()

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            events.pop(0)()

        reader = LogReader(run.last_attempt())
        verdict = follow(run, MemoryProvider(), reader, lines.append, sleep=sleep)
        return [line.text for line in lines], verdict.outcome, pauses

    def test_new_lines_are_shown_each_second_until_the_run_ends(self, run: StoredRun) -> None:
        attempt = run.last_attempt()
        write_chunk(attempt, 0, 1, "one\n")
        lines, outcome, pauses = self.follow(
            run, [lambda: write_chunk(attempt, 0, 2, "two\nthr"), lambda: None, lambda: end_all(run)]
        )
        assert lines == ["one", "two", "thr"]
        assert outcome == runs.SUCCEEDED
        assert pauses == [1.0, 1.0, 1.0]

    def test_lines_that_were_shipped_right_before_the_end_are_shown(self, run: StoredRun) -> None:
        def last() -> None:
            write_chunk(run.last_attempt(), 1, 1, "the end")
            end_all(run, exit_code=7)

        lines, outcome, _ = self.follow(run, [last])
        assert (lines, outcome) == (["the end"], runs.FAILED)

    def test_ctrl_c_leaves_the_run_alone_and_says_how_to_resume(self, run: StoredRun) -> None:
        def interrupt() -> None:
            raise KeyboardInterrupt

        with pytest.raises(InterruptedByUser) as interrupted:
            self.follow(run, [interrupt])
        assert interrupted.value.message == "Interrupted; run 'r1' keeps running."
        assert interrupted.value.hint == "Resume with: tpuctl logs -f r1"
        assert StoredRun(run.bucket, "r1").verdict() is None


def test_following_a_run_whose_verdict_cannot_be_read_ends_with_its_name(bucket: Bucket) -> None:
    run = write_run(bucket)
    write_chunk(run.last_attempt(), 0, 1, "the last words")
    bucket.upload(run.paths.verdict, [b"{}"], "application/json")
    lines: list[Line] = []
    with pytest.raises(BadObjectError, match=r"runs/r1/verdict\.json is not a Verdict"):
        follow(run, MemoryProvider(), LogReader(run.last_attempt()), lines.append)
    assert [line.text for line in lines] == ["the last words"]


def test_a_node_that_may_not_be_read_makes_one_run_unknown(bucket: Bucket) -> None:
    class Refusing(MemoryProvider):
        def get_node(self, node: NodeId) -> Node:
            raise ConfigError("You may not read it.")

    write_run(bucket)
    warnings: list[str] = []
    later = AT + timedelta(hours=1)
    assert [summary.state for summary in summaries(bucket, Refusing(), later, warnings.append)] == ["unknown"]
    assert warnings == ["The state of run 'r1' is unknown: You may not read it."]
