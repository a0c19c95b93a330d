"""Tests curves: what is drawn, what is said in words, and what hostile values do."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from tests.display.test_markup import HOSTILE, check_harmless
from tpuctl.display.markup import Markup
from tpuctl.display.metrics import HEIGHT, MOST_POINTS, WIDTH, Series, chart, charts

SVG = "{http://www.w3.org/2000/svg}"
LOSS = Series("loss", [(10.0, 2.31), (20.0, 1.2), (30.0, 1.4)])


def paths(document: str) -> list[str]:
    """The curves of a chart that has no legend."""
    return [path.attrib["d"] for path in curves(document)]


def curves(document: str) -> list[ElementTree.Element]:
    """The paths of a chart that are no axis, with those of its legend."""
    paths_of_chart = ElementTree.fromstring(document).iter(f"{SVG}path")
    return [path for path in paths_of_chart if path.get("stroke-width")]


def points_of(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]


def frame(document: str) -> tuple[float, float, float, float]:
    """Left, top, bottom and right of the lines at the two axes."""
    match = re.search(r'd="M(\d+) (\d+)V(\d+)H(\d+)"', document)
    assert match
    left, top, bottom, right = map(float, match.groups())
    return left, top, bottom, right


def texts(document: str) -> dict[str, ElementTree.Element]:
    return {item.text or "": item for item in ElementTree.fromstring(document).iter(f"{SVG}text")}


def place(element: ElementTree.Element) -> tuple[float, float]:
    return float(element.attrib["x"]), float(element.attrib["y"])


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


def test_the_curve_fills_the_frame() -> None:
    document = chart("loss", "", [Series("loss", [(0.0, 8.0), (5.0, 4.0), (10.0, 0.0)])])
    left, top, bottom, right = frame(document)
    assert 0 < left < right < WIDTH
    assert 0 < top < bottom < HEIGHT
    assert points_of(paths(document)[0]) == [
        (left, top),
        ((left + right) / 2, (top + bottom) / 2),
        (right, bottom),
    ]


def test_each_number_stands_at_its_line_outside_of_the_frame() -> None:
    document = chart("loss", "", [Series("loss", [(0.0, 0.0), (100.0, 1.0)])])
    left, top, bottom, right = frame(document)
    for number, share in (("0", 0.0), ("0.2", 0.2), ("0.6", 0.6), ("1", 1.0)):
        y = round(bottom - share * (bottom - top), 1)
        assert f'd="M{left:.0f} {y}H{right:.0f}"' in document
        text = next(
            item for item in ElementTree.fromstring(document).iter(f"{SVG}text")
            if item.text == number and item.get("text-anchor") == "end"
        )  # fmt: skip
        assert left - 12 < place(text)[0] < left
        assert y + 2 < place(text)[1] < y + 8, "its middle is at the line"
    for number, share in (("20", 0.2), ("80", 0.8), ("100", 1.0)):
        x = round(left + share * (right - left), 1)
        assert re.search(rf'd="M{x} {bottom:.0f}v[1-9]"', document)
        assert place(texts(document)[number])[0] == x
        assert bottom + 8 < place(texts(document)[number])[1] < HEIGHT
        assert texts(document)[number].get("text-anchor") == "middle"


def test_the_axis_of_steps_is_named_below_the_middle_of_its_numbers() -> None:
    document = chart("loss", "", [LOSS])
    left, _, _, right = frame(document)
    x, y = place(texts(document)["step"])
    assert x == (left + right) / 2
    assert texts(document)["step"].get("text-anchor") == "middle"
    assert place(texts(document)["20"])[1] + 8 < y < HEIGHT


def test_lines_at_the_numbers_are_fainter_than_the_axes() -> None:
    document = chart("loss", "", [LOSS])
    opacity = {
        path.attrib["d"]: float(path.attrib["stroke-opacity"])
        for path in ElementTree.fromstring(document).iter(f"{SVG}path")
        if path.get("stroke-opacity")
    }
    axes = [value for path, value in opacity.items() if "V" in path or "v" in path]
    lines = [value for path, value in opacity.items() if "V" not in path and "v" not in path]
    assert axes
    assert lines
    assert 0 < max(lines) < min(axes)
    assert max(axes) <= 1


def test_the_heading_stands_over_the_frame_in_bold() -> None:
    for document in (chart("loss", "", [LOSS]), chart("loss", "", [LOSS, Series("val_loss", LOSS.points)])):
        heading = texts(document)["loss"] if "val_loss" not in document else None
        items = list(ElementTree.fromstring(document).iter(f"{SVG}text"))
        bold = [item for item in items if item.get("font-weight") == "bold"]
        assert [item.text for item in bold] == ["loss"]
        left, top, _, _ = frame(document)
        assert place(bold[0])[0] == left
        assert 8 < place(bold[0])[1] < top
        assert heading is None or heading.get("text-anchor") == "start"


def test_a_legend_has_line_and_name_of_each_curve_beside_each_other() -> None:
    names = ["loss", "val_loss", "test_loss"]
    document = chart("all", "", [Series(name, LOSS.points) for name in names])
    legend = [path for path in curves(document) if "h" in path.attrib["d"]]
    drawn = [path for path in curves(document) if "h" not in path.attrib["d"]]
    assert [path.get("stroke") for path in legend] == [path.get("stroke") for path in drawn]
    assert [path.get("stroke-dasharray") for path in legend] == [
        path.get("stroke-dasharray") for path in drawn
    ]
    end = place(texts(document)["all"])[0] + 5 * len("all")
    _, top, _, _ = frame(document)
    for name, path in zip(names, legend, strict=True):
        start, y, length = map(float, re.findall(r"[\d.]+", path.attrib["d"]))
        x, baseline = place(texts(document)[name])
        assert end < start < start + length < x < start + length + 10
        assert y < baseline < top
        end = x + 5 * len(name)


@pytest.mark.parametrize("names", [("loss", "val_loss"), ("accuracy", "val_accuracy")])
def test_the_legend_of_training_and_validation_fits(names: tuple[str, str]) -> None:
    document = chart(names[0], "", [Series(name, LOSS.points) for name in names])
    end = max(place(text)[0] + 6.5 * len(name) for name, text in texts(document).items() if name in names)
    assert end < WIDTH
    starts = [float(path.attrib["d"][1:].split()[0]) for path in curves(document) if "h" in path.attrib["d"]]
    assert frame(document)[0] + 6.5 * len(names[0]) < min(starts), "the heading is before it"


def test_a_single_curve_needs_no_legend() -> None:
    assert len(curves(chart("loss", "", [LOSS]))) == 1
    assert len(curves(chart("loss", "", [LOSS, Series("val_loss", [(1.0, math.nan)])]))) == 1


def test_more_curves_than_colours_begin_anew() -> None:
    document = chart("loss", "", [Series(f"curve{number}", LOSS.points) for number in range(6)])
    drawn = [path for path in curves(document) if "h" not in path.attrib["d"]]
    looks = [(path.get("stroke"), path.get("stroke-dasharray")) for path in drawn]
    assert len(set(looks)) == 4
    assert looks[4:] == looks[:2]
    assert all(re.fullmatch(r"#[0-9a-f]{6}", colour or "") for colour, _ in looks)
    assert len({colour for colour, _ in looks}) == len({dash for _, dash in looks}) == 4


def test_a_point_that_stands_alone_is_a_dot_at_its_place() -> None:
    document = chart("loss", "", [Series("a", [(0.0, 0.0), (5.0, 2.0)]), Series("b", [(10.0, 4.0)])])
    _, top, _, right = frame(document)
    (dot,) = ElementTree.fromstring(document).iter(f"{SVG}circle")
    assert (float(dot.attrib["cx"]), float(dot.attrib["cy"])) == (right, top)
    assert float(dot.attrib["r"]) > 1
    assert dot.get("fill") == curves(document)[-1].get("stroke")


def test_a_gap_is_where_the_values_are_no_numbers() -> None:
    gap = Series("loss", [(0.0, 0.0), (1.0, 1.0), (2.0, math.nan), (3.0, math.nan), (4.0, 1.0), (5.0, 0.0)])
    path = paths(chart("loss", "", [gap]))[0]
    assert re.sub(r"[\d. ]+", "", path) == "MLML"
    edges = Series("loss", [(0.0, math.nan), (1.0, 1.0), (2.0, 2.0), (3.0, math.inf)])
    assert re.sub(r"[\d. ]+", "", paths(chart("loss", "", [edges]))[0]) == "ML"


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        ([], "loss: no value"),
        ([(1.0, math.nan), (2.0, math.inf)], "loss: no value; 2 of 2 values are no numbers"),
        ([(3.0, 0.123456)], "loss: 0.1235 at step 3"),
        ([(3.0, 0.5), (4.0, math.nan)], "loss: 0.5 at step 3; 1 of 2 values are no numbers"),
        (
            [(1.0, 3.0), (2.0, math.nan), (3.0, 5.0), (4.0, 1.0), (5.0, 2.0)],
            "loss: 3 at step 1, 2 at step 5, lowest 1 at step 4, highest 5 at step 3; "
            "1 of 5 values are no numbers",
        ),
    ],
)
def test_a_curve_in_words(points: list[tuple[float, float]], sentence: str) -> None:
    assert Series("loss", points).sentence == sentence


def test_curves_that_cannot_be_drawn_are_still_said_beside_those_that_are() -> None:
    document = chart("loss", "ms", [Series("a", [(1.0, 2.0)]), Series("b", [])])
    root = ElementTree.fromstring(document)
    assert root.findtext(f"{SVG}title") == "loss (ms) by step"
    assert root.findtext(f"{SVG}desc") == "a: 2 at step 1. b: no value"
    assert root.get("aria-label") == "loss (ms) by step. a: 2 at step 1. b: no value"
    nothing = ElementTree.fromstring(chart("loss", "ms", [Series("a", []), Series("b", [])]))
    assert (nothing.tag, nothing.text) == ("div", "loss: a: no value. b: no value")


def test_a_chart_is_no_wider_than_it_was_drawn_and_shrinks_with_its_place() -> None:
    root = ElementTree.fromstring(chart("loss", "", [LOSS]))
    assert root.get("viewBox") == f"0 0 {WIDTH} {HEIGHT}"
    assert f"width:100%;max-width:{WIDTH}px;height:auto" in root.attrib["style"]


@pytest.mark.parametrize("count", [2, MOST_POINTS - 1, MOST_POINTS])
def test_a_curve_of_few_points_is_drawn_as_it_is(count: int) -> None:
    document = chart("loss", "", [Series("loss", [(float(step), step % 7.0) for step in range(count)])])
    assert len(points_of(paths(document)[0])) == count


@pytest.mark.parametrize("count", [MOST_POINTS + 1, 2 * MOST_POINTS, 7 * MOST_POINTS + 1])
def test_a_curve_of_many_points_has_its_ends_peaks_and_valleys(count: int) -> None:
    points = [(float(step), 5.0 + step / count) for step in range(count)]
    peak, valley = count // 3, count // 2 + 1
    points[peak], points[valley] = (float(peak), 9.0), (float(valley), 1.0)
    document = chart("loss", "", [Series("loss", points)])
    drawn = points_of(paths(document)[0])
    left, top, bottom, right = frame(document)
    assert MOST_POINTS * 0.6 < len(drawn) <= MOST_POINTS + 4
    assert [x for x, _ in drawn] == sorted(x for x, _ in drawn), "in the order of their steps"
    assert (drawn[0][0], drawn[-1][0]) == (left, right)
    assert {y for _, y in drawn} >= {top, bottom}


def test_charts_stand_beside_each_other_and_wrap() -> None:
    root = ElementTree.fromstring(charts([Markup("<b>1</b>"), Markup("<b>2</b>")]))
    assert root.get("class") == "tpuctl"
    assert "flex-wrap:wrap" in root.attrib["style"]
    assert [cell.findtext("b") for cell in root] == ["1", "2"]
    assert {element.tag for element in root.iter()} == {"div", "b"}
    assert all(f"max-width:{WIDTH}px" in cell.attrib["style"] for cell in root)


def test_elements_have_values_that_svg_knows() -> None:
    document = chart("loss", "", [LOSS, Series("val_loss", [(20.0, 1.3)])])
    elements = list(ElementTree.fromstring(document).iter())
    lines = [item for item in elements if item.tag == f"{SVG}path"]
    shown = [item for item in elements if item.tag == f"{SVG}text"]
    assert {item.get("text-anchor") for item in shown} == {"start", "middle", "end"}
    assert {item.get("font-weight") for item in shown} == {"normal", "bold"}
    assert {item.get("fill") for item in lines} == {"none"}
    assert all(re.fullmatch(r"currentColor|#[0-9a-f]{6}", item.attrib["stroke"]) for item in lines)
    assert {item.get("stroke-linejoin") for item in curves(document)} == {"round"}
    assert {1 < float(item.attrib["stroke-width"]) < 4 for item in curves(document)} == {True}
    (dot,) = (item for item in elements if item.tag == f"{SVG}circle")
    assert 1 < float(dot.attrib["r"]) < 10
    assert re.fullmatch(r"#[0-9a-f]{6}", dot.attrib["fill"])


def test_a_document_has_no_more_digits_than_are_seen() -> None:
    document = chart(
        "a loss", "", [LOSS, Series("b", [(13.3, 1 / 3), (17.0, 2.0)]), Series("c", LOSS.points)]
    )
    places = re.findall(r"[\d.]+", " ".join(paths(document)))
    for text in ElementTree.fromstring(document).iter(f"{SVG}text"):
        places += [text.attrib["x"], text.attrib["y"]]
    assert max(len(place.partition(".")[2]) for place in places) == 1


def test_names_in_the_legend_begin_where_they_stand() -> None:
    document = chart("loss", "", [LOSS, Series("val_loss", LOSS.points)])
    assert texts(document)["val_loss"].get("text-anchor") == "start"
    _, top, _, _ = frame(document)
    assert 8 < place(texts(document)["val_loss"])[1] < top


def test_names_of_curves_are_one_line_in_words() -> None:
    assert Series("a\nb", []).sentence == r"a\nb: no value"
    assert Series("a", [(1.0, 1 / 3), (2.0, 2 / 3)]).sentence == (
        "a: 0.3333 at step 1, 0.6667 at step 2, lowest 0.3333 at step 1, highest 0.6667 at step 2"
    )


def test_numbers_of_steps_are_few_enough_to_stand_beside_each_other() -> None:
    document = chart("loss", "", [Series("loss", [(0.0, 1.0), (11_000.0, 2.0)])])
    shown = [item for item in texts(document).values() if item.get("text-anchor") == "middle"]
    places = sorted(place(item)[0] for item in shown if item.text != "step")
    assert len(places) == 3
    assert min(right - left for left, right in pairwise(places)) > 8 * len("10000")
