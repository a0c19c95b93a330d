"""Whether another attempt follows: a function of the policy and of how the attempts ended."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.flows.runs.records import TPU
from tpuctl import runs
from tpuctl.flows.runs.state import decide, needs_other_machine, was_lost_at_once
from tpuctl.recovery import Restarts
from tpuctl.runs import BY_MACHINE, BY_SILENCE, Verdict

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
