"""Writes a planned run into the bucket and starts it: of several in one moment, the one that came first."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tpuctl import clock, runs
from tpuctl.bucket_layout import RUN_ON_NODE, NodePaths, bundle, gs
from tpuctl.errors import ConflictError, HostError, InterruptedByUser, NotFoundError, StateError, TpuctlError
from tpuctl.flows.hosts.way_in import published_key
from tpuctl.flows.runs.code import bundles
from tpuctl.flows.runs.code.bundles import Bundle
from tpuctl.flows.runs.control import cancel
from tpuctl.flows.runs.evidence import decision
from tpuctl.flows.runs.evidence.decision import Ending
from tpuctl.flows.runs.evidence.witnesses import RecordMissingError, Witnesses
from tpuctl.flows.runs.outcome import error_of, unstarted_verdict, with_restart
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch, launch_sign, launch_values, resumption
from tpuctl.flows.runs.submission.launch import BusyHostError
from tpuctl.flows.runs.submission.launch_sign import LaunchSign
from tpuctl.flows.runs.submission.plan import SubmitPlan
from tpuctl.flows.runs.submission.specs import specs
from tpuctl.masking import masked
from tpuctl.nodes import HttpRequest
from tpuctl.polling import Backoff, poll
from tpuctl.printable import named
from tpuctl.runs import Attempt, Run, Verdict

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.ssh import Ssh
    from tpuctl.cloud.storage import Bucket, Object


LONGEST = 600.0
"""Seconds after an announcement within which another submission may not have seen it when it looked."""
UNDER_WAY = 60.0
"""Seconds within which a submission that was announced has its attempt, unless it was killed."""


def take_turn(run: StoredRun, plan: SubmitPlan) -> None:
    """Announce a run for the plan's node; raises StateError if another was first and has not ended.

    Nothing of the run is left in the bucket then. Both find the TPU free before: the announcements have an
    order, and each is written before it looks for others.
    """
    bucket, taken = run.bucket, list["Object"]()
    for part in plan.node.id.parts:  # in their order: of two runs on the same slices one has the first
        node = NodePaths.of(part)
        run.announce(plan.attempt, part)
        listed = {item.name: item for item in bucket.objects(node.runs)}
        own = listed[node.run(run.name, plan.attempt.attempt)]
        taken.append(own)
        for rival in listed.values():
            match = RUN_ON_NODE.fullmatch(rival.name.removeprefix(node.runs))
            if match and match[1] != run.name and _is_ahead(bucket, match[1], rival, own):
                record = bucket.stat(run.paths.record) if plan.attempt.attempt == 1 else None
                for item in (*taken, record):
                    if item:
                        bucket.remove(item)
                raise _busy(plan, match[1])


def _is_ahead(bucket: Bucket, name: str, rival: Object, own: Object) -> bool:
    """Return whether a run was announced shortly before and has not ended."""
    age = (clock.parse(own.updated) - clock.parse(rival.updated)).total_seconds()
    if rival.generation >= own.generation or age > LONGEST:
        return False
    run = StoredRun(bucket, name)
    if run.verdict():
        return False
    try:
        statuses = run.last_readable_attempt().statuses()
    except RecordMissingError:
        return True
    except NotFoundError:
        return age <= UNDER_WAY and bucket.stat(run.paths.record) is not None  # which is written first
    return not all(status and status.is_finished for status in statuses)


def _busy(plan: SubmitPlan, rival: str) -> StateError:
    name, way = plan.node.name, "" if plan.node.slices else "in line with --queue, or wait "
    return StateError(
        f"{name} is busy with run '{rival}', which was submitted at the same moment.",
        hint=f"Wait {way}first: tpuctl wait {rival}",
        busy=[rival],
    )


Record = TypeVar("Record", Run, Attempt)

LOOKS = Backoff(first=0.5, longest=5.0)
MOST_NUMBERED = 20
"""Runs of one script that may be submitted in one second under names of tpuctl's choice."""


@dataclass(frozen=True)
class Submission:
    """A run that was started."""

    run: Run
    """As it was recorded: a name that was not chosen by the user may have got a number."""
    notes: tuple[str, ...]
    """Sentences for the user."""


def submit(
    bucket: Bucket, provider: Provider, ssh: Ssh, plan: SubmitPlan, report: bundles.Report | None = None
) -> Submission:
    """Write the run and its attempt, and start the script on every worker that runs it.

    Nothing is written before everything is read that can refuse it. Raises ConflictError when the name is
    taken. Any failure after that gives the run a verdict, so that nobody waits for it, and stops the workers
    that had started: "failed", unless its node was preempted, deleted or maintained meanwhile, which is the
    error then. So does Ctrl-C until every worker has started: InterruptedByUser.
    """
    host_keys = read_host_keys(provider, plan)
    notes = store_code(bucket, plan.code, report)
    run, record = _create(bucket, plan)
    plan = replace(plan, run=record)
    notes += launch_values.keep(bucket.name, record, plan)
    try:
        _start(provider, ssh, plan, run, host_keys)
    except KeyboardInterrupt as interrupt:
        raise _interrupted(run, plan) from interrupt
    return Submission(record, tuple(notes))


