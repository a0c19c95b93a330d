"""The last values of a run's metrics: of several writers and attempts, with what cannot be read."""

from __future__ import annotations

import pytest

from tests.data.events.files import TIME, event
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.metrics import WITHOUT_SCALARS, event_files, known_metrics, latest_metrics


def put(bucket: Bucket, name: str, *records: bytes) -> None:
    bucket.upload(f"runs/r1/tensorboard/{name}", [b"".join(records)], "application/octet-stream")


def shown(bucket: Bucket) -> dict[str, tuple[str, int]]:
    values = latest_metrics(bucket, "r1").values
    return {name: (metric.short, metric.step) for name, metric in values.items()}


def test_training_and_validation_are_told_apart_by_tag_and_by_folder(bucket: Bucket) -> None:
    put(bucket, "train/events.out.tfevents.1.h.v2", event("epoch_loss", 1, 0.5), event("epoch_loss", 2, 0.25))
    put(bucket, "validation/events.out.tfevents.1.h.v2", event("epoch_loss", 2, 0.75))
    put(bucket, "events.out.tfevents.1.h", event("val_accuracy", 2, 0.9), event("step_ms", 2, 12.345))
    assert shown(bucket) == {
        "loss": ("0.25", 2), "val_loss": ("0.75", 2), "val_accuracy": ("0.9", 2), "step_time": ("12.35", 2),
    }  # fmt: skip
    facts = {fact.name: (fact.value, fact.source) for fact in latest_metrics(bucket, "r1").facts()}
    place = "train/events.out.tfevents.1.h.v2"
    assert facts["loss"] == ("0.25 at step 2, 2026-02-02T02:40:00Z", f"epoch_loss in {place}")
    assert facts["step_time"][0].startswith("12.35 ms at step 2")


def test_of_two_attempts_the_later_value_counts_also_with_a_smaller_step(bucket: Bucket) -> None:
    put(bucket, "events.out.tfevents.2.b", event("loss", 5, 0.5, TIME + 100))
    put(bucket, "events.out.tfevents.1.a", event("loss", 9, 0.25, TIME))  # written last
    assert shown(bucket) == {"loss": ("0.5", 5)}


def test_the_mean_of_an_epoch_counts_before_that_of_a_batch(bucket: Bucket) -> None:
    put(
        bucket, "events.out.tfevents.1.a", event("epoch_loss", 5, 0.5), event("batch_loss", 9, 0.25, TIME + 9)
    )
    assert shown(bucket) == {"loss": ("0.5", 5)}


def test_a_file_that_cannot_be_read_is_named_and_hides_no_other(bucket: Bucket) -> None:
    put(bucket, "events.out.tfevents.1.a", event("loss", 5, 0.5))
    put(bucket, "events.out.tfevents.2.b", b"{}" * 20)
    put(bucket, "events.out.tfevents.3.c.profile-empty", b"{}" * 20)
    put(bucket, "events.out.tfevents.4.d")
    put(bucket, "plugins/profile/x/h.xplane.pb", b"{}" * 20)
    metrics = latest_metrics(bucket, "r1")
    assert list(metrics.values) == ["loss"]
    (reason,) = metrics.refused
    assert "runs/r1/tensorboard/events.out.tfevents.2.b" in reason
    assert metrics.facts()[-1].name == "metrics"


@pytest.mark.parametrize("at", [float("nan"), float("inf"), -1e300, 1e300, 0.0])
def test_a_time_that_no_clock_shows_is_left_out(bucket: Bucket, at: float) -> None:
    put(bucket, "events.out.tfevents.1.a", event("loss", -5, float("nan"), at))
    (metric,) = latest_metrics(bucket, "r1").values.values()
    assert (metric.short, metric.step, metric.at) == ("nan", -5, "")


def test_only_the_newest_files_are_read(bucket: Bucket) -> None:
    for number in range(17):
        put(bucket, f"events.out.tfevents.{number}", event("val_loss" if not number else "loss", number, 0.5))
    assert shown(bucket) == {"loss": ("0.5", 16)}
    assert len(event_files(bucket, "r1")) == 16


def test_a_run_without_events_has_no_metrics(bucket: Bucket) -> None:
    assert shown(bucket) == {}
    assert known_metrics(bucket, "r1").facts() == []


def test_empty_files_and_those_without_scalars_are_not_read(bucket: Bucket) -> None:
    put(bucket, "events.out.tfevents.1.a", event("loss", 1, 0.5))
    put(bucket, "events.out.tfevents.2.a")
    put(bucket, f"events.out.tfevents.3.a{WITHOUT_SCALARS}", event("loss", 2, 0.25))
    put(bucket, "notes.txt", event("loss", 3, 0.125))
    names = [item.name.rpartition("/")[2] for item in event_files(bucket, "r1")]
    assert names == ["events.out.tfevents.1.a"]


def test_of_two_values_of_one_moment_that_of_the_newer_file_counts(bucket: Bucket) -> None:
    put(bucket, "events.out.tfevents.1.a", event("loss", 1, 0.5))
    put(bucket, "events.out.tfevents.0.a", event("loss", 2, 0.25))
    metric = latest_metrics(bucket, "r1").values["loss"]
    assert (metric.step, metric.value) == (2, 0.25)
