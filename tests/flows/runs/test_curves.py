"""The curves of a run's metrics: of several writers and attempts, with what cannot be read."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from tests.data.events.files import TIME, event
from tests.flows.runs.test_metrics import put
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs import metrics
from tpuctl.flows.runs.metrics import read_curves


def values(bucket: Bucket) -> dict[str, list[tuple[int, float]]]:
    read = read_curves(bucket, "r1").curves
    return {name: [(point.step, point.value) for point in curve.points] for name, curve in read.items()}


def test_each_metric_has_its_values_by_step_in_the_order_of_the_columns(bucket: Bucket) -> None:
    put(bucket, "validation/events.out.tfevents.1.h.v2", event("epoch_loss", 2, 0.75))
    put(bucket, "train/events.out.tfevents.1.h.v2", event("epoch_loss", 1, 0.5), event("epoch_loss", 2, 0.25))
    put(bucket, "events.out.tfevents.1.h", event("steps_per_second", 2, 4.0), event("learning_rate", 2, 0.1))
    assert list(values(bucket).items()) == [
        ("loss", [(1, 0.5), (2, 0.25)]), ("val_loss", [(2, 0.75)]), ("step_time", [(2, 250.0)]),
    ]  # fmt: skip
    curves = read_curves(bucket, "r1").curves
    assert (curves["loss"].unit, curves["step_time"].unit) == ("", "ms")


def test_steps_that_a_later_attempt_did_again_have_its_values(bucket: Bucket) -> None:
    first = [event("loss", step, 1.0, TIME + step) for step in (10, 20, 25, 30)]
    again = [event("loss", step, 0.5, TIME + 100 + step) for step in (20, 40)]
    put(bucket, "events.out.tfevents.2.b", *again)
    put(bucket, "events.out.tfevents.1.a", *first)
    assert values(bucket) == {"loss": [(10, 1.0), (20, 0.5), (40, 0.5)]}


def test_values_that_are_no_numbers_and_times_of_no_clock_are_kept(bucket: Bucket) -> None:
    put(bucket, "events.out.tfevents.1.a", event("loss", 1, math.nan, math.nan), event("loss", 2, math.inf))
    ((first, last),) = (curve.points for curve in read_curves(bucket, "r1").curves.values())
    assert math.isnan(first.value)
    assert last.value == math.inf


def test_the_mean_of_an_epoch_counts_before_that_of_a_batch(bucket: Bucket) -> None:
    put(bucket, "events.out.tfevents.1.a", event("batch_loss", 1, 0.25), event("epoch_loss", 5, 0.5))
    assert values(bucket) == {"loss": [(5, 0.5)]}


def test_a_file_that_cannot_be_read_is_named_and_hides_no_other(bucket: Bucket) -> None:
    put(bucket, "events.out.tfevents.1.a", event("loss", 5, 0.5))
    put(bucket, "events.out.tfevents.2.b", b"{}" * 20)
    assert values(bucket) == {"loss": [(5, 0.5)]}
    (reason,) = read_curves(bucket, "r1").problems
    assert "runs/r1/tensorboard/events.out.tfevents.2.b" in reason


def test_a_run_without_events_has_no_curves(bucket: Bucket) -> None:
    assert read_curves(bucket, "r1").curves == {}


def test_the_later_attempt_is_known_by_its_times_and_not_by_its_files(bucket: Bucket) -> None:
    put(
        bucket,
        "events.out.tfevents.1.a",
        event("loss", 20, 0.5, TIME + 100),
        event("loss", 40, 0.5, TIME + 200),
    )
    put(bucket, "events.out.tfevents.2.b", *(event("loss", step, 1.0, TIME + step) for step in (10, 20, 30)))
    assert values(bucket) == {"loss": [(10, 1.0), (20, 0.5), (40, 0.5)]}


def test_of_very_many_points_some_are_held_and_the_last(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MOST_POINTS", 4)
    for count in (4, 5, 19, 20, 21):
        put(bucket, "events.out.tfevents.1.a", *[event("loss", step, 0.5) for step in range(count)])
        steps = [step for step, _ in values(bucket)["loss"]]
        assert (steps[0], steps[-1]) == (0, count - 1)
        assert len(steps) <= 6
        assert len({after - before for before, after in pairwise(steps[:-1])}) == 1, "evenly"


def test_the_better_name_of_a_file_counts_whichever_comes_first(bucket: Bucket) -> None:
    events = [event("epoch_loss", 1, 0.5), event("loss", 1, 0.25)]
    put(bucket, "events.out.tfevents.1.a", *events)
    before = values(bucket)
    put(bucket, "events.out.tfevents.1.a", *reversed(events))
    assert values(bucket) == before
