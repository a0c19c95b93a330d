"""How a run ended, from what its workers and its machine say.

Who is named when workers end because of each other.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tpuctl import runs
from tpuctl.flows.runs.evidence import decision
from tpuctl.flows.runs.evidence.decision import (
    Ending,
    HostState,
    HostWord,
    NodeWord,
    WorkerWord,
    decide,
    needs_node,
    to_be_asked,
)
from tpuctl.host import timing
from tpuctl.host.worker.records import MAINTENANCE, PREEMPTION, UNKNOWN, WorkerStatus
from tpuctl.nodes import NodeState
from tpuctl.runs import BY_MACHINE, BY_SILENCE, BY_WORKERS

TIME = "2026-01-01T12:00:00Z"
RUNNING = WorkerStatus(0, 1, "7", "running", TIME)
FINISHED = WorkerStatus(0, 1, "7", "finished", TIME, finished=TIME, exit_code=0)
STOPPED = replace(FINISHED, exit_code=143, stopped="SIGTERM")
READY = NodeWord(NodeState.READY)
NO_ANSWER = HostWord(HostState.NO_ANSWER, "it did not answer in time")
OTHERS = "; the other workers may keep running until 'tpuctl down'"


def words(*pairs: tuple[WorkerStatus | None, float], hosts: HostWord | None = None) -> list[WorkerWord]:
    """Return what workers 0, 1 ... wrote so many seconds ago; the hosts of silent ones say the same."""
    made = []
    for worker, (status, age) in enumerate(pairs):
        word = WorkerWord(worker, replace(status, worker=worker) if status else None, age)
        made.append(replace(word, host=hosts) if word.silence > decision.ASK_HOST_AFTER else word)
    return made


def outcome(ending: Ending | None) -> str | None:
    return ending.outcome if ending else None


class TestWorkers:
    def test_a_run_succeeds_when_every_worker_has_finished_with_0(self) -> None:
        assert decide(words((FINISHED, 1), (None, 1))) is None
        assert decide(words((FINISHED, 1), (RUNNING, 1))) is None
        assert decide(words((FINISHED, 1), (FINISHED, 99))) == Ending(
            runs.SUCCEEDED, "every worker's script ended with exit code 0", BY_WORKERS
        )

    def test_a_success_without_chips_is_told_as_such(self) -> None:
        none = replace(FINISHED, has_no_chip=True)
        for statuses, besides in (
            ([none, none], "; no TPU chip was seen in use"),
            ([FINISHED, none, FINISHED], "; no TPU chip was seen in use on 1 of 3 workers"),
        ):
            ending = decide(words(*((status, 1) for status in statuses)))
            evidence = f"every worker's script ended with exit code 0{besides}"
            assert ending == Ending(runs.SUCCEEDED, evidence, BY_WORKERS)

    def test_a_success_needs_no_heartbeat(self) -> None:
        late = words((FINISHED, 1_000_000), (FINISHED, 900_000))
        assert not needs_node(late)
        assert outcome(decide(late, NodeWord(NodeState.GONE))) == runs.SUCCEEDED

    @pytest.mark.parametrize(
        ("changes", "evidence"),
        [
            ({"exit_code": 7}, "worker 1's script ended with exit code 7"),
            ({"exit_code": 7, "cause": "disk full"}, "worker 1's script ended with exit code 7 (disk full)"),
            ({"exit_code": 137, "signal": "SIGKILL"}, "worker 1's script was ended by SIGKILL"),
            (
                {"exit_code": 137, "signal": "SIGKILL", "cause": "out of memory"},
                "worker 1's script was ended by SIGKILL (out of memory)",
            ),
            (
                {"exit_code": None, "error": "BundleError: gone"},
                "worker 1 could not start: BundleError: gone",
            ),
        ],
    )
    def test_one_worker_that_fails_ends_the_run_with_its_reason(
        self, changes: dict[str, object], evidence: str
    ) -> None:
        failed = replace(FINISHED, **changes)
        ending = decide(words((FINISHED, 5), (failed, 1)))
        assert ending == Ending(runs.FAILED, evidence, BY_WORKERS, failed.exit_code)
        early = decide(words((RUNNING, 5), (failed, 1)))
        others = "; the others are stopped because of it"
        assert early == Ending(runs.FAILED, evidence + others, BY_WORKERS, failed.exit_code)

    def test_one_that_was_never_started_ends_the_run_once_the_others_have_given_it_up(self) -> None:
        reason = "worker 1 was not started, and nobody starts it any more"
        given_up = replace(FINISHED, exit_code=None, error=f"not started, because {reason}", peer=1)
        ending = decide(words((given_up, 5), (None, 99), (given_up, 1)))
        assert ending == Ending(runs.FAILED, reason, BY_WORKERS, cause=runs.UNSTARTED)
        waiting = replace(RUNNING, state="ready")
        assert decide(words((given_up, 5), (None, 99), (waiting, 1))) is None
        assert decide(words((FINISHED, 5), (None, 99), (FINISHED, 1))) is None

    def test_the_worker_that_failed_first_is_named(self) -> None:
        ending = decide(words((replace(FINISHED, exit_code=1), 3), (replace(FINISHED, exit_code=2), 8)))
        assert ending
        assert ending.exit_code == 2

    def test_a_failure_long_before_others_were_stopped_stays_a_failure(self) -> None:
        """They may have been stopped because of it."""
        failed = replace(FINISHED, exit_code=3)
        assert outcome(decide(words((failed, 500), (STOPPED, 60)), NodeWord(NodeState.GONE))) == runs.FAILED
        assert outcome(decide(words((failed, 60), (STOPPED, 60)), NodeWord(NodeState.GONE))) == runs.STOPPED

    @pytest.mark.parametrize(
        ("cause", "expected"), [(PREEMPTION, runs.PREEMPTED), (MAINTENANCE, runs.MAINTENANCE)]
    )
    def test_what_its_host_announced_says_why_a_worker_was_stopped(self, cause: str, expected: str) -> None:
        """Also when the node is READY again, or deleted, once somebody looks."""
        told = words((replace(STOPPED, cause=cause), 5), (RUNNING, 5))
        for node in (None, READY, NodeWord(NodeState.GONE)):
            ending = decide(told, node)
            assert outcome(ending) == expected
            assert ending
            assert ending.basis == BY_MACHINE


class TestRequestToStop:
    ASKED = replace(FINISHED, exit_code=143, signal="SIGTERM", stopped_by="ada@example.com")

    def test_it_ends_the_run_as_soon_as_every_worker_has_ended(self) -> None:
        over = words((self.ASKED, 1), (replace(self.ASKED, exit_code=0), 2), (FINISHED, 40))
        assert not needs_node(over)
        assert decide(over) == Ending(
            runs.STOPPED, "stopped by ada@example.com", BY_WORKERS, stopped_by="ada@example.com"
        )

    def test_a_worker_that_saves_has_its_time(self) -> None:
        saving = words((self.ASKED, 600), (RUNNING, 5))
        assert decide(saving, READY) is None
        assert decide(words((self.ASKED, 600), (RUNNING, 60), hosts=HostWord(HostState.ALIVE)), READY) is None

    def test_a_host_that_is_down_does_not_keep_it_from_its_end(self) -> None:
        ending = decide(words((self.ASKED, 60), (RUNNING, 60), hosts=NO_ANSWER), READY)
        assert ending
        assert (ending.outcome, ending.basis, ending.silent) == (runs.STOPPED, BY_MACHINE, (1,))
        assert ending.evidence == f"stopped by ada@example.com{OTHERS}"

    def test_a_failure_long_before_stays_a_failure(self) -> None:
        failed = replace(FINISHED, exit_code=7)
        assert outcome(decide(words((failed, 600), (self.ASKED, 5)))) == runs.FAILED
        assert outcome(decide(words((failed, 6), (self.ASKED, 5)))) == runs.STOPPED

    def test_a_node_that_is_preempted_meanwhile_changes_nothing(self) -> None:
        both = replace(self.ASKED, stopped="SIGTERM")
        ending = decide(words((both, 1), (self.ASKED, 1)), NodeWord(NodeState.PREEMPTED))
        assert outcome(ending) == runs.STOPPED


class TestNode:
    @pytest.mark.parametrize(
        ("age", "state", "expected"),
        [
            (31, NodeState.PREEMPTED, runs.PREEMPTED),  # too fast for the worker to write it
            (31, NodeState.GONE, runs.STOPPED),
            (31, NodeState.DELETING, runs.STOPPED),
            (31, NodeState.STOPPED, runs.STOPPED),
            (31, NodeState.REPAIRING, runs.MAINTENANCE),
            (31, NodeState.READY, None),
            (100_000, NodeState.READY, None),  # nobody has asked its host
            (100_000, NodeState.UNKNOWN, None),
        ],
    )
    @pytest.mark.parametrize("status", [RUNNING, None])
    def test_its_state_says_why_a_worker_is_silent(
        self, age: float, state: NodeState, expected: str | None, status: WorkerStatus | None
    ) -> None:
        assert outcome(decide(words((status, age)), NodeWord(state))) == expected

    def test_it_is_not_asked_while_heartbeats_come(self) -> None:
        assert not needs_node(words((RUNNING, 30), (FINISHED, 500)))
        assert needs_node(words((RUNNING, 31), (FINISHED, 500)))
        assert needs_node(words((STOPPED, 0), (RUNNING, 1)))
        assert 3 * timing.HEARTBEAT <= 30, "three may be late"

    @pytest.mark.parametrize(
        ("age", "state", "expected"),
        [
            (1, NodeState.READY, runs.FAILED), (1, NodeState.UNKNOWN, runs.FAILED),
            (1, NodeState.PREEMPTED, runs.PREEMPTED), (1, NodeState.DELETING, runs.STOPPED),
            (1, NodeState.REPAIRING, runs.MAINTENANCE), (31, NodeState.DELETING, runs.FAILED),
        ],
    )  # fmt: skip
    def test_a_script_that_fails_while_the_node_goes_down_fails_because_of_it(
        self, age: float, state: NodeState, expected: str
    ) -> None:
        """Its peers vanish before it is stopped itself."""
        known = words((replace(FINISHED, exit_code=1), age), (RUNNING, 8))
        assert needs_node(known) == (age < 31)
        assert outcome(decide(known, NodeWord(state))) == expected

    def test_why_it_was_deleted_is_the_evidence(self) -> None:
        ending = decide(words((RUNNING, 31)), NodeWord(NodeState.GONE, "its keeper said so"))
        assert ending
        assert ending.evidence == "its keeper said so"

    @pytest.mark.parametrize(
        ("age", "state", "expected"),
        [
            (1, NodeState.READY, None),  # a worker is stopped before its node shows why
            (1, NodeState.PREEMPTED, runs.PREEMPTED),
            (1, NodeState.DELETING, runs.STOPPED),
            (1, NodeState.STOPPING, runs.STOPPED),
            (1, NodeState.REPAIRING, runs.MAINTENANCE),
            (30, NodeState.READY, None),
            (31, NodeState.READY, runs.STOPPED),
            (31, NodeState.PREEMPTED, runs.PREEMPTED),
        ],
    )
    def test_a_worker_that_was_stopped_was_preempted_if_its_node_was(
        self, age: float, state: NodeState, expected: str | None
    ) -> None:
        assert outcome(decide(words((STOPPED, age)), NodeWord(state))) == expected

    @pytest.mark.parametrize("other", [FINISHED, RUNNING, None])
    def test_a_stop_of_one_worker_ends_the_run_whatever_becomes_of_the_others(
        self, other: WorkerStatus | None
    ) -> None:
        """They wait for it for ever, or are gone without a word."""
        ending = decide(words((STOPPED, 31), (other, 1)), READY)
        suffix = "" if other is FINISHED else OTHERS
        assert ending == Ending(runs.STOPPED, f"worker 0 was ended by SIGTERM{suffix}", BY_MACHINE)


class TestHosts:
    def test_those_of_silent_workers_are_asked_while_the_node_has_not_ended(self) -> None:
        known = words((RUNNING, 45), (RUNNING, 46), (FINISHED, 900), (None, 46))
        assert to_be_asked(known, READY) == [1, 3]
        assert to_be_asked(known, NodeWord(NodeState.UNKNOWN)) == [1, 3]
        assert to_be_asked(known, NodeWord(NodeState.GONE)) == []

    @pytest.mark.parametrize("age", [46, 1000, 100_000])
    def test_a_worker_that_lives_is_not_lost_however_long_it_is_silent(self, age: float) -> None:
        assert decide(words((RUNNING, age), hosts=HostWord(HostState.ALIVE)), READY) is None

    def test_a_program_that_is_gone_ends_the_run(self) -> None:
        gone = HostWord(HostState.GONE, "the host was restarted")
        assert decide(words((RUNNING, 46), (FINISHED, 1), hosts=gone), READY) == Ending(
            runs.LOST,
            "what ran the script on worker 0 ended without a word (the host was restarted): its host says so",
            BY_MACHINE,
            silent=(0,),
        )

    def test_one_stopped_and_one_gone_end_the_run_at_once(self) -> None:
        """SIGTERM for one supervisor, SIGKILL for another."""
        ending = decide(words((STOPPED, 5), (RUNNING, 46), hosts=HostWord(HostState.GONE)), READY)
        assert ending
        assert (ending.outcome, ending.silent) == (runs.STOPPED, (1,))

    def test_a_start_that_was_cut_off_is_told_as_such(self) -> None:
        absent = HostWord(HostState.ABSENT, "its start there was cut off")
        ending = decide(words((None, 301), hosts=absent), READY)
        assert ending
        reason = "it was never started on worker 0: its start there was cut off"
        assert (ending.outcome, ending.evidence) == (runs.FAILED, reason)

    def test_a_host_without_a_trace_says_that_nothing_was_started(self) -> None:
        absent = HostWord(HostState.ABSENT)
        assert decide(words((None, 300), hosts=absent), READY) is None, "submit may be on its way"
        assert decide(words((None, 300), hosts=HostWord(HostState.GONE)), READY) is None
        ending = decide(words((None, 301), (None, 301), hosts=absent), READY)
        assert ending == Ending(
            runs.FAILED,
            "it was never started on worker 0: its host has no trace of it",
            BY_MACHINE,
            silent=(0, 1),
            cause=runs.UNSTARTED,
        )
        assert decide(words((RUNNING, 46), hosts=absent), READY) is None, "it was there: another disk"


class TestSilence:
    def test_it_is_an_answer_only_after_everybody_was_asked_for_a_long_time(self) -> None:
        assert decide(words((RUNNING, 900), hosts=NO_ANSWER), READY) is None
        assert decide(words((RUNNING, 901), hosts=NO_ANSWER), READY) == Ending(
            runs.LOST,
            "no word of worker 0 for 901 s (the node is READY; its host was asked over SSH: "
            "it did not answer in time)",
            BY_SILENCE,
            silent=(0,),
        )

    def test_it_is_none_while_the_provider_does_not_answer_either(self) -> None:
        assert decide(words((RUNNING, 901), hosts=NO_ANSWER), NodeWord(NodeState.UNKNOWN)) is None

    def test_a_status_that_cannot_be_read_decides_nothing(self) -> None:
        unknown = WorkerStatus(0, 1, "", UNKNOWN, "")
        assert decide(words((unknown, 86_400), hosts=NO_ANSWER), READY) is None
        assert outcome(decide(words((unknown, 31)), NodeWord(NodeState.GONE))) == runs.STOPPED


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
