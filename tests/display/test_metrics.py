"""Tests what is shown of a run's metrics."""

from __future__ import annotations

import re
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


def titles(curves: dict[str, Curve]) -> list[str]:
    """The titles of the charts, in their order."""
    return re.findall(r"<title>(.*?) by step</title>", metrics_html("r1", curves, []))


def test_charts_are_in_the_order_of_the_first_of_their_metrics() -> None:
    assert titles(CURVES) == ["loss", "accuracy", "step_time (ms)"]
    names = ("val_accuracy", "step_time", "loss", "accuracy", "val_loss")
    assert titles(dict.fromkeys(names, CURVES["loss"])) == ["val_accuracy", "step_time", "loss"]
    assert titles({"val_loss": CURVES["loss"]}) == ["val_loss"]


def test_a_chart_has_the_curves_of_training_and_validation_alone() -> None:
    document = metrics_html("r1", dict.fromkeys(("accuracy", "val_accuracy", "lr"), CURVES["loss"]), [])
    described = re.findall(r"<desc>(.*?)</desc>", document)
    assert [re.findall(r"(\w+): ", text) for text in described] == [["accuracy", "val_accuracy"], ["lr"]]


def test_reasons_of_what_is_missing_stand_below_the_charts() -> None:
    text = Reader(metrics_html("r1", CURVES, ["one", "two"])).text
    assert text.endswith("not read: onenot read: two")
    assert "not read" not in Reader(metrics_html("r1", CURVES, [])).text


def test_a_run_without_metrics_says_why_it_may_have_none() -> None:
    assert Reader(metrics_html("r1", {}, ["a file is damaged"])).text == (
        "r1: no metrics yetnot read: a file is damaged"
    )
    assert metrics_text("r1", {}, ["a file is damaged"]).splitlines() == [
        "<metrics of r1>",
        "  none yet",
        "  not read: a file is damaged",
    ]
