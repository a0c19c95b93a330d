"""Lists everything that was asked of one run and is known of it, each fact with where it is from."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

from tpuctl import clock, durations, runs
from tpuctl.bucket_layout import bundle, gs
from tpuctl.bucket_objects import BadObjectError
from tpuctl.display import Fact
from tpuctl.errors import NotFoundError, TpuctlError
from tpuctl.flows.runs.attempt_costs import AttemptCost, PriceOf, RunCosts, cost, known_costs, total
from tpuctl.flows.runs.evidence.decision import WorkerWord
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.metrics import known_metrics
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.state import RunState, steps_lost, unstarted_label, unstarted_reason
from tpuctl.flows.runs.stored_attempt import StoredAttempt, age_of, find_record
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import RUNNING, UNKNOWN, WorkerStatus, read_stop
from tpuctl.printable import named
from tpuctl.runs import Run, Verdict
from tpuctl.upkeep import REMOVAL_TYPE

if TYPE_CHECKING:
    from tpuctl.cloud.storage import Bucket


LARGEST_STOP = 64 << 10
"""Bytes of a request to stop."""
NAMES = "names only; values are not shown"


def find_described(bucket: Bucket, name: str) -> StoredRun | None:
    """Return the run of this name; None without one, also where no run can have the name."""
    if not runs.NAME.fullmatch(name):
        return None
    run = StoredRun(bucket, name)
    item = bucket.stat(run.paths.record)
    if item and item.content_type == REMOVAL_TYPE:
        raise run.being_removed()
    return run if item else None


class RunDescription:
    """What is known of a run now."""

    def __init__(self, run: StoredRun, witnesses: Witnesses, price_of: PriceOf) -> None:
        """Settle how the run ended, if that can be decided now; raises tpuctl's errors."""
        self.run = run
        self._price_of = price_of
        self.state: RunState | None
        try:
            self.state = settle(run, witnesses)
        except NotFoundError:
            self.state = None

    @property
    def verdict(self) -> Verdict | None:
        """How it ended, if it has."""
        return self.state.verdict if self.state else None

    @property
    def label(self) -> str:
        """Its state in a word, as `runs` shows it."""
        return self.state.label if self.state else unstarted_label(self._age)

    @cached_property
    def _age(self) -> float:
        """Seconds since it was recorded, by the bucket's clock."""
        return age_of(self.run.bucket.stat(self.run.paths.record), self.run.bucket.now())

    def facts(self) -> Iterator[Fact]:
        """Yield every fact; an object that is no record is a fact, too."""
        yield Fact("run", self.run.name, "bucket")
        yield Fact("folder", self._object(self.run.paths.folder), "bucket")
        try:
            yield from self._asked(self.run.record)
        except BadObjectError as error:
            yield Fact("request", f"unknown: {error.message}", "run.json")
        yield from self._notes()
        yield from self._end()
        yield from self._stop()
        for number in self.run.attempt_numbers(self.verdict):
            yield from self._attempt(self.run.attempt(number))
        yield from self._workers()
        for name, folder in (
            ("checkpoints", self.run.paths.checkpoints),
            ("outputs", self.run.paths.outputs),
        ):
            count = len(self.run.bucket.objects(folder, most=1))
            yield Fact(name, self._object(folder) if count else "none yet", "bucket")
        yield from known_metrics(self.run.bucket, self.run.name).facts()
        yield from self._cost()

    def _object(self, name: str) -> str:
        return gs(self.run.bucket.name, name)

    def _asked(self, record: Run) -> Iterator[Fact]:
        source = "run.json"
        values = {
            "submitted by": record.submitter,
            "submitted at": f"{record.created}, by the clock of that machine",
            "command": shlex.join(record.command),
            "repeats": record.origin,
            "seeds": ", ".join(f"{name} {value}" for name, value in record.seeds.items()),
            "bundle": self._object(bundle(record.bundle_sha256)),
            "git commit": f"{record.git.commit}{', with changes' * bool(record.git.diff)}"
            if record.git
            else "",
            "dataset": str(record.dataset or ""),
            "framework": record.framework,
            "accelerator": record.accelerator,
            "requires Python": record.python or record.requires_python,
            "dependencies": ", ".join(record.dependencies),
            "listed in": record.listed_in,
            "lock file": record.requirements,
            "setup": record.setup,
        }
        yield from (Fact(name, value, source) for name, value in values.items() if value)
        yield from self._policy(record)
        if record.environment:
            yield Fact("environment", ", ".join(sorted(record.environment)), f"{source}, {NAMES}")

    def _notes(self) -> Iterator[Fact]:
        try:
            notes = self.run.notes()
        except BadObjectError as error:
            yield Fact("tags", f"unknown: {error.message}", "notes.json")
            return
        if notes.tags:
            yield Fact("tags", notes.labels, "notes.json")
        for note in notes.notes:
            yield Fact("note", note.text, f"{note.by} at {note.at}")

    def _end(self) -> Iterator[Fact]:
        verdict = self.verdict
        if verdict is None:
            yield Fact("state", self.label, "workers" if self.state else "bucket")
            reason = self.state.reason if self.state else unstarted_reason(self.run.name, self._age)
            yield from [Fact("reason", reason, "machine" if self.state else "bucket")] if reason else []
            return
        source = f"verdict.json, said by {verdict.basis or 'an earlier version'}"
        values = {
            "state": verdict.outcome,
            "reason": verdict.evidence,
            "exit code": "" if verdict.exit_code is None else str(verdict.exit_code),
            "cause": verdict.cause,
            "last line": verdict.last_line,
            "stopped by": verdict.stopped_by,
            "ended": verdict.ended,
            "decided": verdict.decided,
        }
        yield from (Fact(name, value, source) for name, value in values.items() if value)

    def _stop(self) -> Iterator[Fact]:
        data = self.run.bucket.find(self.run.paths.stop, LARGEST_STOP)
        if data is None:
            return
        try:
            request = read_stop(data, self.run.name)
        except ValueError as error:
            yield Fact("asked to stop", f"unknown: {error}", "stop.json")
        else:
            words = f"by {request.by} at {request.requested}, with {request.grace} s to save"
            yield Fact("asked to stop", words, "stop.json")

    def _attempt(self, attempt: StoredAttempt) -> Iterator[Fact]:
        name, source = f"attempt {attempt.number}", f"attempts/{attempt.number}/attempt.json"
        try:
            record = attempt.record
        except TpuctlError as error:
            yield Fact(name, f"unknown: {error.message}", source)
            return
        tpu = record.tpu
        kind = f"{tpu.size}{', spot' * tpu.spot}, {tpu.runtime}"
        where = f"on {tpu.name} in {tpu.zone} ({kind}), {named(record.workers)}"
        yield Fact(name, f"{where}, started {record.created}", source)
        yield from self._attempt_end(attempt.number)

    def _attempt_end(self, number: int) -> Iterator[Fact]:
        """Yield how an attempt ended that another has followed, and how long nothing ran then."""
        name = self.run.paths.attempt_verdict(number)
        source = f"attempts/{number}/verdict.json"
        try:
            verdict = find_record(self.run.bucket, name, Verdict)
        except BadObjectError as error:
            yield Fact(f"end of attempt {number}", f"unknown: {error.message}", source)
            return
        if verdict is None:
            return
        ended = verdict.ended or verdict.decided
        yield Fact(f"end of attempt {number}", f"{verdict.outcome} at {ended}: {verdict.evidence}", source)
        if verdict.checkpoint:
            yield Fact("resumed from", verdict.checkpoint, f"{source}, the last committed checkpoint")
        item = self.run.bucket.stat(self.run.paths.attempt(number + 1))
        if item:
            gap = (clock.parse(item.updated) - clock.parse(ended)).total_seconds()
            yield Fact("gap", self._gap(number, max(0.0, gap)), f"until attempt {number + 1} was recorded")
            lost = steps_lost(self.run, verdict)
            yield Fact("steps lost", "unknown" if lost is None else str(lost), "log and checkpoint")

    def _gap(self, number: int, seconds: float) -> str:
        """Return how long nothing ran, with what that cost where the TPU stayed and billed on."""
        before, after = (self.run.attempt(each).record for each in (number, number + 1))
        if before.tpu.uid != after.tpu.uid:
            return f"{durations.text(seconds)}, on no TPU"
        price = before.price.price if before.price else self._price_of(before.tpu)
        return f"{durations.text(seconds)}, which cost {cost(price, seconds).short}"

    def _policy(self, record: Run) -> Iterator[Fact]:
        """Yield how often it is started again, and where."""
        machine, policy = record.machine, record.restarts
        if machine is None or not policy:
            return
        losses = "without end" if policy.after_loss is None else f"{policy.after_loss} times"
        price = f", at most {machine.max_price} per hour" if machine.max_price else ""
        places = ", ".join(machine.zones)
        text = f"{losses} after a loss, {policy.after_failure} times after a failure, in {places}{price}"
        yield Fact("restarts", text, "run.json")

    def _workers(self) -> Iterator[Fact]:
        """Yield what workers of the last attempt say; those that say the same share a line."""
        if self.state is None:
            return
        try:
            attempt = self.run.last_readable_attempt(self.verdict)
            words = attempt.words()
        except TpuctlError as error:
            yield Fact("workers", f"unknown: {error.message}", "bucket")
            return
        is_over = self.verdict is not None
        said = [(_said(word, is_over=is_over), word.worker) for word in words]
        described = sorted(said, key=lambda item: item[0])
        groups = [
            (text, [worker for _, worker in group])
            for text, group in groupby(described, lambda item: item[0])
        ]
        for text, workers in sorted(groups, key=lambda group: group[1]):
            yield Fact(named(workers), text, "status.json" if len(workers) == 1 else "their status.json")
        pieces = sum(word.status.log_chunks for word in words if word.status)
        yield Fact(
            "log",
            f"{pieces} pieces in {self._object(self.run.paths.ordered_logs(attempt.number))}",
            "workers",
        )

    def _cost(self) -> Iterator[Fact]:
        tpu = self.state.tpu if self.state else None
        item = self.run.bucket.stat(self.run.paths.record)
        if tpu is None or item is None:
            return
        verdict = self.verdict
        end = clock.parse(verdict.ended or verdict.decided) if verdict else self.run.bucket.now()
        seconds = max(0.0, (end - clock.parse(item.updated)).total_seconds())
        yield Fact("duration", durations.text(seconds), "bucket's clock, since it was submitted")
        costs = RunCosts(self.run, self._price_of, item.updated)
        yield from cost_facts(known_costs(costs, self.state, self.run.bucket.now()))


