"""Whether another attempt follows, what a restart has lost, and what a run's end means for who waited."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.flows.runs.records import ATTEMPT, CREATED, TPU
from tests.running_simulator import RunningSimulator
from tpuctl import runs
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import JobFailedError, PreemptedError, StateError
from tpuctl.flows.runs.outcome import error_of, next_command
from tpuctl.flows.runs.state import decide, needs_other_machine, steps_lost, total_lost, was_lost_at_once
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.recovery import Restarts
from tpuctl.runs import BY_MACHINE, BY_SILENCE, ORDERED_LOGS, Run, Verdict

ENDLESS = Restarts(after_loss=None)
BEGIN, SOON, LATE = "2026-01-01T12:00:00Z", "2026-01-01T12:01:00Z", "2026-01-01T13:00:00Z"


def ended(outcome: str, *, at: str = LATE, **fields: Any) -> Verdict:
    """A verdict of an attempt that began at BEGIN."""
    verdict = Verdict("r", outcome, 1, at, "because", basis=BY_MACHINE, ended=at, tpu=TPU, started=BEGIN)
    return msgspec.structs.replace(verdict, **fields)


PREEMPTED, FAILED = ended(runs.PREEMPTED), ended(runs.FAILED, exit_code=1, last_line="at step 7", worker=0)
AT_ONCE = ended(runs.LOST, at=SOON, worker=2)


@pytest.mark.parametrize(
    ("policy", "verdicts", "restarts", "reason"),
    [
        (Restarts(), [PREEMPTED], False, ""),
        (ENDLESS, [PREEMPTED] * 50, True, ""),
        (ENDLESS, [ended(runs.MAINTENANCE)], True, ""),
        (ENDLESS, [ended(runs.LOST)] * 5, True, ""),
        (ENDLESS, [ended(runs.STOPPED)], False, ""),
        (ENDLESS, [ended(runs.SUCCEEDED)], False, ""),
        (ENDLESS, [FAILED], False, ""),
        (Restarts(after_loss=2), [PREEMPTED] * 2, True, ""),
        (Restarts(after_loss=2), [PREEMPTED] * 3, False, "it has used up 2 restarts"),
        (Restarts(after_loss=2), [FAILED, PREEMPTED, PREEMPTED], True, ""),
        (Restarts(after_failure=1), [FAILED], True, ""),
        (Restarts(after_failure=1), [PREEMPTED], False, ""),
        (Restarts(None, 1), [PREEMPTED] * 9 + [FAILED], True, ""),
        (
            Restarts(None, 1), [FAILED, ended(runs.FAILED, last_line="other")], False,
            "it has used up 1 restart on failure",
        ),
        (Restarts(None, 9), [FAILED, FAILED], False, "it failed the same way twice in a row"),
        (Restarts(None, 9), [FAILED, PREEMPTED, FAILED], True, ""),
        (ENDLESS, [ended(runs.PREEMPTED, attempt=9998)], True, ""),
        (
            ENDLESS, [ended(runs.PREEMPTED, attempt=9999)], False,
            "attempt 9999 is the last that a run can have",
        ),
        (Restarts(), [ended(runs.PREEMPTED, attempt=9999)], False, ""),
        (ENDLESS, [AT_ONCE, AT_ONCE], True, ""),
        (ENDLESS, [AT_ONCE] * 3, False, "3 attempts in a row were lost within 120 s"),
        (ENDLESS, [AT_ONCE, PREEMPTED, AT_ONCE, AT_ONCE], True, ""),
    ],
)  # fmt: skip
def test_another_attempt_follows_as_the_policy_says(
    policy: Restarts, verdicts: list[Verdict], restarts: bool, reason: str
) -> None:
    assert decide(policy, verdicts) == (restarts, reason)


@pytest.mark.parametrize(
    "change", [{"last_line": "at step 8"}, {"checkpoint": "ckpt-9"}, {"exit_code": 2}, {"cause": "disk full"}]
)
def test_a_script_that_gets_further_does_not_fail_the_same_way(change: dict[str, Any]) -> None:
    assert decide(Restarts(0, 9), [FAILED, msgspec.structs.replace(FAILED, **change)]).restarts


def test_a_script_without_a_last_line_is_known_by_its_evidence() -> None:
    silent = msgspec.structs.replace(FAILED, last_line="")
    other = msgspec.structs.replace(silent, evidence="worker 0 could not start: no code")
    assert decide(Restarts(0, 9), [silent, other]).restarts
    assert not decide(Restarts(0, 9), [silent, silent]).restarts


@pytest.mark.parametrize(
    ("verdicts", "is_bad"),
    [
        ([AT_ONCE], False),
        ([AT_ONCE, AT_ONCE], True),
        ([AT_ONCE, msgspec.structs.replace(AT_ONCE, worker=1)], False),
        ([AT_ONCE, ended(runs.LOST, worker=2)], False),
        ([AT_ONCE, msgspec.structs.replace(AT_ONCE, tpu=msgspec.structs.replace(TPU, uid="8"))], False),
        ([ended(runs.LOST, basis=BY_SILENCE)], True),
        ([PREEMPTED], False),
    ],
)
def test_a_machine_that_lost_the_same_worker_at_once_twice_is_replaced(
    verdicts: list[Verdict], is_bad: bool
) -> None:
    assert needs_other_machine(verdicts) is is_bad


@pytest.mark.parametrize(
    ("verdict", "is_at_once"),
    [
        (ended(runs.LOST, at="2026-01-01T12:02:00Z"), True),
        (ended(runs.LOST, at="2026-01-01T12:02:01Z"), False),
        (ended(runs.LOST, at="2026-01-01T12:02:01Z", ended="", decided="2026-01-01T12:02:00Z"), True),
        (ended(runs.LOST, at=SOON, started=""), False),
        (ended(runs.PREEMPTED, at=SOON), False),
    ],
)
def test_an_attempt_that_was_lost_within_two_minutes_was_lost_at_once(
    verdict: Verdict, is_at_once: bool
) -> None:
    assert was_lost_at_once(verdict) is is_at_once


TENS = "".join(f"step {step}\n" for step in range(10, 130, 10))
CASES = {
    # name: log of attempt 1, checkpoint, log of attempt 2, steps lost
    "by-tens": (TENS, "ckpt-100", "resuming from ckpt-100\nstep 110\n", 20),
    "at-the-checkpoint": (TENS, "ckpt-120", "step 130\n", 0),
    "from-the-beginning": (TENS, "", "step 10\nstep 20\n", 120),
    "saved-behind-what-was-printed": (TENS, "ckpt-125", "step 130\n", 0),
    "counts-its-saves": (TENS, "ckpt-3", "step 110\n", None),
    "prints-no-steps": ("loss 0.3\n", "ckpt-100", "loss 0.2\n", None),
    "next-has-printed-none-yet": (TENS, "ckpt-100", "resuming\n", None),
    "global-steps": ("global_step=7\nglobal_step=8\n", "ckpt-7", "global_step=8\n", 1),
}


def restarted(bucket: Bucket, name: str, logs: tuple[str, str], checkpoint: str) -> tuple[StoredRun, Verdict]:
    """Write a run of two attempts."""
    run = StoredRun(bucket, name)
    run.create(Run(name, CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {}))
    for number, log in enumerate(logs, start=1):
        run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=number, log_layout=ORDERED_LOGS))
        for chunk, part in enumerate((log[: len(log) // 2], log[len(log) // 2 :]), start=1):
            place = f"{run.paths.ordered_logs(number)}20260101T12000{chunk}-0000-{chunk:06}.log"
            bucket.upload(place, [part.encode()], "text/plain")
        other = f"{run.paths.ordered_logs(number)}20260101T120009-0001-000001.log"
        bucket.upload(other, [b"step 999999\n"], "text/plain")
    verdict = Verdict(name, runs.PREEMPTED, 1, CREATED, "why", tpu=TPU, checkpoint=checkpoint, restarts=True)
    run.keep_verdict(verdict)
    return run, verdict


LAST = b"step 120\n"
SILENT = b"loss 0.5\n"


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ([LAST, SILENT, SILENT], [b"step 101\n"], 20),
        ([LAST, SILENT, SILENT, SILENT], [b"step 101\n"], None),
        ([LAST], [SILENT, b"step 101\n"], None),
        ([LAST + b"x" * (65536 - len(LAST))], [b"step 101\n"], 20),
        ([LAST + b"x" * (65537 - len(LAST))], [b"step 101\n"], None),
        ([LAST], [b" " * (65536 - 9) + b"step 101\n"], 20),
        ([LAST], [b" " * (65537 - 6) + b"step 101\n"], None),
    ],
)
def test_steps_are_looked_for_in_three_pieces_of_a_log_and_in_64_kib_of_each(
    bucket: Bucket, before: list[bytes], after: list[bytes], lost: int | None
) -> None:
    """Two empty pieces come before these."""
    run, verdict = restarted(bucket, "r1", ("", ""), "ckpt-100")
    for number, texts in ((1, before), (2, after)):
        for chunk, text in enumerate(texts, start=3):
            name = f"{run.paths.ordered_logs(number)}20260101T1300{chunk:02}-0000-{chunk:06}.log"
            bucket.upload(name, [text], "text/plain")
    assert steps_lost(run, verdict) == lost


def test_the_number_is_the_distance_from_the_checkpoint_or_unknown(
    simulator: RunningSimulator, bucket: Bucket
) -> None:
    told = {}
    for name, (before, checkpoint, after, _) in CASES.items():
        run, verdict = restarted(bucket, name, (before, after), checkpoint)
        told[name] = steps_lost(run, verdict), total_lost(run, 2)
    assert told == {name: (lost, lost) for name, (_, _, _, lost) in CASES.items()}


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
