"""Shows the metrics of a run: curves over steps, those of training and validation in one chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tpuctl.display.chart import Series, chart, charts
from tpuctl.display.markup import Markup, element, joined
from tpuctl.flows.runs.metrics.names import ACCURACY, LOSS, VAL_ACCURACY, VAL_LOSS
from tpuctl.text import printable

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
