"""The region guard of `up`: a warning for a bucket in another region, and for one that says nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.running_simulator import CommandResult, RunningSimulator

Tpuctl = Callable[..., CommandResult]


@pytest.mark.parametrize(
    ("zone", "warning"),
    [("europe-west4-a", ""), ("us-east1-d", "is in europe-west4, and us-east1-d is in us-east1")],
)
def test_a_bucket_elsewhere_is_a_warning(
    simulator: RunningSimulator, tpuctl: Tpuctl, zone: str, warning: str
) -> None:
    result = tpuctl("up", "v3-8", "--zone", zone)
    assert ("Warning: The bucket" in result.err) == bool(warning)
    assert warning in result.err
    assert len(simulator.events.find(kind="request", what="buckets.get")) == 1, "the location is asked once"


@pytest.mark.usefixtures("simulator")
def test_zones_in_several_other_regions_are_one_warning(tpuctl: Tpuctl) -> None:
    result = tpuctl("up", "v3-8", "--zone", "any")
    assert result.err.count("Warning: The bucket") == 1
    assert result.err.count("Google bills the traffic") == 1


def test_a_bucket_that_does_not_say_is_a_warning_too(simulator: RunningSimulator, tpuctl: Tpuctl) -> None:
    simulator.faults.add("permission", method="storage.buckets.get")
    result = tpuctl("up", "v3-8")
    assert "Warning: where gs://sim-project-tpuctl is cannot be read" in result.err
    assert result.code == 10, "it asks as always"
