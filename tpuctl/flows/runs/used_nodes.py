"""Finds the nodes that runs use."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tpuctl import clock
from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.errors import NotFoundError, StateError
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.lookup import WIDTH, stored_runs
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.parallel import fanout, values

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.storage import Bucket


def used_nodes(
    bucket: Bucket, provider: Provider, now: datetime, age: timedelta, warn: Report
) -> frozenset[str]:
    """Return the uids of nodes on which a run of this bucket has not ended, or ended less than `age` ago.

    Raises StateError for a run that cannot be read: nobody knows which node it uses.
    """
    uids = values(
        fanout(lambda run: _used_node(run, provider, now, age), stored_runs(bucket, warn), width=WIDTH)
    )
    return frozenset(uid for uid in uids if uid)


def _used_node(run: StoredRun, provider: Provider, now: datetime, age: timedelta) -> str:
    try:
        state = settle(run, provider, now)
        uid = run.last_attempt().record.tpu.uid
    except NotFoundError:
        return ""  # it was never started
    except BadObjectError as error:
        raise _unknown(run, error) from error
    if state.error:
        raise _unknown(run, state.error) from state.error
    if state.verdict and clock.parse(state.verdict.decided) <= now - age:
        return ""
    return uid


def _unknown(run: StoredRun, error: BadObjectError) -> StateError:
    return StateError(
        f"Run '{run.name}' cannot be read, so nobody knows which TPU it uses: {error.message}",
        hint="Delete its folder from the bucket, or leave --without-run away.",
    )
