"""Shows the metrics of a run: curves over steps, those of training and validation in one chart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tpuctl.display.markup import Markup, element, joined
from tpuctl.flows.runs.metrics.names import ACCURACY, LOSS, VAL_ACCURACY, VAL_LOSS
from tpuctl.text import printable

_SIZES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_LARGE = 1e4
"""From here on numbers are written with a letter."""
WIDTH, HEIGHT = 380, 230
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 30, 38
MOST_POINTS = 300
"""Points of a curve that are drawn: of others the lowest and the highest of their neighbours."""
COLOURS = ("#3d85c6", "#e07b28", "#3aa374", "#b65fc9")
DASHES = ("", "6 3", "2 3", "8 3 2 3")
"""Curves of one chart differ without colours, too."""
TOGETHER = ((LOSS, VAL_LOSS), (ACCURACY, VAL_ACCURACY))
"""Metrics that share a chart; each other has its own."""


class Point(Protocol):
    """A value of a curve."""

    @property
    def step(self) -> int: ...

    @property
    def value(self) -> float: ...


class Curve(Protocol):
    """The values of a metric."""

    @property
    def unit(self) -> str: ...

    @property
    def points(self) -> Sequence[Point]: ...


def metrics_html(run: str, curves: Mapping[str, Curve], problems: Sequence[str]) -> Markup:
    """Return the charts of a run's metrics, and why some of them may be missing."""
    drawn = [
        chart(names[0], curves[names[0]].unit, [_series(name, curves[name]) for name in names])
        for names in _groups(list(curves))
    ]
    shown = charts(drawn) if drawn else element("div", f"{run}: no metrics yet")
    return element("div", shown, joined(element("div", f"not read: {text}") for text in problems))


def metrics_text(run: str, curves: Mapping[str, Curve], problems: Sequence[str]) -> str:
    """Return the same in words, a line for each metric."""
    sentences = [
        f"  {_series(name, curve).sentence}{f' ({curve.unit})' if curve.unit else ''}"
        for name, curve in curves.items()
    ]
    missing = [f"  not read: {printable.line(text)}" for text in problems]
    return "\n".join([f"<metrics of {printable.line(run)}>", *(sentences or ["  none yet"]), *missing])


def _series(name: str, curve: Curve) -> Series:
    return Series(name, [(float(point.step), point.value) for point in curve.points])


