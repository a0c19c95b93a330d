"""Runs in the bucket, and how each stands."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from tpuctl import runs
from tpuctl.bucket_layout import RunPaths
from tpuctl.errors import NotFoundError
from tpuctl.flows.runs import outcome as verdicts
from tpuctl.parallel import fanout, values
from tpuctl.runs import Run

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket
    from tpuctl.cloud.tpu import TpuApi


class Summary(msgspec.Struct, frozen=True):
    """One line about a run."""

    run: str
    created: str
    accelerator: str
    dataset: str
    state: str
    """The verdict's outcome, or preparing, running or finished while there is none."""
    submitter: str


def summaries(bucket: Bucket, tpu: TpuApi, at: datetime) -> list[Summary]:
    """Return every run, oldest first, deciding those that can be decided now."""
    return values(fanout(lambda run: _summary(bucket, tpu, run, at), verdicts.every_run(bucket), width=8))


def _summary(bucket: Bucket, tpu: TpuApi, run: str, at: datetime) -> Summary:
    name = RunPaths(run).record
    record = runs.decode(bucket.read(name), Run, name)
    data = f"{record.dataset.name}/{record.dataset.version}" if record.dataset else ""
    state = _state(bucket, tpu, run, at)
    return Summary(run, record.created, record.accelerator, data, state, record.submitter)


def _state(bucket: Bucket, tpu: TpuApi, run: str, at: datetime) -> str:
    try:
        decided = verdicts.settle(bucket, tpu, run, at)
        if decided:
            return decided.outcome
        found = verdicts.statuses(bucket, run, verdicts.last_attempt(bucket, run))
    except NotFoundError:
        return "not started"
    states = [one.state if one else "starting" for one in found]
    return min(states, key=ORDER.index)


ORDER = ("starting", "preparing", "running", "finished")
"""A run is as far as its slowest worker."""
