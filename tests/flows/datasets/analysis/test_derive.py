"""A dataset of the records of another is complete or nothing, also after failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.bucket_objects.records import MANIFEST
from tests.flows.datasets.pets import PETS, plan_pets, send
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.data.plan import DatasetPlan
from tpuctl.data.schema.features import Feature, Label, Text
from tpuctl.datasets import DatasetRef
from tpuctl.errors import TpuctlError, UsageError
from tpuctl.flows.datasets.analysis import Origin, sample_plan, split_plan
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


def origin_of(features: Mapping[str, Feature], version: str = "1.0.0") -> Origin:
    manifest = msgspec.structs.replace(MANIFEST, features=dict(features), version=version)
    nothing: Any = None
    return Origin(nothing, manifest, nothing)


CATS, DOGS = Label(("cat",)), Label(("dog",))


@pytest.mark.parametrize(
    ("features", "chosen", "label"),
    [
        ({"text": Text(), "label": CATS}, None, "label"), ({"a": CATS, "b": DOGS}, None, ""),
        ({"a": CATS, "b": DOGS}, "b", "b"), ({"text": Text()}, None, ""), ({"label": CATS}, "", ""),
    ],
)  # fmt: skip
def test_shares_are_kept_of_the_only_label_or_of_the_chosen_one(
    features: dict[str, Feature], chosen: str | None, label: str
) -> None:
    assert origin_of(features).label(chosen) == label


@pytest.mark.parametrize(
    ("features", "hint"),
    [({"a": CATS, "b": DOGS}, "One of a, b."), ({"text": Text()}, "Run it without --stratify.")],
)
def test_a_label_that_the_dataset_does_not_have_is_refused(features: dict[str, Feature], hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        origin_of(features).label("text")
    assert refused.value.message == "The dataset has no label 'text'."
    assert (refused.value.hint, refused.value.facts) == (hint, {"field": "text"})


@pytest.mark.parametrize(("version", "following"), [("1.0.0", "1.1.0"), ("2.9.7", "2.10.0")])
def test_the_next_version_has_one_more_in_the_middle(version: str, following: str) -> None:
    assert origin_of({}, version).next_version() == DatasetRef("pets", following)


def test_a_dataset_is_not_made_of_itself(origin: Origin) -> None:
    with pytest.raises(UsageError) as refused, split_plan(origin, PETS, "train=1", lambda *_: None):
        pass
    assert refused.value.message == "pets/1.0.0 is the dataset itself."
    assert refused.value.hint == "Name another version: --as NAME/VERSION."
    assert refused.value.facts == {"dataset": "pets/1.0.0"}


def test_the_classes_keep_their_shares_unless_nobody_wants_that(origin: Origin) -> None:
    with split_plan(origin, NEW, "train=0.5,test=0.5", lambda *_: None, stratify="label", seed=3) as kept:
        assert [split.name for split in kept.splits] == ["train", "test"]
        assert [split.records for split in kept.splits] == [4, 4]
    read: list[tuple[int, int]] = []
    with split_plan(origin, NEW, "train=1", lambda *numbers: read.append(numbers), stratify="") as plan:
        assert sum(split.records for split in plan.splits) == 8
    assert read == [], "without classes and groups no record is read"