def _groups(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the names that share a chart."""
    paired = {name: pair for pair in TOGETHER for name in pair}
    for name in names:
        group = [other for other in names if other in paired.get(name, (name,))]
        if name == group[0]:
            yield group


# Draws curves as SVG in the page's own colour, readable on white and on black, with the same in words.


@dataclass(frozen=True)
class Series:
    """One curve."""

    name: str
    points: Sequence[tuple[float, float]]
    """Step and value; a value that is no number leaves a gap."""

    @property
    def finite(self) -> list[tuple[float, float]]:
        """The points that can be drawn."""
        return [point for point in self.points if math.isfinite(point[1])]

    @property
    def sentence(self) -> str:
        """The curve in words."""
        name, finite = printable.line(self.name), self.finite
        gaps = len(self.points) - len(finite)
        missing = f"; {gaps} of {len(self.points)} values are no numbers" if gaps else ""
        if not finite:
            return f"{name}: no value{missing}"
        first, final = finite[0], finite[-1]
        if len(finite) == 1:
            return f"{name}: {final[1]:.4g} at step {final[0]:.0f}{missing}"
        low = min(finite, key=lambda point: point[1])
        high = max(finite, key=lambda point: point[1])
        return (
            f"{name}: {first[1]:.4g} at step {first[0]:.0f}, {final[1]:.4g} at step {final[0]:.0f}, lowest "
            f"{low[1]:.4g} at step {low[0]:.0f}, highest {high[1]:.4g} at step {high[0]:.0f}{missing}"
        )


def chart(title: str, unit: str, series: Sequence[Series]) -> Markup:
    """Return curves over steps with axes and a legend; where nothing can be drawn, the curves in words."""
    drawn = [curve for curve in series if curve.finite]
    text = ". ".join(curve.sentence for curve in series)
    points = [point for curve in drawn for point in curve.finite]
    try:
        steps = axis_of((point[0] for point in points), 4)
        values = axis_of(point[1] for point in points)
    except (ValueError, OverflowError):
        return element("div", f"{title}: {text}")
    heading = f"{title} ({unit})" if unit else title
    parts = [
        element("title", f"{heading} by step"), element("desc", text),
        *_frame(steps, values), _legend(heading, [curve.name for curve in drawn]),
        *(_curve(curve, steps, values, place) for place, curve in enumerate(drawn)),
    ]  # fmt: skip
    style = f"width:100%;max-width:{WIDTH}px;height:auto;background:none;font:11px sans-serif"
    return element(
        "svg", *parts, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img",
        aria_label=f"{heading} by step. {text}", style=style, fill="currentColor",
    )  # fmt: skip


def _x(steps: Axis, step: float) -> float:
    return round(LEFT + steps.share(step) * (WIDTH - LEFT - RIGHT), 1)


def _y(values: Axis, value: float) -> float:
    return round(HEIGHT - BOTTOM - values.share(value) * (HEIGHT - TOP - BOTTOM), 1)


def _frame(steps: Axis, values: Axis) -> Iterator[Markup]:
    """Yield the axes: a line and a number for each round number."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for tick in values.ticks:
        y = _y(values, tick)
        yield _stroke(f"M{LEFT} {y}H{right}", 0.18)
        yield _text(LEFT - 6, y + 4, number(tick), "end")
    for tick in steps.ticks:
        x = _x(steps, tick)
        yield _stroke(f"M{x} {bottom}v4", 0.6)
        yield _text(x, bottom + 16, number(tick), "middle")
    yield _stroke(f"M{LEFT} {TOP}V{bottom}H{right}", 0.6)
    yield _text((LEFT + right) / 2, HEIGHT - 6, "step", "middle")


def _stroke(path: str, opacity: float) -> Markup:
    return element("path", d=path, stroke="currentColor", stroke_opacity=opacity, fill="none")


def _text(x: float, y: float, text: str, anchor: str, weight: str = "normal") -> Markup:
    return element("text", text, x=round(x, 1), y=round(y, 1), text_anchor=anchor, font_weight=weight)


def _legend(heading: str, names: Sequence[str]) -> Markup:
    """Return the heading, and behind it each curve's line and name where they are several."""
    parts, x = [_text(LEFT, 16, heading, "start", "bold")], LEFT + 7.0 * len(heading) + 18
    for place, name in enumerate(names if len(names) > 1 else ()):
        parts.append(_line(f"M{x:.0f} 12h22", place))
        parts.append(_text(x + 27, 16, name, "start"))
        x += 27 + 6.5 * len(name) + 14
    return joined(parts)


def _curve(series: Series, steps: Axis, values: Axis, place: int) -> Markup:
    """Return a curve; points that stand alone are dots."""
    path, dots = "", []
    for run in _runs(series.points):
        places = [(_x(steps, step), _y(values, value)) for step, value in _thinned(run)]
        path += "".join(f"{'L' if at else 'M'}{x} {y}" for at, (x, y) in enumerate(places))
        if len(places) == 1:
            dots.append(element("circle", cx=places[0][0], cy=places[0][1], r=3, fill=_colour(place)))
    return joined([_line(path, place), *dots])


def _line(path: str, place: int) -> Markup:
    return element(
        "path", d=path, stroke=_colour(place), stroke_width=1.8, fill="none", stroke_linejoin="round",
        stroke_dasharray=DASHES[place % len(DASHES)] or "none",
    )  # fmt: skip


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _runs(points: Sequence[tuple[float, float]]) -> Iterator[list[tuple[float, float]]]:
    """Yield stretches of points without a gap."""
    run: list[tuple[float, float]] = []
    for point in points:
        if math.isfinite(point[1]):
            run.append(point)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return no more points than can be told apart, and every peak."""
    if len(points) <= MOST_POINTS:
        return points
    size = -(-2 * len(points) // MOST_POINTS)
    thinned = [points[0]]
    for start in range(0, len(points), size):
        group = points[start : start + size]
        ends = {min(group, key=lambda point: point[1]), max(group, key=lambda point: point[1])}
        thinned += sorted(ends)
    return [*thinned, points[-1]]


def charts(parts: Sequence[Markup]) -> Markup:
    """Return charts beside each other, below each other where it is narrow."""
    cells = (element("div", part, style=f"flex:1 1 260px;max-width:{WIDTH}px") for part in parts)
    return element("div", *cells, style="display:flex;flex-wrap:wrap;gap:.6em", class_="tpuctl")


@dataclass(frozen=True)
class Axis:
    """The range of an axis, and the numbers at it."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """Return how far along the axis a value is, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def axis_of(values: Iterable[float], most: int = 5) -> Axis:
    """Return an axis that holds finite values, with about `most` round numbers.

    Raises OverflowError where the values are too far apart for arithmetic.
    """
    low, high = _range(list(values))
    if not math.isfinite(high - low):
        raise OverflowError("the values are too far apart to be drawn")
    step = _round_step((high - low) / (most + 1))
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return Axis(low, high, tuple((first + number) * step for number in range(count)))


def number(value: float) -> str:
    """Return a number for an axis: `0.25`, `20k`, `1.5M`."""
    for size, letter in _SIZES:
        if abs(value) >= max(size, _LARGE):
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}" if value else "0"


def _range(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    margin = abs(low) / 10 or 0.5  # one value, or the same everywhere: it is drawn in the middle
    return low - margin, high + margin


def _round_step(smallest: float) -> float:
    """Return 1, 2 or 5 times a power of ten, which is at least so much."""
    power = 10.0 ** math.floor(math.log10(smallest))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= smallest * (1 - 1e-9))
