"""Whether the hosts of a run resume it by themselves, and how often."""

from __future__ import annotations

import msgspec
import pytest

from tests.flows.runs.records import CREATED
from tpuctl import runs
from tpuctl.flows.runs.submission.resumption import not_kept, note, obstacle, restarts_left
from tpuctl.recovery import Machine, Restarts
from tpuctl.runs import Run, Verdict

MASKED = "hosts do not keep the secret in its arguments or commands"
MACHINE = Machine("v3-8", ("us-central1-b",), False, "image-1", "ada")
RUN = Run(
    "r1", CREATED, "ada@laptop", "job.py", ("--rate", "1"), "0" * 64, "jax", "v3-8", ("numpy",), {},
    restarts=Restarts(after_loss=2), machine=MACHINE, not_kept=(),
)  # fmt: skip


def changed(**fields: object) -> Run:
    return msgspec.structs.replace(RUN, **fields)


def test_a_secret_and_what_looks_like_one_is_not_kept() -> None:
    variables = {"RATE": "1", "API_KEY": "x7", "NAME": "ada", "MINE": "2"}
    assert not_kept(variables, ["MINE"]) == ("API_KEY", "MINE")
    assert not_kept({"RATE": "1"}, []) == ()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, ""),
        ({"not_kept": None}, "an earlier version of tpuctl has submitted it"),
        ({"not_kept": ("A",)}, "hosts do not keep the value of A"),
        ({"not_kept": ("A", "B")}, "hosts do not keep the values of A, B"),
        ({"arguments": ("--key=***",)}, MASKED),
        ({"dependencies": ("x @ https://***@h/x",)}, MASKED),
        ({"setup": "login ***"}, MASKED),
    ],
)  # fmt: skip
def test_what_keeps_hosts_from_it(fields: dict[str, object], reason: str) -> None:
    run = changed(**fields)
    assert obstacle(run) == reason
    assert restarts_left(run, []) == (0 if reason else 2)
    sentence = "After a reboot of its TPU this run resumes only while somebody watches it"
    assert note(run) == ([f"{sentence}: {reason}."] if reason else [])


@pytest.mark.parametrize(
    ("outcomes", "left"),
    [
        ((), 2), ((runs.LOST,), 1), ((runs.PREEMPTED, runs.MAINTENANCE), 0), ((runs.LOST,) * 5, 0),
        ((runs.FAILED, runs.STOPPED), 2),
    ],
)  # fmt: skip
def test_losses_count_against_it_and_failures_do_not(outcomes: tuple[str, ...], left: int) -> None:
    verdicts = [Verdict("r1", outcome, 1, CREATED, "because") for outcome in outcomes]
    assert restarts_left(RUN, verdicts) == left
    assert restarts_left(changed(restarts=Restarts(after_loss=None)), verdicts) == -1
    assert restarts_left(changed(restarts=Restarts(after_loss=0, after_failure=3)), verdicts) == 0


def test_nothing_is_said_of_a_run_that_is_not_started_again() -> None:
    for fields in ({"machine": None}, {"restarts": Restarts(after_loss=0, after_failure=3)}):
        assert note(changed(not_kept=("A",), **fields)) == []
        assert restarts_left(changed(**fields), []) == 0
