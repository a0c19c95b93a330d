"""What a program computes on a simulated TPU: as on one device, and as on any machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.forks.tensorflow_python import report_of
from tpuctl.sim.guest import environment

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "fifty_steps.py"
CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def losses(variables: dict[str, str], cpus: list[int] | None = None) -> dict[str, list[float]]:
    """Run the program, on some of the machine's cores only if `cpus` says so."""
    result: dict[str, list[float]] = report_of(PROGRAM, variables=variables, cpus=cpus)
    return result


@pytest.fixture(scope="module")
def simulated() -> dict[str, list[float]]:
    """The losses with 1, 2 and 8 replicas."""
    return losses(environment("v3-8"))


def test_one_two_and_eight_replicas_give_the_losses_of_a_plain_run(simulated: dict[str, list[float]]) -> None:
    plain = losses({})["plain"]
    assert len(plain) == 50
    assert plain[-1] < plain[0] / 2
    for replicas in ("1", "2", "8"):
        assert simulated[replicas] == pytest.approx(plain, abs=1e-4), f"{replicas} replicas"


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two cores to tell the difference")
def test_the_machines_cores_make_no_difference_to_the_last_digit(simulated: dict[str, list[float]]) -> None:
    assert losses(environment("v3-8"), cpus=CPUS[:1]) == simulated
