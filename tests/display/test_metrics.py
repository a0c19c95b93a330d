"""Tests what is shown of a run's metrics."""

from __future__ import annotations

import re
from math import inf, nan

import pytest

from tests.display.test_markup import HOSTILE, Reader, check_harmless
from tpuctl.display.markup import HEIGHT, MOST_POINTS, WIDTH, Curve, Metrics, Point


def curve(*points: Point, unit: str = "") -> Curve:
    return Curve("", unit, points)


def html(run: str, curves: dict[str, Curve], problems: tuple[str, ...] = ()) -> str:
    return Metrics(run, curves, problems)._repr_html_()


def text(run: str, curves: dict[str, Curve], problems: tuple[str, ...] = ()) -> str:
    return repr(Metrics(run, curves, problems))


CURVES = {
    "loss": curve(Point(1, 2.0, 0.0), Point(2, 1.0, 0.0)),
    "accuracy": curve(Point(2, 0.5, 0.0)),
    "val_loss": curve(Point(2, 1.5, 0.0)),
    "step_time": curve(Point(2, 12.5, 0.0), unit="ms"),
}


def lines(*values: float) -> list[list[float]]:
    """Return the points of each line that is drawn for a curve of these values, one a step."""
    drawn_curve = curve(*(Point(step, value, 0.0) for step, value in enumerate(values)))
    document = html("r1", {"loss": drawn_curve})
    drawn = re.findall(r'points="([^"]*)"', document)
    return [[float(number) for number in re.split("[ ,]", text)] for text in drawn]


def test_each_metric_has_a_curve_and_words() -> None:
    document = html("r1", CURVES)
    assert document.count("<svg") == 1, "one value is no curve"
    said = Reader(document).text
    assert "loss2 at step 1, 1 at step 2" in said
    assert "step_time (ms)12.5 at step 2" in said


def test_a_curve_fills_its_frame_from_left_to_right() -> None:
    assert lines(2.0, 4.0, 3.0) == [[0, HEIGHT, WIDTH / 2, 0, WIDTH, HEIGHT / 2]]
    assert lines(5.0, 5.0) == [[0, 0, WIDTH, 0]]


def test_a_long_curve_is_drawn_with_few_points_and_its_end() -> None:
    (line,) = lines(*(step / 7 for step in range(10_001)))
    assert len(line) <= 2 * (MOST_POINTS + 1)
    assert line[-2:] == [WIDTH, 0]


@pytest.mark.parametrize("values", [(), (nan,), (1.0, inf), (-1e308, 1e308)])
def test_what_cannot_be_drawn_is_said_in_words(values: tuple[float, ...]) -> None:
    assert lines(*values) == []


def test_values_that_are_no_numbers_are_counted() -> None:
    mixed = curve(*(Point(step, value, 0.0) for step, value in enumerate((1.0, nan, 2.0))))
    assert "2 at step 2; 1 of 3 values are no numbers" in text("r1", {"loss": mixed})
    assert "no value; 1 of 1 values are" in text("r1", {"loss": curve(Point(1, nan, 0.0))})
    assert lines(1.0, nan, 2.0) == [[0, HEIGHT, WIDTH, 0]]


def test_text_says_each_metric_with_its_unit() -> None:
    assert text("r1", CURVES, ("a file is damaged",)).splitlines() == [
        "<metrics of r1>",
        "  loss: 2 at step 1, 1 at step 2, lowest 1 at step 2, highest 2 at step 1",
        "  accuracy: 0.5 at step 2",
        "  val_loss: 1.5 at step 2",
        "  step_time: 12.5 at step 2 (ms)",
        "  not read: a file is damaged",
    ]


def test_a_run_without_metrics_says_so() -> None:
    assert "no metrics yet" in html("r1", {})
    assert "none yet" in text("r1", {})


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_names_and_reasons_are_text(hostile: str) -> None:
    check_harmless(html(hostile, {hostile: CURVES["loss"]}, (hostile,)))
    assert text(hostile, {hostile: CURVES["loss"]}, (hostile,)).count("\n") == 2


def test_reasons_of_what_is_missing_stand_below_the_charts() -> None:
    said = Reader(html("r1", CURVES, ("one", "two"))).text
    assert said.endswith("not read: onenot read: two")
    assert "not read" not in Reader(html("r1", CURVES)).text


def test_a_run_without_metrics_says_why_it_may_have_none() -> None:
    assert Reader(html("r1", {}, ("a file is damaged",))).text == (
        "r1: no metrics yetnot read: a file is damaged"
    )
    assert text("r1", {}, ("a file is damaged",)).splitlines() == [
        "<metrics of r1>",
        "  none yet",
        "  not read: a file is damaged",
    ]
