"""Shows the metrics of a run: in a notebook as a table with small curves, elsewhere as lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from tpuctl.display.markup import Markup, element, joined, table
from tpuctl.text import printable

WIDTH, HEIGHT = 240, 48
MOST_POINTS = 300
"""Points of a curve that are drawn, evenly spaced: the words beside it have its lowest and highest."""


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
    """Return a table of a run's metrics, each with its curve over steps, and why some may be missing."""
    rows = [
        (f"{name} ({curve.unit})" if curve.unit else name, _drawn(curve), _words(curve))
        for name, curve in curves.items()
    ]
    shown = table(("metric", "by step", ""), rows) if rows else element("div", f"{run}: no metrics yet")
    return element("div", shown, joined(element("div", f"not read: {text}") for text in problems))


def metrics_text(run: str, curves: Mapping[str, Curve], problems: Sequence[str]) -> str:
    """Return the same in words, a line for each metric."""
    lines = [
        f"  {printable.line(name)}: {_words(curve)}{f' ({curve.unit})' if curve.unit else ''}"
        for name, curve in curves.items()
    ]
    missing = [f"  not read: {printable.line(text)}" for text in problems]
    return "\n".join([f"<metrics of {printable.line(run)}>", *(lines or ["  none yet"]), *missing])


def _finite(curve: Curve) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in curve.points if math.isfinite(point.value)]


def _words(curve: Curve) -> str:
    points, gaps = _finite(curve), ""
    if len(points) < len(curve.points):
        gaps = f"; {len(curve.points) - len(points)} of {len(curve.points)} values are no numbers"
    if not points:
        return f"no value{gaps}"
    named = [("", points[0])]
    if len(points) > 1:
        low, high = (extreme(points, key=lambda point: point[1]) for extreme in (min, max))
        named += [("", points[-1]), ("lowest ", low), ("highest ", high)]
    return ", ".join(f"{word}{value:.4g} at step {step}" for word, (step, value) in named) + gaps


def _drawn(curve: Curve) -> Markup:
    """Return the curve as SVG in the colour of the page; nothing for less than two points."""
    points = _finite(curve)
    if len(points) < 2:
        return Markup()
    points = [*points[: -1 : math.ceil(len(points) / MOST_POINTS)], points[-1]]
    steps, values = zip(*points, strict=True)
    width, height = max(steps) - min(steps), max(values) - min(values)
    if not math.isfinite(height):
        return Markup()
    places = " ".join(
        f"{(step - min(steps)) / (width or 1) * WIDTH:.1f},"
        f"{(max(values) - value) / (height or 1) * HEIGHT:.1f}"
        for step, value in points
    )
    line = element("polyline", points=places, fill="none", stroke="currentColor", stroke_width=1.5)
    return element(
        "svg", line, xmlns="http://www.w3.org/2000/svg", viewBox=f"-2 -2 {WIDTH + 4} {HEIGHT + 4}",
        width=WIDTH, height=HEIGHT, role="img", aria_label=_words(curve),
    )  # fmt: skip
