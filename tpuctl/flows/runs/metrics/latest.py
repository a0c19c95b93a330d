"""Reads the last values of a run's metrics from the ends of its event files, which need no TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tpuctl import clock
from tpuctl.bucket_layout import RunPaths
from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.errors import NotFoundError, TpuctlError
from tpuctl.flows.facts import Fact
from tpuctl.flows.runs.metrics.names import METRICS, STEP_TIME, Meaning, meaning
from tpuctl.parallel import fanout

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket, Object

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
class Metrics:
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


def latest_metrics(bucket: Bucket, run: str) -> Metrics:
    """Return the last values in the event files of a run; raises tpuctl's errors of the bucket."""
    folder = RunPaths(run).tensorboard
    best: dict[str, tuple[tuple[int, float], Metric]] = {}
    refused = []
    for result in fanout(
        lambda item: _read_latest(bucket, item, folder), event_files(bucket, run), width=WIDTH
    ):
        if isinstance(result.error, NotFoundError):
            continue  # replaced by a longer one since it was listed: the next look finds that
        if isinstance(result.error, BadObjectError):
            refused.append(result.error.message)
        elif result.error:
            raise result.error
        for name, order, metric in result.value or ():
            if name not in best or order > best[name][0]:
                best[name] = (order, metric)
    return Metrics({name: metric for name, (_, metric) in best.items()}, refused)


def known_metrics(bucket: Bucket, run: str) -> Metrics:
    """Do the same; a bucket that does not answer is said, and raises nothing."""
    try:
        return latest_metrics(bucket, run)
    except TpuctlError as error:
        return Metrics(refused=(error.message,))


Found = tuple[str, tuple[int, float], Metric]
"""Metric, its order among others of the name, and the value."""


def _read_latest(bucket: Bucket, item: Object, folder: str) -> list[Found]:
    from tpuctl.data.events.tail import last_scalars  # noqa: PLC0415  protobuf is slow to import

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
