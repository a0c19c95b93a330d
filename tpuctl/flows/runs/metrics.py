"""The last values of what a run reports while it trains.

- Says which metric a curve of TensorBoard is: programs and libraries name the same thing differently.
- Reads the curves of a run's metrics from its event files, which need no TensorFlow.
- Reads the last values of a run's metrics from the ends of its event files, which need no TensorFlow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tpuctl import clock
from tpuctl.bucket_layout import RunPaths
from tpuctl.bucket_objects import BadObjectError
from tpuctl.display import Fact
from tpuctl.display.markup import Curve, Metrics, Point
from tpuctl.errors import NotFoundError, TpuctlError
from tpuctl.parallel import fanout

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

T = TypeVar("T")

LOSS, ACCURACY, VAL_LOSS, VAL_ACCURACY, STEP_TIME = (
    "loss",
    "accuracy",
    "val_loss",
    "val_accuracy",
    "step_time",
)
METRICS = (LOSS, ACCURACY, VAL_LOSS, VAL_ACCURACY, STEP_TIME)
"""In the order in which they are shown; `step_time` in milliseconds."""

# names without case, with `_` for whatever is no letter or digit; the first one that a run has counts
_NAMES = {
    LOSS: ("loss", "train_loss", "loss_train", "training_loss", "epoch_loss", "learning_loss", "batch_loss"),
    ACCURACY: (
        "accuracy", "acc", "train_accuracy", "accuracy_train", "training_accuracy", "train_acc", "acc_train",
        "epoch_accuracy", "epoch_sparse_categorical_accuracy", "epoch_categorical_accuracy",
        "epoch_binary_accuracy", "learning_accuracy", "batch_accuracy",
    ),
}  # fmt: skip
_OF_VALIDATION = {LOSS: VAL_LOSS, ACCURACY: VAL_ACCURACY}
_VALIDATION = ("val", "validation", "valid", "eval", "evaluation", "test")
"""Words for validation: of a tag, or of the folder of its writer."""
_MILLISECONDS, _SECONDS, _RATE = 1.0, 1000.0, 0.0
_STEP_TIMES = {
    "step_ms": _MILLISECONDS, "step_time_ms": _MILLISECONDS,
    "step_time": _SECONDS, "step_time_seconds": _SECONDS, "perf_step_time_seconds": _SECONDS,
    "seconds_per_step": _SECONDS, "sec_per_step": _SECONDS,
    "steps_per_second": _RATE, "steps_per_sec": _RATE, "global_step_sec": _RATE,
    "epoch_steps_per_second": _RATE, "train_steps_per_second": _RATE,
}  # fmt: skip
"""Name -> milliseconds of its unit; _RATE for steps per second."""


class Meaning(NamedTuple):
    """What a curve is."""

    metric: str
    rank: int
    """Its place among the names of the metric: the smallest that a run has counts."""
    unit: float = 1.0
    """Milliseconds of a step time's unit."""

    def value(self, number: float) -> float:
        """Return the metric's value for a number of the curve."""
        if self.metric != STEP_TIME:
            return number
        if self.unit != _RATE:
            return number * self.unit
        return 1000 / number if number else float("nan")


def meaning(tag: str, folder: str = "") -> Meaning | None:
    """Return which metric a tag is in the events of a writer's folder; None for another curve."""
    name = re.sub(r"[^a-z0-9]+", "_", tag.lower()).strip("_")
    if name in _STEP_TIMES:
        return Meaning(STEP_TIME, list(_STEP_TIMES).index(name), _STEP_TIMES[name])
    words = [word for word in name.split("_") if word not in _VALIDATION]
    is_validation = len(words) < name.count("_") + 1
    is_validation |= any(word in _VALIDATION for word in re.split(r"[^a-z0-9]+", folder.lower()))
    for metric, names in _NAMES.items():
        if "_".join(words) in names:
            rank = names.index("_".join(words))
            return Meaning(_OF_VALIDATION[metric] if is_validation else metric, rank)
    return None


MOST_POINTS = 1 << 17
"""Points of a curve in one file that are held: of more, every second one is left out, and so on."""


def read_curves(bucket: Bucket, run: str) -> Metrics:
    """Return the curves in the newest event files of a run; raises tpuctl's errors of the bucket.

    Of a file of more than 64 MiB only the end is read. Of several tags for a metric, such as the loss of an
    epoch and of a batch, that with the better name counts, as in `latest_metrics`.
    """
    refused = list[str]()
    points: dict[tuple[str, int], list[Point]] = {}
    for read in _read_files(bucket, run, _read_curves, refused):
        for key, more in read.items():
            points.setdefault(key, []).extend(more)
    curves = {}
    for metric in METRICS:
        ranks = [rank for name, rank in points if name == metric]
        if ranks:
            unit = "ms" if metric == STEP_TIME else ""
            curves[metric] = Curve(metric, unit, _in_order(points[metric, min(ranks)]))
    return Metrics(run, curves, tuple(refused))


def _read_curves(bucket: Bucket, item: Object, folder: str) -> dict[tuple[str, int], list[Point]]:
    """Return the points of a file by metric and rank of the name."""
    from tpuctl.data.events import all_scalars  # noqa: PLC0415  protobuf is slow to import

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
                curves[curve.metric] = _FileCurve(curve.rank)
            if curve.rank == curves[curve.metric].rank:
                point = Point(scalar.step, curve.value(scalar.value), scalar.wall_time)
                curves[curve.metric].add(point)
    except ValueError as error:
        raise BadObjectError(item.name, f"cannot be read: {error}") from error
    return {(metric, curve.rank): curve.all() for metric, curve in curves.items()}


