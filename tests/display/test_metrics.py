"""Tests what is shown of a run's metrics."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.display.test_markup import HOSTILE, Reader, check_harmless
from tpuctl.display.metrics import metrics_html, metrics_text
from tpuctl.flows.runs.metrics.curves import Point


@dataclass(frozen=True)
class Curve:
    """A curve as the API returns it."""

    points: tuple[Point, ...]
    unit: str = ""


CURVES = {
    "loss": Curve((Point(1, 2.0, 0.0), Point(2, 1.0, 0.0))),
    "accuracy": Curve((Point(2, 0.5, 0.0),)),
    "val_loss": Curve((Point(2, 1.5, 0.0),)),
    "step_time": Curve((Point(2, 12.5, 0.0),), "ms"),
}


def test_training_and_validation_share_a_chart() -> None:
    document = metrics_html("r1", CURVES, [])
    assert document.count("<svg") == 3
    assert document.count(">val_loss</text>") == 1
    assert "step_time (ms)" in Reader(document).text


def test_text_says_each_metric_with_its_unit() -> None:
    assert metrics_text("r1", CURVES, ["a file is damaged"]).splitlines() == [
        "<metrics of r1>",
        "  loss: 2 at step 1, 1 at step 2, lowest 1 at step 2, highest 2 at step 1",
        "  accuracy: 0.5 at step 2",
        "  val_loss: 1.5 at step 2",
        "  step_time: 12.5 at step 2 (ms)",
        "  not read: a file is damaged",
    ]


def test_a_run_without_metrics_says_so() -> None:
    assert "no metrics yet" in metrics_html("r1", {}, [])
    assert "none yet" in metrics_text("r1", {}, [])


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_and_reasons_are_text(text: str) -> None:
    check_harmless(metrics_html(text, {text: CURVES["loss"]}, [text]))
    assert metrics_text(text, {text: CURVES["loss"]}, [text]).count("\n") == 2
