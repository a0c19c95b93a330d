"""Summarizes each run in the bucket in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.errors import NotFoundError, TpuctlError
from tpuctl.flows.progress import Report, silent
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.lookup import stored_runs
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.parallel import fanout, values
from tpuctl.worker.records import UNKNOWN

if TYPE_CHECKING:
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
    """The verdict's outcome; before the verdict: starting, preparing, running, finished or unreachable.

    "not started" without an attempt, "unknown" where a record or the node cannot be read.
    """
    submitter: str


def summaries(bucket: Bucket, witnesses: Witnesses, warn: Report = silent) -> list[Summary]:
    """Return every run, oldest first; runs that have ended by now get their verdict.

    `warn` gets a line about each object that is no record: the run, or its state, is left out for that.
    """
    stored = stored_runs(bucket, warn)
    listed = values(fanout(lambda run: _summary(run, witnesses), stored, width=WIDTH))
    return [summary for summary in listed if summary]


def _summary(run: StoredRun, witnesses: Witnesses) -> Summary | None:
    try:
        record = run.record
    except BadObjectError as error:
        run.warn(error.message)
        return None
    except NotFoundError:
        return None  # deleted since it was listed
    except TpuctlError as error:
        run.warn(f"Run '{run.name}' cannot be read: {error.message}")
        return None
    dataset = str(record.dataset or "")
    return Summary(
        run.name, record.created, record.accelerator, dataset, _state(run, witnesses), record.submitter
    )


def _state(run: StoredRun, witnesses: Witnesses) -> str:
    try:
        state = settle(run, witnesses)
    except NotFoundError:
        return "not started"
    except TpuctlError as error:  # one run that cannot be looked at hides no other
        run.warn(f"The state of run '{run.name}' is unknown: {error.message}")
        return UNKNOWN
    if state.error:
        run.warn(state.error.message)
    elif state.unanswered:
        run.warn(f"The state of run '{run.name}' is unknown: {state.unanswered}")
    elif state.doubt:
        run.warn(f"Run '{run.name}': {state.doubt}.")
    return state.label
