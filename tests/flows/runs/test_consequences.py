"""What the end of a run means for who waited."""

from __future__ import annotations

import msgspec
import pytest

from tests.flows.runs.records import TPU
from tpuctl import runs
from tpuctl.errors import JobFailedError, PreemptedError, StateError
from tpuctl.flows.runs.outcome import error_of, next_command
from tpuctl.runs import Verdict

TIME = "2026-01-01T12:00:00Z"


@pytest.mark.parametrize(
    ("outcome", "error", "message"),
    [
        (runs.FAILED, JobFailedError, "Run 'r' failed: because."),
        (runs.PREEMPTED, PreemptedError, "Run 'r' was preempted: because."),
        (runs.MAINTENANCE, StateError, "Run 'r' was ended by maintenance: because."),
        (runs.STOPPED, StateError, "Run 'r' was stopped: because."),
        (runs.LOST, StateError, "Run 'r' was lost: because."),
        ("cancelled", StateError, "Run 'r' was cancelled: because."),  # of a later version
    ],
)
def test_each_outcome_but_success_is_an_error_for_who_waited(
    outcome: str, error: type[Exception], message: str
) -> None:
    verdict = Verdict("r", outcome, 1, TIME, "because", 7)
    raised = error_of(verdict)
    assert type(raised) is error
    assert raised
    assert raised.message == message
    assert raised.hint == "See the end of its log: tpuctl logs r --tail 20"
    assert raised.facts.get("job_exit_code") == (7 if outcome == runs.FAILED else None)


def test_success_is_no_error() -> None:
    assert error_of(Verdict("r", runs.SUCCEEDED, 1, TIME, "because", 0)) is None


def test_who_asked_to_stop_a_run_is_named() -> None:
    verdict = Verdict("r", runs.STOPPED, 1, TIME, "stopped by ada@example.com", stopped_by="ada@example.com")
    error = error_of(verdict)
    assert error
    assert error.message == "Run 'r' was stopped by ada@example.com."
    assert error.facts == {"stopped_by": "ada@example.com"}


@pytest.mark.parametrize(
    ("outcome", "cause", "hint"),
    [
        (runs.FAILED, "", "See the end of its log: tpuctl logs r --tail 20"),
        (
            runs.FAILED, "out of memory",
            "Use a smaller batch, or a larger slice; its last lines: tpuctl logs r --tail 20",
        ),
        (
            runs.FAILED, "disk full",
            "Delete files on its hosts, or write to gs://: tpuctl exec n1 -- df -h",
        ),
        (
            runs.FAILED, "chips held by another process",
            "End the process that holds the chips; the log names it: tpuctl logs r --grep 'is held by'",
        ),
        (
            runs.FAILED, "chips refused for libtpu's lock file",
            "If nobody holds the chips, delete the lock file that another user left: "
            "tpuctl exec n1 -- sudo rm -f /tmp/libtpu_lockfile",
        ),
        (
            runs.PREEMPTED, "",
            "Make a TPU again, then submit it again: tpuctl up v3-32 --zone europe-west4-a",
        ),
        (runs.MAINTENANCE, "", "Submit it again once the node is READY: tpuctl wait n1"),
        (runs.STOPPED, "", "See what happened to its TPU: tpuctl why n1"),
        (runs.LOST, "", "See what happened to its TPU: tpuctl why n1"),
        ("cancelled", "", "See the end of its log: tpuctl logs r --tail 20"),  # of a later version
    ],
)  # fmt: skip
def test_each_end_has_the_command_that_helps(outcome: str, cause: str, hint: str) -> None:
    verdict = Verdict("r", outcome, 1, TIME, "because", tpu=TPU, cause=cause)
    raised = error_of(verdict)
    assert raised
    assert raised.hint == hint
    assert hint.endswith(next_command(verdict))


def test_what_somebody_stopped_shows_its_log() -> None:
    verdict = Verdict("r", runs.STOPPED, 1, TIME, "stopped by ada", tpu=TPU, stopped_by="ada")
    assert next_command(verdict) == "tpuctl logs r --tail 20"


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("", "failed"), ("out of memory", "failed"), ("disk full", "failed"),
        ("chips held by another process", "failed"), ("chips refused for libtpu's lock file", "failed"),
        (runs.UNSTARTED, "was not started"),
    ],
)  # fmt: skip
def test_a_failure_of_any_cause_says_what_happened(cause: str, words: str) -> None:
    error = error_of(Verdict("r", runs.FAILED, 1, TIME, "because.", 7, tpu=TPU, cause=cause))
    assert isinstance(error, JobFailedError)
    assert error.message == f"Run 'r' {words}: because."


def test_a_module_that_the_host_lacks_is_named() -> None:
    for line, missing in [
        ("ModuleNotFoundError: No module named 'clu'", "No module named 'clu'"),
        ("ImportError: No module named 'big_vision.pp'", "No module named 'big_vision.pp'"),
        ("ValueError: No module named 'clu'", ""),
        ("ModuleNotFoundError: import of clu halted", ""),
    ]:
        error = error_of(Verdict("r", runs.FAILED, 1, TIME, "because", 1, tpu=TPU, last_line=line))
        assert error
        assert error.message == f"Run 'r' failed: because{missing and f': {missing}'}.", line
        assert ("dependencies in the script's header" in error.hint) == bool(missing), line
        assert error.hint.endswith(": tpuctl logs r --tail 20"), line
    stopped = error_of(Verdict("r", runs.STOPPED, 1, TIME, "because", last_line="ModuleNotFoundError: x"))
    assert stopped
    assert stopped.message == "Run 'r' was stopped: because."


def test_a_run_that_was_not_started_is_started_by_the_same_command() -> None:
    verdict = Verdict("r", runs.FAILED, 1, TIME, "because", tpu=TPU, cause=runs.UNSTARTED)
    error = error_of(verdict)
    assert error
    assert error.hint == (
        "The same command with --name r starts it; what is known: tpuctl describe r"
    )  # fmt: skip


def test_a_run_that_restarts_is_started_again_by_who_watches_it() -> None:
    error = error_of(Verdict("r", runs.PREEMPTED, 1, TIME, "because", tpu=TPU, restarts=True))
    assert error
    assert error.message == "Run 'r' was preempted: because."
    assert error.hint == (
        "Start it again from its last checkpoint, on another machine where that is needed: tpuctl watch r"
    )


@pytest.mark.parametrize(
    ("tpu", "hint"),
    [
        (None, "See what was asked for: tpuctl describe r"),
        (TPU, "See the end of its log: tpuctl logs r --tail 20"),
    ],
)
def test_what_somebody_stopped_has_a_log_once_it_was_on_a_tpu(tpu: runs.Tpu | None, hint: str) -> None:
    verdict = Verdict("r", runs.STOPPED, 1, TIME, "stopped by ada", tpu=tpu, stopped_by="ada")
    error = error_of(verdict)
    assert error
    assert error.hint == hint
    assert hint.endswith(next_command(verdict))


@pytest.mark.parametrize(("spot", "option"), [(True, " --spot"), (False, "")])
def test_a_preempted_tpu_is_made_again_as_it_was(spot: bool, option: str) -> None:
    tpu = msgspec.structs.replace(TPU, spot=spot)
    verdict = Verdict("r", runs.PREEMPTED, 1, TIME, "because", tpu=tpu)
    assert next_command(verdict) == f"tpuctl up v3-32{option} --zone europe-west4-a"


def test_a_success_has_results() -> None:
    assert next_command(Verdict("r", runs.SUCCEEDED, 1, TIME, "because", 0, tpu=TPU)) == "tpuctl pull r"