def _said(word: WorkerWord, *, is_over: bool) -> str:
    """Return what a worker wrote last, without what changes with each heartbeat.

    `is_over` says whether the run has ended.
    """
    status = word.status
    if status is None:
        return "has not written yet"
    if status.state == UNKNOWN:
        return "its status cannot be read"
    parts = [status.state, *_ending(status)]
    if not word.is_over and word.silence > 30:
        parts.append(f"silent for {word.silence:.0f} s")
    if is_over and not word.is_over:
        parts[0] = f"was {status.state}"
    elif status.state == RUNNING and status.pid:
        parts.append("the script runs")
    return ", ".join(parts)


def _ending(status: WorkerStatus) -> Iterator[str]:
    if status.signal:
        yield f"ended by {status.signal}"
    elif status.exit_code is not None:
        yield f"exit code {status.exit_code}"
    for words, value in (
        ("stopped by", status.stopped_by or status.stopped),
        ("cause:", status.cause),
        ("error:", status.error),
        ("last line:", status.tail),
    ):
        if value:
            yield f"{words} {value}"


def cost_facts(attempts: Sequence[AttemptCost]) -> Iterator[Fact]:
    """Yield time, price and cost of each attempt, then what is missing in the sum, and the sum."""
    for attempt in attempts:
        yield from _attempt_facts(attempt)
    spent, count = total(attempts), len(attempts)
    for reason in spent.reasons:
        yield Fact("not in the cost", reason, "bucket")
    yield Fact("cost", spent.short, f"estimate, of {count} attempt{'s' * (count != 1)}: docs/prices.md")


def _attempt_facts(attempt: AttemptCost) -> Iterator[Fact]:
    of = f"of attempt {attempt.attempt}"
    if attempt.seconds is not None:
        until = f" to {attempt.ended}" if attempt.ended else ", so far"
        when = f"{attempt.began}{until}" if attempt.began else "it never left the line of its node"
        yield Fact(f"time {of}", durations.text(attempt.seconds), when)
    price = attempt.price
    yield Fact(f"price per hour {of}", price.short if price.is_known else str(price), attempt.source)
    yield Fact(f"cost {of}", attempt.cost.rounded().short, "time and price")
