"""A dataset of the records of another is complete or nothing, also after failures."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.flows.datasets.pets import PETS, plan_pets, send
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.data.plan import DatasetPlan
from tpuctl.datasets import DatasetRef
from tpuctl.errors import TpuctlError
from tpuctl.flows.datasets.analysis.derive import Origin, sample_plan, split_plan
from tpuctl.flows.datasets.lookup import find_manifest
from tpuctl.flows.datasets.rm import plan_removal, remove

NEW = DatasetRef("new", "1.0.0")
Derive = Callable[[Origin], AbstractContextManager[DatasetPlan]]


def split(origin: Origin) -> AbstractContextManager[DatasetPlan]:
    return split_plan(origin, NEW, "train=0.5,test=0.5", lambda *_: None)


def sample(origin: Origin) -> AbstractContextManager[DatasetPlan]:
    return sample_plan(origin, NEW, 4, lambda *_: None)


@pytest.fixture
def origin(cloud: Cloud, pictures: Path) -> Origin:
    manifest = send(cloud.data_bucket, plan_pets(pictures, shards=1)).manifest
    return Origin(cloud.data_bucket, manifest, cloud.source_objects)


def derive(origin: Origin, make: Derive) -> None:
    with make(origin) as plan:
        send(origin.bucket, plan)


def stored(bucket: Bucket, ref: DatasetRef) -> dict[str, bytes]:
    return {item.name: bucket.read(item.name) for item in bucket.objects(ref.folder)}


@pytest.mark.parametrize(("make", "when"), [(split, "after"), (sample, "before")])
def test_a_failure_at_a_request_leaves_all_or_nothing_and_the_same_again_completes_it(
    origin: Origin, simulator: RunningSimulator, make: Derive, when: str
) -> None:
    """403 is not tried again: to the command it is the end, as a kill at that moment would be.

    At every third request, as the tests of uploads try each.
    """
    bucket, before = origin.bucket, stored(origin.bucket, PETS)
    derive(origin, make)
    complete = stored(bucket, NEW)
    request, failed = 0, True
    while failed:
        remove(bucket, plan_removal(bucket, NEW))
        fault = simulator.faults.add("gcs-error", status="403", when=when, skip=request, count=1)
        try:
            derive(origin, make)
        except TpuctlError:
            pass
        failed = fault.id not in {fault.id for fault in simulator.faults.all()}
        if not failed:
            simulator.faults.remove(fault.id)
        elif find_manifest(bucket, NEW):
            assert complete.items() <= stored(bucket, NEW).items()
        derive(origin, make)
        assert stored(bucket, NEW) == complete
        request += 3
    assert request > 15
    assert stored(bucket, PETS) == before
