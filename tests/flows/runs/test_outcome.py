"""How a run ended, from the workers' words and the machine's state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tpuctl import clock, runs
from tpuctl.flows.runs.outcome import HUSH, SETTLING, SILENCE, decide
from tpuctl.runs import Attempt, Tpu, WorkerStatus

ENDED = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
TPU = Tpu("n1", "7", "p", "europe-west4-a", "v3-8", "base", 1, spot=True)
ATTEMPT = Attempt(1, clock.iso(ENDED), TPU, (0,))
STOPPED = WorkerStatus(
    0, 1, "7", "finished", clock.iso(ENDED), finished=clock.iso(ENDED), exit_code=143, stopped="SIGTERM"
)


RUNNING = WorkerStatus(0, 1, "7", "running", clock.iso(ENDED))


@pytest.mark.parametrize(
    ("seconds", "state", "outcome"),
    [
        (HUSH + 1, "PREEMPTED", runs.PREEMPTED),  # which the worker had no time to say
        (HUSH + 1, "", runs.STOPPED),
        (HUSH + 1, "READY", None),
        (SILENCE, "READY", None),
        (SILENCE + 1, "READY", runs.LOST),
    ],
)
def test_of_a_worker_that_falls_silent_the_machine_tells_the_end(
    seconds: float, state: str, outcome: str | None
) -> None:
    at = ENDED + timedelta(seconds=seconds)
    for found in ([RUNNING], [None]):
        decided = decide("r", ATTEMPT, found, at, lambda: state)
        assert (decided and decided.outcome) == outcome


def test_of_a_worker_that_was_heard_of_the_machine_is_not_asked() -> None:
    def asked() -> str:
        raise AssertionError

    assert decide("r", ATTEMPT, [RUNNING], ENDED + timedelta(seconds=HUSH), asked) is None


@pytest.mark.parametrize(
    ("seconds", "state", "outcome"),
    [
        (1, "READY", None),  # the worker's word can come before the node shows that it is being taken away
        (1, "PREEMPTED", runs.PREEMPTED),
        (1, "DELETING", runs.STOPPED),
        (SETTLING + 1, "READY", runs.STOPPED),
        (SETTLING + 1, "PREEMPTED", runs.PREEMPTED),
    ],
)
def test_a_worker_that_was_told_to_stop_was_preempted_when_its_node_was(
    seconds: float, state: str, outcome: str | None
) -> None:
    at = ENDED + timedelta(seconds=seconds)
    found = decide("r", ATTEMPT, [STOPPED], at, lambda: state)
    assert (found and found.outcome) == outcome
