"""Writes a planned run into the bucket and starts it on its workers, detached."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from tpuctl import clock, runs
from tpuctl.bucket_layout import RunPaths, bundle, gs
from tpuctl.errors import ConflictError, TpuctlError
from tpuctl.flows.runs import launch
from tpuctl.flows.runs.code.bundles import Bundle
from tpuctl.flows.runs.plan import SubmitPlan
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.masking.text import masked
from tpuctl.nodes import HttpRequest
from tpuctl.object_content import Content
from tpuctl.runs import Verdict
from tpuctl.worker.records import Spec

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.cloud.storage import Bucket, Object


def submit(bucket: Bucket, provider: Provider, ssh: Ssh, plan: SubmitPlan) -> list[str]:
    """Write the run and its attempt, start the script on every worker that runs it, and return notes.

    Raises ConflictError when the name is taken. Any failure after that gives the run the verdict "failed",
    so that nobody waits for it, and stops the workers that had started.
    """
    host_keys = provider.host_keys(plan.node.id)
    stored, is_same = _stored_bundle(bucket, plan.code)
    specs = [_spec(bucket.name, plan, worker) for worker in plan.attempt.workers]
    notes = [] if is_same else _store(bucket, plan.code, stored)
    run = StoredRun(bucket, plan.run.run)
    run.create(plan.run)
    try:
        run.create_attempt(plan.attempt)
        launch.launch_all(ssh, plan.node, host_keys, specs)
    except TpuctlError as error:
        _fail(run, plan, error)
        raise
    return notes


def requests(bucket: Bucket, plan: SubmitPlan) -> list[HttpRequest]:
    """Return the requests that `submit` would send, for --dry-run; sends reads only."""
    rehearsal = bucket.dry_run()
    stored, is_same = _stored_bundle(bucket, plan.code)
    if not is_same:
        _store(rehearsal, plan.code, stored)
    run = StoredRun(rehearsal, plan.run.run)
    run.create(plan.run)
    run.create_attempt(plan.attempt)
    return rehearsal.requests + [
        HttpRequest("SSH", f"{plan.node.name} worker {worker}", f"start {plan.run.script}")
        for worker in plan.attempt.workers
    ]


def _stored_bundle(bucket: Bucket, code: Bundle) -> tuple[Object | None, bool]:
    """Return the object of a bundle's name, and whether it has the bundle's bytes.

    They are hashed: a checksum as short as that in a listing can be met by other bytes.
    """
    name = bundle(code.sha256)
    stored = bucket.stat(name)
    if stored is None or stored.content != Content.of(code.data):
        return stored, False
    return stored, hashlib.sha256(bucket.read(name, len(code.data))).hexdigest() == code.sha256


def _store(bucket: Bucket, code: Bundle, stored: Object | None) -> list[str]:
    """Write a bundle over what the bucket has, and return a note if these were other bytes."""
    name = bundle(code.sha256)
    try:
        if stored is None:
            bucket.create(name, code.data, _KIND)
            return []
        bucket.replace(stored, code.data, _KIND)
        return [_REPLACED.format(place=gs(bucket.name, name))]
    except ConflictError:
        stored, is_same = _stored_bundle(bucket, code)
        if not is_same:  # else another submit has just stored the same code
            raise
        return []


_KIND = "application/gzip"
_REPLACED = "Warning: {place} did not hold the code that it is named by. The code was written again."


def _spec(bucket: str, plan: SubmitPlan, worker: int) -> Spec:
    run, attempt = plan.run, plan.attempt
    return Spec(
        bucket=bucket,
        run=run.run,
        attempt=attempt.attempt,
        worker=worker,
        workers=attempt.tpu.hosts,
        tpu_uid=attempt.tpu.uid,
        framework=run.framework,
        script=run.script,
        arguments=plan.arguments,
        dependencies=plan.dependencies,
        bundle=bundle(run.bundle_sha256),
        bundle_sha256=run.bundle_sha256,
        bundle_size=len(plan.code.data),
        unpacked_size=plan.code.unpacked_size,
        key=secrets.token_hex(32),
        folder=RunPaths(run.run).worker(attempt.attempt, worker),
        environment=plan.environment,
        requires_python=run.requires_python,
        requirements=run.requirements,
    )


def _fail(run: StoredRun, plan: SubmitPlan, error: TpuctlError) -> None:
    evidence = masked(f"it could not be started: {error.message}", plan.secrets)
    at = clock.iso(clock.now())
    try:
        run.end(Verdict(run.name, runs.FAILED, plan.attempt.attempt, at, evidence))
    except TpuctlError:
        pass  # the bucket cannot be reached: the error that ended the launch says more
