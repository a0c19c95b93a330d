"""Writes the request to stop a run into the bucket, where every worker of the run reads it."""

from __future__ import annotations

from tpuctl import clock
from tpuctl.bucket_objects.bad_object import BadObjectError
from tpuctl.errors import ConflictError
from tpuctl.flows.runs.stored_run import REPLACEMENTS, StoredRun
from tpuctl.host.worker.records import StopRequest, encode


def ask(run: StoredRun, by: str, grace: int) -> StopRequest:
    """Write a request, and return the one that the bucket holds: of two the first counts."""
    name, own = run.paths.stop, request(run, by, grace)
    for _ in range(REPLACEMENTS):
        item = run.bucket.stat(name)
        try:
            if item is None:
                run.bucket.create(name, encode(own))
                return own
            other = _stored(run)
            if other:
                return other
            run.bucket.replace(item, encode(own))
            return own
        except ConflictError:
            continue  # another command was first
    raise ConflictError(f"The request to stop run '{run.name}' keeps changing.", hint="Try again.")


def request(run: StoredRun, by: str, grace: int) -> StopRequest:
    """Return the request of an account for now, with so many seconds to save."""
    return StopRequest(run.name, by, clock.iso(run.bucket.now()), grace)


def _stored(run: StoredRun) -> StopRequest | None:
    """Return the request in the bucket; None for anything that workers do not take for one."""
    try:
        return run.stop_request()
    except BadObjectError as error:
        run.warn(f"{error.message} It is replaced.")
        return None
