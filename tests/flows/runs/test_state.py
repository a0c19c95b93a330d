"""What a run's state is called while it has no verdict, and what it waits for."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.flows.runs.records import CREATED, STATUS, TPU
from tpuctl import runs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.flows.runs.state import RunState, line_left, unstarted_label, unstarted_reason
from tpuctl.host.worker.records import WorkerStatus
from tpuctl.runs import Verdict

EARLY, LATE = "2026-01-01T11:00:00Z", "2026-01-01T11:30:00Z"
VERDICT = Verdict("r1", runs.FAILED, 3, CREATED, "worker 0's script ended with exit code 1", tpu=TPU)
BAD = BadObjectError("verdict.json", "is no JSON")


def word(state: str = "running", **fields: object) -> WorkerStatus:
    return replace(STATUS, state=state, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("statuses", "start"),
    [
        ([word(started=LATE), word(started=EARLY), None], LATE),
        ([word("queued"), None], ""),
        ([], ""),
        ([None], ""),
        ([word("queued"), word("ready", started=EARLY)], ""),
        ([word("preparing")], ""),
        ([word("unknown")], None),
        ([word("running")], None),
        ([word("finished")], ""),
        ([word("finished", pid=7)], None),
        ([word("finished", exit_code=0)], None),
        ([word("finished", started="soon")], ""),
        ([word("queued", started=EARLY)], ""),  # an earlier version says when it joined the line
    ],
)
def test_the_last_worker_to_leave_the_line_says_when(
    statuses: list[WorkerStatus | None], start: str | None
) -> None:
    assert line_left(statuses) == start


@pytest.mark.parametrize(("seconds", "label"), [(0, "not started"), (600, "not started"), (601, "abandoned")])
def test_a_submission_has_ten_minutes_to_start(seconds: float, label: str) -> None:
    assert unstarted_label(seconds) == label
    reason = "its submission ended before it started anything; the same command with --name r1 starts it"
    assert unstarted_reason("r1", seconds) == (reason if label == "abandoned" else "")


class TestRunState:
    def test_a_verdict_says_all(self) -> None:
        state = RunState(VERDICT, [word()], doubt="silence", unanswered="no answer", node=None, last=9)
        assert (state.label, state.reason, state.attempt, state.tpu) == ("failed", VERDICT.evidence, 3, TPU)

    def test_what_cannot_be_read_is_unknown(self) -> None:
        state = RunState(VERDICT, error=BAD)
        assert (state.label, state.reason) == ("unknown", BAD.message)

    def test_while_it_goes_on_its_last_attempt_says_where(self) -> None:
        state = RunState(None, [word()], node=TPU, last=2)
        assert (state.attempt, state.tpu, state.reason, state.ahead) == (2, TPU, "", 0)
        assert (RunState(None).attempt, RunState(None).tpu) == (0, None)

    def test_a_run_that_waits_says_for_how_many(self) -> None:
        statuses = [word("queued", ahead=1), None, word("queued", ahead=3), word("running", ahead=7)]
        state = RunState(None, statuses)
        assert (state.ahead, state.reason, state.label) == (3, "3 ahead", "starting")

    def test_a_run_that_prints_nothing_says_so_after_ten_minutes(self) -> None:
        for quiet, reason in (
            (None, ""), (599, ""), (600, "no output for 10 min"), (7199, "no output for 119 min"),
            (7200, "no output for 2 h"),
        ):  # fmt: skip
            assert RunState(None, [word()], quiet=quiet).reason == reason
        assert RunState(None, [word()], doubt="silence", quiet=600).reason == "silence"

    def test_a_provider_that_does_not_answer_comes_before_the_silence(self) -> None:
        state = RunState(None, [word()], doubt="silence", unanswered="no answer")
        assert (state.label, state.reason) == ("unknown", "no answer")
        assert RunState(None, [word()], doubt="silence").reason == "silence"

    def test_scripts_that_hold_no_chip_are_counted_before_those_that_print_nothing(self) -> None:
        none, held, past = word(has_no_chip=True), word(), word("finished", has_no_chip=True)
        for statuses, reason in (
            ([none], "holds no TPU chip: running on the CPU?"),
            ([none, none, past, None], "holds no TPU chip: running on the CPU?"),
            ([none, held, held], "1 of 3 workers holds no TPU chip: running on the CPU?"),
            ([none, held, none], "2 of 3 workers hold no TPU chip: running on the CPU?"),
            ([past, held], "no output for 20 min"),
        ):
            assert RunState(None, statuses, quiet=1200.0).reason == reason

    def test_the_slowest_worker_counts(self) -> None:
        order = ["starting", "queued", "preparing", "ready", "running", "finished"]
        words = {name: None if name == "starting" else word(name) for name in order}
        for slow, fast in itertools.pairwise(order):
            assert RunState(None, [words[fast], words[slow]]).label == slow
            assert RunState(None, [words[slow], words[fast]]).label == slow
