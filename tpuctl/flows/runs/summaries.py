"""Summarizes each run in the bucket in one line."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from tpuctl.errors import NotFoundError
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.stored_run import StoredRun, stored_runs
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.storage import Bucket

WIDTH = 8
"""Runs read at once."""


class Summary(msgspec.Struct, frozen=True):
    """One line about a run."""

    run: str
    created: str
    accelerator: str
    dataset: str
    """NAME/VERSION, empty without a dataset."""
    state: str
    """The verdict's outcome; before the verdict: starting, preparing, running or finished."""
    submitter: str


def summaries(bucket: Bucket, provider: Provider, at: datetime) -> list[Summary]:
    """Return every run, oldest first; runs that have ended by now get their verdict."""
    return values(fanout(lambda run: _summary(run, provider, at), stored_runs(bucket), width=WIDTH))


def _summary(run: StoredRun, provider: Provider, at: datetime) -> Summary:
    record = run.record
    dataset = str(record.dataset or "")
    return Summary(
        run.name, record.created, record.accelerator, dataset, _state(run, provider, at), record.submitter
    )


def _state(run: StoredRun, provider: Provider, at: datetime) -> str:
    try:
        return settle(run, provider, at).label
    except NotFoundError:
        return "not started"
