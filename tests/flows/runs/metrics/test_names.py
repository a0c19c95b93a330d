"""Which metric a curve is, whatever its program calls it."""

from __future__ import annotations

import math

import pytest

from tpuctl.flows.runs.metrics.names import meaning


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
