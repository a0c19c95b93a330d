"""Writes a planned run into the bucket and starts it on its workers, detached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuctl import clock, runs
from tpuctl.bucket_layout import RunPaths, bundle
from tpuctl.errors import ConflictError, TpuctlError
from tpuctl.flows.runs import launch
from tpuctl.flows.runs.code.bundles import Bundle
from tpuctl.flows.runs.plan import SubmitPlan
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.nodes import HttpRequest
from tpuctl.runs import Verdict
from tpuctl.worker.records import Spec

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.cloud.storage import Bucket


def submit(bucket: Bucket, provider: Provider, ssh: Ssh, plan: SubmitPlan) -> None:
    """Write the run and its attempt, and start the script on every worker that runs it.

    Raises ConflictError when the name is taken. Any failure after that gives the run the verdict "failed",
    so that nobody waits for it, and stops the workers that had started.
    """
    host_keys = provider.host_keys(plan.node.id)
    stored = _is_stored(bucket, plan.code)
    specs = [_spec(bucket.name, plan, worker) for worker in plan.attempt.workers]
    if not stored:
        _store(bucket, plan.code)
    run = StoredRun(bucket, plan.run.run)
    run.create(plan.run)
    try:
        run.create_attempt(plan.attempt)
        launch.launch_all(ssh, plan.node, host_keys, specs)
    except TpuctlError as error:
        _fail(run, plan, error)
        raise


def requests(bucket: Bucket, plan: SubmitPlan) -> list[HttpRequest]:
    """Return the requests that `submit` would send, for --dry-run; sends reads only."""
    rehearsal = bucket.dry_run()
    if not _is_stored(bucket, plan.code):
        _store(rehearsal, plan.code)
    run = StoredRun(rehearsal, plan.run.run)
    run.create(plan.run)
    run.create_attempt(plan.attempt)
    return rehearsal.requests + [
        HttpRequest("SSH", f"{plan.node.name} worker {worker}", f"start {plan.run.script}")
        for worker in plan.attempt.workers
    ]


def _is_stored(bucket: Bucket, code: Bundle) -> bool:
    """Return whether the bucket has this code: it is named by its content."""
    name = bundle(code.sha256)
    return any(listed.name == name for listed in bucket.objects(name, most=1))


def _store(bucket: Bucket, code: Bundle) -> None:
    try:
        bucket.create(bundle(code.sha256), code.data, "application/gzip")
    except ConflictError:
        pass  # another submit has just stored the same code


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
        arguments=run.arguments,
        dependencies=run.dependencies,
        bundle=bundle(run.bundle_sha256),
        bundle_sha256=run.bundle_sha256,
        folder=RunPaths(run.run).worker(attempt.attempt, worker),
        environment=plan.environment,
    )


def _fail(run: StoredRun, plan: SubmitPlan, error: TpuctlError) -> None:
    evidence = f"it could not be started: {error.message}"
    at = clock.iso(clock.now())
    try:
        run.end(Verdict(run.name, runs.FAILED, plan.attempt.attempt, at, evidence))
    except TpuctlError:
        pass  # the bucket cannot be reached: the error that ended the launch says more
