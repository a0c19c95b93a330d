"""The last values of a run's metrics: of several writers and attempts, with what cannot be read.

Which metric a curve is, whatever its program calls it.
"""

from __future__ import annotations

import math

import pytest

from tests.data.events.files import TIME, event
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.metrics import WITHOUT_SCALARS, event_files, known_metrics, latest_metrics, meaning


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


@pytest.mark.parametrize(
    ("tag", "folder", "metric"),
    [
        ("loss", "", "loss"), ("train/loss", "", "loss"), ("Loss/train", "", "loss"),
        ("epoch_loss", "train", "loss"), ("epoch_loss", "validation", "val_loss"),
        ("learning/loss", "", "loss"), ("loss", "runs/eval", "val_loss"), ("Loss/test", "", "val_loss"),
        ("val_loss", "", "val_loss"), ("eval/accuracy", "", "val_accuracy"), ("accuracy", "", "accuracy"),
        ("epoch_sparse_categorical_accuracy", "", "accuracy"), ("Accuracy/val", "", "val_accuracy"),
        ("step_ms", "", "step_time"), ("global_step/sec", "", "step_time"),
        ("perf/step_time_seconds", "", "step_time"), ("step_ms", "validation", "step_time"),
    ],
)  # fmt: skip
def test_names_of_libraries(tag: str, folder: str, metric: str) -> None:
    known = meaning(tag, folder)
    assert known is not None
    assert known.metric == metric


@pytest.mark.parametrize("tag", ["", "learning_rate", "glosses", "loss_scale", "grad/loss", "\x1b[31mlo"])
def test_another_curve_is_none(tag: str) -> None:
    assert meaning(tag) is None


@pytest.mark.parametrize(
    ("tag", "number", "milliseconds"),
    [("step_ms", 12.0, 12.0), ("step_time_seconds", 0.5, 500.0), ("global_step/sec", 4.0, 250.0)],
)
def test_a_step_time_is_in_milliseconds(tag: str, number: float, milliseconds: float) -> None:
    known = meaning(tag)
    assert known is not None
    assert known.value(number) == milliseconds


def test_no_step_per_second_has_no_step_time() -> None:
    known = meaning("steps_per_second")
    assert known is not None
    assert math.isnan(known.value(0.0))


@pytest.mark.parametrize(
    ("metric", "tags"),
    [
        (
            "loss",
            "loss train/loss Loss/train training_loss epoch_loss learning/loss batch_loss",
        ),
        (
            "accuracy",
            "accuracy acc train/accuracy Accuracy/train training_accuracy train_acc acc/train epoch_accuracy "
            "epoch_sparse_categorical_accuracy epoch_categorical_accuracy epoch_binary_accuracy "
            "learning/accuracy batch_accuracy",
        ),
        (
            "step_time",
            "step_ms step_time_ms step_time step_time_seconds perf/step_time_seconds seconds_per_step "
            "sec_per_step steps_per_second steps_per_sec global_step/sec epoch_steps_per_second "
            "train/steps_per_second",
        ),
    ],
)
def test_of_several_curves_of_a_metric_the_plainest_name_counts(metric: str, tags: str) -> None:
    known = [meaning(tag) for tag in tags.split()]
    assert [one and (one.metric, one.rank) for one in known] == [(metric, rank) for rank in range(len(known))]


@pytest.mark.parametrize("word", ["val", "validation", "valid", "eval", "evaluation", "test", "Test"])
@pytest.mark.parametrize(("name", "metric"), [("loss", "val_loss"), ("acc", "val_accuracy")])
def test_a_word_of_the_tag_or_of_the_folder_says_validation(word: str, name: str, metric: str) -> None:
    known = [meaning(f"{word}/{name}"), meaning(f"{name}_{word}"), meaning(name, f"runs/{word}-1")]
    assert [one and one.metric for one in known] == [metric] * 3


@pytest.mark.parametrize("folder", ["", "train", "values", "tests", "invalid/latest"])
def test_any_other_folder_is_one_of_training(folder: str) -> None:
    known = meaning("loss", folder)
    assert known is not None
    assert known.metric == "loss"


@pytest.mark.parametrize(
    ("tags", "milliseconds"),
    [
        (("step_ms", "step_time_ms"), 5.0),
        (
            ("step_time", "step_time_seconds", "perf/step_time_seconds", "seconds_per_step", "sec_per_step"),
            5000.0,
        ),
        (
            (
                "steps_per_second", "steps_per_sec", "global_step/sec", "epoch_steps_per_second",
                "train/steps_per_second",
            ),
            200.0,
        ),
    ],
)  # fmt: skip
def test_the_name_of_a_step_time_says_its_unit(tags: tuple[str, ...], milliseconds: float) -> None:
    known = [meaning(tag) for tag in tags]
    assert [one and one.value(5.0) for one in known] == [milliseconds] * len(tags)


@pytest.mark.parametrize("tag", ["loss", "val_loss", "accuracy"])
def test_any_other_metric_is_the_number_of_its_curve(tag: str) -> None:
    known = meaning(tag)
    assert known is not None
    assert known.value(0.25) == 0.25