def read_host_keys(provider: Provider, plan: SubmitPlan) -> Mapping[int, str]:
    """Return the published host keys of a plan's node; raises HostError without one of a worker."""
    host_keys = provider.host_keys(plan.node.id)
    for worker in plan.attempt.workers:
        published_key(plan.node, host_keys, worker)
    return host_keys


def store_code(bucket: Bucket, code: Bundle, report: bundles.Report | None) -> list[str]:
    """Write the code unless the bucket has it, and return sentences for the user."""
    stored, is_same = _stored_bundle(bucket, code)
    return [] if is_same else _store(bucket, code, stored, report)


def _start(
    provider: Provider, ssh: Ssh, plan: SubmitPlan, run: StoredRun, host_keys: Mapping[int, str]
) -> None:
    attempt = signed(plan.attempt, login=ssh.user)
    if plan.takes_turn:
        take_turn(run, plan)
    try:
        run.create_attempt(attempt)
    except ConflictError:
        raise  # another process has made this attempt: how it ends is not for us to say
    except TpuctlError as error:
        _fail(run, plan, attempt, error)
        raise
    launch_attempt(provider, ssh, plan, run, attempt, host_keys)


def launch_attempt(
    provider: Provider, ssh: Ssh, plan: SubmitPlan, run: StoredRun, attempt: Attempt,
    host_keys: Mapping[int, str], *, goes_on: bool = False,
) -> None:  # fmt: skip
    """Start the program on every worker of an attempt; a failure is the run's verdict.

    `goes_on` continues a launch that was killed: its workers get the same secret, and none starts twice.
    """
    bucket = run.bucket.name
    key = ssh.derived_key(f"{bucket}/{run.name}/{attempt.attempt}/{attempt.token}")
    start = replace(plan.launch, restarts=resumption.restarts_left(plan.run, ()))
    every = specs(bucket, plan.run, attempt, start, plan.code.content.size, key)
    await_end = cache(lambda: _await_end(provider, run, attempt))

    def end_left() -> None:
        """Ask workers that SSH does not reach, and that may have started, to stop."""
        if await_end() is None:
            with suppress(TpuctlError):  # as in `_fail`
                cancel.ask(run, plan.run.submitter, grace=0)

    try:
        with LaunchSign(run, attempt.attempt, first=0.0 if goes_on else launch_sign.FIRST):
            launch.launch_all(ssh, plan.node, host_keys, every, goes_on=goes_on, on_left=end_left)
    except TpuctlError as error:
        if isinstance(error, BusyHostError) and error.is_whole:
            run.withdraw(attempt)
            raise
        is_silent = isinstance(error, HostError) and not isinstance(error, launch.RefusedStartError)
        verdict = _fail(run, plan, attempt, error, await_end() if is_silent else None)
        ended = error_of(verdict) if verdict and verdict.outcome != runs.FAILED else None
        if ended is None:
            raise
        ended.facts["run"] = run.name
        raise ended from error


def _await_end(provider: Provider, run: StoredRun, attempt: Attempt) -> Ending | None:
    """Return how the node of hosts that do not answer has ended, which may take a while to be seen.

    None where it is there, and was not maintained, and where nobody says so.
    """
    witnesses, node, since = Witnesses(provider), attempt.tpu.id, run.bucket.now()

    def look() -> Ending | None:
        return decision.by_node((), witnesses.node(run.bucket, node))

    try:
        return poll(look, awaiting="the node's end", timeout=decision.NODE_STATE_DELAY, backoff=LOOKS)
    except TpuctlError:
        began = witnesses.maintenance(node, since)
    evidence = f"the provider began maintenance of its node at {began}"
    return Ending(runs.MAINTENANCE, evidence, runs.BY_MACHINE) if began else None


def _interrupted(run: StoredRun, plan: SubmitPlan) -> InterruptedByUser:
    """Ask the workers that have started to stop; those that start later read it, too."""
    try:
        cancel.ask(run, plan.run.submitter, grace=0)
        ending = "; workers that have started end within 10 s"
    except TpuctlError as error:
        ending = f" as far as is known: {error.message}"
    return InterruptedByUser(
        f"Interrupted; run '{run.name}' is not started{ending}.",
        hint=f"'tpuctl wait {run.name}' shows how it ends; submit it again under another name.",
    )


