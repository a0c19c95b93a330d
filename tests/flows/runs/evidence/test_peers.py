"""Who is named when workers end because of each other."""

from __future__ import annotations

from dataclasses import replace

from tests.flows.runs.evidence.test_decision import FINISHED, READY, RUNNING, STOPPED, outcome, words
from tpuctl import runs
from tpuctl.flows.runs.evidence.decision import Ending, HostState, HostWord, decide
from tpuctl.runs import BY_WORKERS

FAILED = replace(FINISHED, exit_code=3)
NOT_STARTED = replace(FINISHED, exit_code=None, pid=0)
ENDED = replace(FINISHED, exit_code=143, signal="SIGTERM", error="stopped, because worker 0 ...", peer=0)


def test_the_first_failure_is_named_and_not_what_it_ended() -> None:
    """Whatever the order in which their last words arrive."""
    ending = Ending(runs.FAILED, "worker 0's script ended with exit code 3", BY_WORKERS, 3)
    assert decide(words((FAILED, 5), (ENDED, 9), (ENDED, 1), (replace(ENDED, exit_code=1), 7))) == ending
    assert decide(words((RUNNING, 5), (ENDED, 9), (ENDED, 1), (ENDED, 1))) is None


def test_a_host_that_cannot_start_is_named_and_not_those_that_wait_for_it() -> None:
    reason = "PackageError: no such package"
    failed = replace(NOT_STARTED, error=reason)
    other = replace(NOT_STARTED, error=f"not started, because worker 0 could not start: {reason}", peer=0)
    ending = decide(words((failed, 1), (other, 8), (other, 8)))
    assert ending == Ending(runs.FAILED, f"worker 0 could not start: {reason}", BY_WORKERS)


def test_a_stopped_host_is_the_reason_though_others_ended_because_of_it() -> None:
    stopped = replace(STOPPED, cause="preempted")
    assert outcome(decide(words((stopped, 1), (ENDED, 1), (ENDED, 1)))) == runs.PREEMPTED
    assert outcome(decide(words((STOPPED, 90), (ENDED, 90), (ENDED, 90)), READY)) == runs.STOPPED


def test_a_host_that_left_no_time_for_a_last_word_has_said_why() -> None:
    """What it announced is on its disk, which a restart keeps."""
    last = replace(RUNNING, stopped="SIGTERM", cause="maintenance")
    gone = HostWord(HostState.GONE, "", last)
    ending = decide(words((RUNNING, 60), (RUNNING, 60), hosts=gone), READY)
    assert ending
    assert (ending.outcome, ending.silent) == (runs.MAINTENANCE, (0, 1))
    unknown = HostWord(HostState.GONE, "", replace(last, cause=""))
    assert outcome(decide(words((RUNNING, 60), hosts=unknown), READY)) == runs.LOST


def test_workers_that_gave_one_up_have_not_succeeded_though_it_has() -> None:
    silent = replace(ENDED, error="stopped, because worker 0 has not been heard of for 15 minutes")
    ending = decide(words((FINISHED, 1), (silent, 1), (replace(silent, exit_code=0), 1)))
    assert ending == Ending(
        runs.FAILED, "worker 1: stopped, because worker 0 has not been heard of for 15 minutes", BY_WORKERS
    )
