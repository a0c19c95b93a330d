"""Reads the curves of a run's metrics from its event files, which need no TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tpuctl.bucket_layout import RunPaths
from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.errors import NotFoundError
from tpuctl.flows.runs.metrics.latest import WIDTH, event_files
from tpuctl.flows.runs.metrics.names import METRICS, STEP_TIME, meaning
from tpuctl.parallel import fanout

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object


MOST_POINTS = 1 << 17
"""Points of a curve in one file that are held: of more, every second one is left out, and so on."""


@dataclass(frozen=True)
class Point:
    """A value of a metric."""

    step: int
    value: float
    """In milliseconds for a step time; may be infinite or no number."""
    wall_time: float
    """Seconds since 1970, by the host's clock."""


@dataclass(frozen=True)
class Curve:
    """The values of a metric, by their steps."""

    metric: str
    points: tuple[Point, ...]
    """Steps rise. Those that an attempt did again have its values, and none of the attempt before."""
    tag: str
    """The curve's name in TensorBoard."""

    @property
    def unit(self) -> str:
        """What the values are in; empty for a plain number."""
        return "ms" if self.metric == STEP_TIME else ""


@dataclass(frozen=True)
class Curves:
    """The metrics that a run has reported."""

    values: Mapping[str, Curve] = field(default_factory=dict)
    """By the metric's name, in the order of `METRICS`."""
    refused: tuple[str, ...] = ()
    """Why event files could not be read."""


def read_curves(bucket: Bucket, run: str) -> Curves:
    """Return the curves in the newest event files of a run; raises tpuctl's errors of the bucket.

    Of a file of more than 64 MiB only the end is read. Of several tags for a metric, such as the loss of an
    epoch and of a batch, that with the better name counts, as in `latest_metrics`.
    """
    folder, refused = RunPaths(run).tensorboard, list[str]()
    points: dict[tuple[str, int], list[Point]] = {}
    tags: dict[tuple[str, int], str] = {}
    for result in fanout(
        lambda item: _read_curves(bucket, item, folder), event_files(bucket, run), width=WIDTH
    ):
        if isinstance(result.error, NotFoundError):
            continue  # replaced by a longer one since it was listed
        if isinstance(result.error, BadObjectError):
            refused.append(result.error.message)
        elif result.error:
            raise result.error
        for key, (tag, more) in (result.value or {}).items():
            points.setdefault(key, []).extend(more)
            tags[key] = tag
    curves = {}
    for metric in METRICS:
        ranks = [rank for name, rank in points if name == metric]
        if ranks:
            key = metric, min(ranks)
            curves[metric] = Curve(metric, _in_order(points[key]), tags[key])
    return Curves(curves, tuple(refused))


def _read_curves(bucket: Bucket, item: Object, folder: str) -> dict[tuple[str, int], tuple[str, list[Point]]]:
    """Return the points of a file by metric and rank of the name, with the tag."""
    from tpuctl.data.events.history import all_scalars  # noqa: PLC0415  protobuf is slow to import

    writer = item.name.removeprefix(folder).rpartition("/")[0]
    curves: dict[str, _FileCurve] = {}
    scalars = all_scalars(
        lambda start, end: bucket.read_range(item, start, end),
        item.size,
        lambda tag: meaning(tag, writer) is not None,
    )
    try:
        for scalar in scalars:
            curve = meaning(scalar.tag, writer)
            assert curve is not None
            if curve.metric not in curves or curve.rank < curves[curve.metric].rank:
                curves[curve.metric] = _FileCurve(scalar.tag, curve.rank)
            if curve.rank == curves[curve.metric].rank:
                point = Point(scalar.step, curve.value(scalar.value), scalar.wall_time)
                curves[curve.metric].add(point)
    except ValueError as error:
        raise BadObjectError(item.name, f"cannot be read: {error}") from error
    return {(metric, curve.rank): (curve.tag, curve.all()) for metric, curve in curves.items()}


class _FileCurve:
    """The points of a curve in one file; of very many some, evenly, and the last one."""

    def __init__(self, tag: str, rank: int) -> None:
        self.tag = tag
        self.rank = rank
        self._points: list[Point] = []
        self._each = 1
        """Which of the points are held: the first, the second after it ..."""
        self._count = 0
        self._last: list[Point] = []

    def add(self, point: Point) -> None:
        """Add the next point."""
        self._last = [point]
        if self._count % self._each == 0:
            self._points.append(point)
            self._last = []
        if len(self._points) > MOST_POINTS:
            del self._points[1::2]
            self._each *= 2
        self._count += 1

    def all(self) -> list[Point]:
        """Return those that are held."""
        return [*self._points, *self._last]


def _in_order(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return points by step; what was written later replaces what it did again, as in TensorBoard."""
    ordered: list[Point] = []
    for point in sorted(points, key=lambda point: point.wall_time if math.isfinite(point.wall_time) else 0.0):
        while ordered and ordered[-1].step >= point.step:
            ordered.pop()
        ordered.append(point)
    return tuple(ordered)
