"""Which metric a curve is, whatever its program calls it."""

from __future__ import annotations

import math

import pytest

from tpuctl.flows.runs.metrics import meaning


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
