"""Tests curves: what is drawn, what is said in words, and what hostile values do."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from tests.display.test_markup import HOSTILE, check_harmless
from tpuctl.display.chart import HEIGHT, MOST_POINTS, WIDTH, Series, chart

SVG = "{http://www.w3.org/2000/svg}"
LOSS = Series("loss", [(10.0, 2.31), (20.0, 1.2), (30.0, 1.4)])


def paths(document: str) -> list[str]:
    """The curves of a chart that has no legend."""
    return [path.attrib["d"] for path in curves(document)]


def curves(document: str) -> list[ElementTree.Element]:
    """The paths of a chart that are no axis, with those of its legend."""
    paths_of_chart = ElementTree.fromstring(document).iter(f"{SVG}path")
    return [path for path in paths_of_chart if path.get("stroke-width")]


def test_a_curve_is_drawn_from_left_to_right_within_the_frame() -> None:
    (path,) = paths(chart("loss", "", [LOSS]))
    places = [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in places)
    assert places[0][1] < places[2][1] < places[1][1], "the largest value is the highest"


def test_axes_and_units_are_named() -> None:
    texts = [
        item.text for item in ElementTree.fromstring(chart("step_time", "ms", [LOSS])).iter(f"{SVG}text")
    ]
    assert "step_time (ms)" in texts
    assert "step" in texts
    assert {"15", "20", "25", "30"} & set(texts)


def test_a_screen_reader_gets_the_curve_in_words() -> None:
    root = ElementTree.fromstring(chart("loss", "", [LOSS]))
    assert root.get("role") == "img"
    assert root.get("aria-label") == (
        "loss by step. loss: 2.31 at step 10, 1.4 at step 30, lowest 1.2 at step 20, highest 2.31 at step 10"
    )


def test_text_and_axes_have_the_colour_of_the_page() -> None:
    document = chart("loss", "", [LOSS])
    assert 'fill="currentColor"' in document
    assert not re.search(r"#000|#fff|black|white|background:(?!none)", document)


def test_two_curves_differ_without_colours_and_have_a_legend() -> None:
    document = chart("loss", "", [LOSS, Series("val_loss", [(10.0, 2.4), (30.0, 1.5)])])
    curves = [
        path for path in ElementTree.fromstring(document).iter(f"{SVG}path") if path.get("stroke-width")
    ]
    assert {path.get("stroke-dasharray") for path in curves} == {"none", "6 3"}
    assert ">val_loss</text>" in document


def test_values_that_are_no_numbers_leave_a_gap_and_are_counted() -> None:
    gap = Series("loss", [(1.0, 2.0), (2.0, 1.0), (3.0, math.nan), (4.0, 1.0), (5.0, math.inf), (6.0, 0.5)])
    document = chart("loss", "", [gap])
    assert paths(document)[0].count("M") == 3
    assert document.count("<circle") == 2, "points that stand alone"
    assert "2 of 6 values are no numbers" in document


@pytest.mark.parametrize("points", [[], [(1.0, math.nan)], [(1.0, -1.7e308), (2.0, 1.7e308)]])
def test_what_cannot_be_drawn_is_said(points: list[tuple[float, float]]) -> None:
    document = chart("loss", "", [Series("loss", points)])
    assert "<svg" not in document
    assert "loss" in document


def test_long_curves_keep_their_peaks() -> None:
    points = [(float(step), 1.0) for step in range(100_000)]
    points[54_321] = (54_321.0, 9.0)
    document = chart("loss", "", [Series("loss", points)])
    assert len(document) < 40 * MOST_POINTS
    highest = min(float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", paths(document)[0]))
    assert highest == 30.0, "the top of the frame"


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_are_text(text: str) -> None:
    document = chart(text, text, [Series(text, LOSS.points), Series(text, LOSS.points)])
    check_harmless(document)
    ElementTree.fromstring(document)