def _create(bucket: Bucket, plan: SubmitPlan) -> tuple[StoredRun, Run]:
    """Write the run's record with a token of this submit; of two equal ones at once one owns the name.

    A name that the user did not choose gets a number when it is taken.
    """
    names = [plan.run.run]
    if not plan.is_named:
        names += [f"{plan.run.run}-{number}" for number in range(2, MOST_NUMBERED + 1)]
    for name in names:
        run, record = StoredRun(bucket, name), signed(plan.run, run=name)
        try:
            run.create(record)
        except ConflictError:
            if name == names[-1]:
                raise
        else:
            return run, record
    raise AssertionError("there is a name")


def signed(record: Record, **changes: object) -> Record:
    """Return a record with a random token: equal bytes are not taken for one's own write then."""
    return msgspec.structs.replace(record, token=secrets.token_hex(16), **changes)


def requests(bucket: Bucket, plan: SubmitPlan) -> list[HttpRequest]:
    """Return the requests that `submit` would send, for --dry-run; sends reads only."""
    rehearsal = bucket.dry_run()
    stored, is_same = _stored_bundle(bucket, plan.code)
    if not is_same:
        write = _send if plan.code.content.size > bundles.IN_MEMORY else _store
        write(rehearsal, plan.code, stored)
    run = StoredRun(rehearsal, plan.run.run)
    run.create(plan.run)
    run.create_attempt(plan.attempt)
    hosts = f"{plan.node.name} {named(plan.attempt.workers)}"
    return [*rehearsal.requests, HttpRequest("SSH", hosts, f"start {plan.run.script}")]


def _stored_bundle(bucket: Bucket, code: Bundle) -> tuple[Object | None, bool]:
    """Return the object of a bundle's name, and whether it has the bundle's bytes.

    They are hashed: a checksum as short as that in a listing can be met by other bytes.
    """
    name = bundle(code.sha256)
    stored = bucket.stat(name)
    if stored is None or stored.content != code.content:
        return stored, False
    digest, stream = hashlib.sha256(), bucket.stream(stored, bundles.PART)
    while part := stream.read(bundles.PART):
        digest.update(part)
    return stored, digest.hexdigest() == code.sha256


def _store(
    bucket: Bucket, code: Bundle, stored: Object | None, report: bundles.Report | None = None
) -> list[str]:
    """Write a bundle over what the bucket has, and return a note if these were other bytes."""
    name = bundle(code.sha256)
    try:
        if code.content.size > bundles.IN_MEMORY:
            _stream(bucket, code, stored, report)
        elif stored is None:
            bucket.create(name, code.data, _KIND)
        else:
            bucket.replace(stored, code.data, _KIND)
    except ConflictError:
        stored, is_same = _stored_bundle(bucket, code)
        if not is_same:  # else another submit has just stored the same code
            raise
        return []
    return [_REPLACED.format(place=gs(bucket.name, name))] if stored else []


def _stream(bucket: Bucket, code: Bundle, stored: Object | None, report: bundles.Report | None) -> None:
    """Write a large bundle in flat memory; raises ConflictError for one that arrived changed."""
    written = _send(bucket, code, stored, report)
    if written.content != code.content:
        bucket.remove(written)
        raise ConflictError(
            f"{gs(bucket.name, written.name)} did not arrive as it was sent.", hint="Submit it again."
        )


def _send(
    bucket: Bucket, code: Bundle, stored: Object | None, report: bundles.Report | None = None
) -> Object:
    write = bucket.upload if stored else bucket.add
    return write(bundle(code.sha256), _reported(code, report), _KIND, 2 * bundles.PART)


def _reported(code: Bundle, report: bundles.Report | None) -> Iterator[bytes]:
    sent = 0
    for chunk in code.chunks():
        yield chunk
        sent += len(chunk)
        if report:
            report("MB of code sent", sent // 1_000_000, code.content.size // 1_000_000)


_KIND = "application/gzip"
_REPLACED = "Warning: {place} did not hold the code that it is named by. The code was written again."


def _fail(
    run: StoredRun, plan: SubmitPlan, attempt: Attempt, error: TpuctlError, ending: Ending | None = None
) -> Verdict | None:
    """Write that a run could not be started, or how its node ended; return what the bucket holds then.

    None where the bucket cannot be reached: the error that ended the launch says more.
    """
    reason = masked(f"it could not be started: {error.message}", plan.secrets)
    outcome, evidence = runs.FAILED, reason
    if ending:
        outcome, evidence = ending.outcome, f"{ending.evidence}; {reason}"
    try:
        verdict = unstarted_verdict(run, attempt, outcome, evidence, begun="")
        return run.end(with_restart(run, verdict) if ending else verdict)
    except TpuctlError:
        return None