class _FileCurve:
    """The points of a curve in one file; of very many some, evenly, and the last one."""

    def __init__(self, rank: int) -> None:
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
    for point in sorted(points, key=lambda point: point.time if math.isfinite(point.time) else 0.0):
        while ordered and ordered[-1].step >= point.step:
            ordered.pop()
        ordered.append(point)
    return tuple(ordered)


MOST_FILES = 16
"""Event files of a run that are read, the newest ones."""
WIDTH = 4
"""Files read at once: several runs may be read at the same time."""
MARK = "tfevents"
WITHOUT_SCALARS = ".profile-empty"
"""End of the name of a file that the profiler writes so that TensorBoard finds its own."""


@dataclass(frozen=True)
class Metric:
    """The last value of a metric."""

    value: float
    """In milliseconds for a step time."""
    step: int
    at: str
    """ISO-8601, UTC, by the host's clock; empty for a time that no clock shows."""
    source: str
    """Its curve and the event file."""

    @property
    def short(self) -> str:
        """The value for a column: four digits that count."""
        return f"{self.value:.4g}"


@dataclass(frozen=True)
class LatestMetrics:
    """What a run has reported last."""

    values: Mapping[str, Metric] = field(default_factory=dict)
    """By the metric's name."""
    refused: Sequence[str] = ()
    """Why event files could not be read."""

    def facts(self) -> list[Fact]:
        """Return each metric with its step and time, and what could not be read."""
        facts = []
        for name in METRICS:
            metric = self.values.get(name)
            if metric:
                unit = " ms" if name == STEP_TIME else ""
                at = f", {metric.at}" if metric.at else ""
                facts.append(Fact(name, f"{metric.short}{unit} at step {metric.step}{at}", metric.source))
        return [*facts, *(Fact("metrics", f"unknown: {reason}", "tensorboard") for reason in self.refused)]


def event_files(bucket: Bucket, run: str) -> list[Object]:
    """Return the newest event files of a run, the newest first; raises tpuctl's errors of the bucket."""
    folder = RunPaths(run).tensorboard
    listed = bucket.objects(folder, glob=f"{folder}**{MARK}*")
    files = [item for item in listed if item.size and not item.name.endswith(WITHOUT_SCALARS)]
    return sorted(files, key=lambda item: (item.updated, item.generation), reverse=True)[:MOST_FILES]


def _read_files(
    bucket: Bucket, run: str, read: Callable[[Bucket, Object, str], T], refused: list[str]
) -> Iterator[T]:
    """Yield what `read` returns of each event file; `refused` gets why one cannot be read."""
    folder = RunPaths(run).tensorboard
    for result in fanout(lambda item: read(bucket, item, folder), event_files(bucket, run), width=WIDTH):
        if isinstance(result.error, NotFoundError):
            continue  # replaced by a longer one since it was listed: the next look finds that
        if isinstance(result.error, BadObjectError):
            refused.append(result.error.message)
        elif result.error:
            raise result.error
        elif result.value is not None:
            yield result.value


def latest_metrics(bucket: Bucket, run: str) -> LatestMetrics:
    """Return the last values in the event files of a run; raises tpuctl's errors of the bucket."""
    best: dict[str, tuple[tuple[int, float], Metric]] = {}
    refused = list[str]()
    for read in _read_files(bucket, run, _read_latest, refused):
        for name, order, metric in read:
            if name not in best or order > best[name][0]:
                best[name] = (order, metric)
    return LatestMetrics({name: metric for name, (_, metric) in best.items()}, refused)


def known_metrics(bucket: Bucket, run: str) -> LatestMetrics:
    """Do the same; a bucket that does not answer is said, and raises nothing."""
    try:
        return latest_metrics(bucket, run)
    except TpuctlError as error:
        return LatestMetrics(refused=(error.message,))


Found = tuple[str, tuple[int, float], Metric]
"""Metric, its order among others of the name, and the value."""


def _read_latest(bucket: Bucket, item: Object, folder: str) -> list[Found]:
    from tpuctl.data.events import last_scalars  # noqa: PLC0415  protobuf is slow to import

    place = item.name.removeprefix(folder)
    writer = place.rpartition("/")[0]
    try:
        newest = last_scalars(
            lambda start, end: bucket.read_range(item, start, end),
            item.size,
            lambda tag: meaning(tag, writer) is not None,
        )
    except ValueError as error:
        raise BadObjectError(item.name, f"cannot be read: {error}") from error
    found = []
    for tag, scalar in newest.items():
        known = meaning(tag, writer)
        assert known is not None
        metric = Metric(known.value(scalar.value), scalar.step, _time(scalar.wall_time), f"{tag} in {place}")
        found.append((known.metric, _order(known, scalar.wall_time), metric))
    return found


def _order(known: Meaning, wall_time: float) -> tuple[int, float]:
    """Return what is greater for a better name, then for a later time."""
    return -known.rank, wall_time if math.isfinite(wall_time) else 0.0


def _time(seconds: float) -> str:
    try:
        moment = clock.iso(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError, OSError):
        return ""
    return moment if clock.is_time(moment) else ""
