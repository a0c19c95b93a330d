"""The handle of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tpuctl.client.context import Call, Context, Span, Stop, length, seconds
from tpuctl.client.options import check_choices, check_least, check_texts, check_values
from tpuctl.client.records import FACTS, ProgressCallback
from tpuctl.client.runs import starting, steps, submission, upkeep
from tpuctl.client.runs.busy import Policy
from tpuctl.client.runs.records import AttemptInfo, LogLine, RunCopy, RunEnd
from tpuctl.display import Cost, Fact, cost_of
from tpuctl.display.listing import Listing
from tpuctl.display.markup import Metrics, record_html
from tpuctl.errors import NotFoundError, UsageError
from tpuctl.flows.runs.attempt_costs import NOT_ON_A_NODE, RunCosts, known_costs, total
from tpuctl.flows.runs.outcome import settle
from tpuctl.flows.runs.record.repetition import RepeatRequest
from tpuctl.flows.runs.state import unstarted_label
from tpuctl.flows.runs.stored_attempt import age_of
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.upkeep import collection
from tpuctl.upkeep import TagChange

if TYPE_CHECKING:
    from tpuctl.flows.runs.attempt_costs import AttemptCost
    from tpuctl.flows.runs.state import RunState
    from tpuctl.flows.runs.summaries import RunInfo

Part = Literal["checkpoints", "logs", "tensorboard", "outputs"]
"""A part of a run's files; its records are always fetched."""
ATTEMPTS = {
    "attempt": lambda attempt: attempt.number,
    "node": lambda attempt: attempt.node,
    "zone": lambda attempt: attempt.zone,
    "duration": lambda attempt: attempt.duration or "",
    "price per hour": lambda attempt: attempt.price_per_hour,
    "cost": lambda attempt: attempt.cost,
}


class Run:
    """A run in the bucket, which outlives its TPU. What may change is read anew when it is used."""

    name: str

    def __init__(self, context: Context, name: str) -> None:
        self._context = context
        self.name = name

    def __repr__(self) -> str:
        return f"<tpuctl.Run {self.name}>"

    def _repr_html_(self) -> str:
        return record_html(self.info, f"Run {self.name}")

    @property
    def _stored(self) -> StoredRun:
        return steps.named(self._context, self.name)

    @property
    def info(self) -> RunInfo:
        """One line about it; raises NotFoundError once it was removed."""
        from tpuctl.flows.runs.summaries import summary_of

        context = self._context
        bucket, witnesses = context.cloud.bucket, context.witnesses
        return summary_of(bucket, self.name, witnesses, context.warn, context.prices.of).info

    @property
    def state(self) -> str:
        """`queued`, `running`, `succeeded`, `failed`, ...: as 'tpuctl runs' shows it."""
        run = self._stored
        state = self._state(run)
        if state:
            return state.label
        record = run.bucket.stat(run.paths.record)
        if record is None:
            raise run.not_found()
        return unstarted_label(age_of(record, run.bucket.now()))

    @property
    def end(self) -> RunEnd | None:
        """How it ended; None while it goes on."""
        state = self._state(self._stored)
        if state and state.error:
            raise state.error
        return RunEnd._of(state.verdict) if state and state.verdict else None

    @property
    def attempts(self) -> Listing[AttemptInfo]:
        """Each start of it, with its time and cost."""
        return Listing(map(AttemptInfo._of, self._costs()), "attempts", ATTEMPTS)

    @property
    def cost(self) -> Cost:
        """What its attempts have cost so far, estimated."""
        costs = self._costs()
        return cost_of(total(costs).price.rounded() if costs else NOT_ON_A_NODE)

    def wait(
        self,
        *,
        timeout: Span | None = None,
        check: bool = False,
        progress: ProgressCallback | None = None,
        stop: Stop | None = None,
    ) -> RunEnd:
        """Return how it ended, once it has; with `check` raise the error of a run that did not succeed.

        One that is to be started again has ended for now, see `is_restarted`; `client.watch` starts it.
        Raises DeadlineError after `timeout`. The run goes on when this is stopped.
        """
        limit = float("inf") if timeout is None else seconds(timeout)
        with Call(progress, stop).running() as call:
            verdict = steps.await_end(self._context, self._stored, limit, call.line)
        end = RunEnd._of(verdict)
        if check and end.error:
            raise end.error
        return end

    def logs(
        self, *, follow: bool = False, workers: Sequence[int] | None = None, tail: int | None = None,
        since: Span | None = None, text: str = "", attempt: int | None = None, stop: Stop | None = None,
    ) -> Iterator[LogLine]:  # fmt: skip
        """Yield the lines of its log, all workers' merged; with `follow` those to come, until it ends.

        Begins with the last `tail` lines, or with those of the time `since`; only lines that have `text`.
        Also after its TPU was deleted. Nothing is read before the first line is asked for.
        """
        from tpuctl.client.runs.logs import log_lines

        check_least("tail", tail, 0)
        lines = log_lines(
            self._context, self._stored, follows=follow, workers=workers, tail=tail,
            since=None if since is None else length(since), text=text, number=attempt,
        )  # fmt: skip
        return Call(None, stop).each(lines)

    def follow(self, *, live: bool | None = None, stop: Stop | None = None) -> RunEnd:
        """Show its state, last metrics and log until it ends, and return how it ended.

        In a notebook one display is updated, elsewhere lines are printed; `live=False` prints lines in a
        notebook, too. An interrupt leaves the run going: raises InterruptedByUser.
        """
        from tpuctl.client.runs.following import Follower

        with Call(None, stop).running():
            return RunEnd._of(Follower(self._context, self._stored, live=live).to_end())

    def metrics(self) -> Metrics:
        """Return the curves that it has written for TensorBoard so far."""
        from tpuctl.flows.runs.metrics import read_curves  # protobuf is slow to import

        return read_curves(self._context.cloud.bucket, self.name)

    def pull(
        self, folder: str | Path | None = None, *, only: Sequence[Part] | None = None,
        step: int | None = None, latest: bool = False, unfinished: bool = False, follow: bool = False,
        progress: ProgressCallback | None = None, stop: Stop | None = None,
    ) -> RunCopy:  # fmt: skip
        """Download its committed checkpoints, logs and records into a folder, and verify them.

        By default into a folder of its name. `step` and `latest` select checkpoints, `only` parts, and
        `unfinished` adds checkpoints that are not complete. `follow` keeps the folder current until it ends.
        """
        from tpuctl.flows.runs.local_copy import PARTS, Selection

        check_choices("only", only or (), PARTS)
        if latest and step is not None:
            raise UsageError("latest and step exclude each other.", hint="Name the step, or take the newest.")
        selection = Selection(PARTS if only is None else frozenset(only), step, latest, unfinished)
        place = Path(self.name) if folder is None else Path(folder)
        with Call(progress, stop).running() as call:
            result, _ = steps.pull(
                self._context, self._stored, place, call.line, selection, call.count("bytes"), follow=follow
            )
        return RunCopy._of(self.name, result)

    def cancel(
        self,
        *,
        grace: Span = 30,
        force: bool = False,
        progress: ProgressCallback | None = None,
        stop: Stop | None = None,
    ) -> RunEnd:
        """Stop it on every host, and return how it ended; `grace` is the time to save. Its TPU stays.

        `force` kills the program that runs the script, for one that hangs; another one there ends the script.
        """
        with Call(progress, stop).running() as call:
            plan = steps.plan_cancel(self._context, self.name, seconds(grace), is_forced=force)
            result = steps.cancel(self._context, plan, call.line)
        return RunEnd._of(result.verdict)

    def resubmit(
        self, changes: Sequence[str] = (), *, name: str | None = None, node: str | None = None,
        replaces_arguments: bool = False, environment: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None, progress: ProgressCallback | None = None,
        stop: Stop | None = None,
    ) -> Run:  # fmt: skip
        """Start it again as a new run: the same code, arguments, packages, data and variables.

        `changes` are arguments that replace those of the same option or are added, or with
        `replaces_arguments` all arguments.
        """
        check_texts("changes", changes)
        check_values("environment", environment or {})
        check_values("secrets", secrets or {})
        self._context.require_chosen_project()
        hidden = dict(secrets or {})
        request = RepeatRequest(
            name, node, tuple(changes), replaces_arguments, {**(environment or {}), **hidden}, tuple(hidden)
        )
        with Call(progress, stop).running() as call:
            plan = submission.plan_again(self._context, self._stored, request)
            started = starting.start(self._context, plan, Policy(), ("resubmit", self.name), call)
        return Run(self._context, started)

    def tag(self, *tags: str) -> Mapping[str, str]:
        """Set tags, `KEY` or `KEY=VALUE`, or remove them, `KEY-`; return those that it has now."""
        return dict(collection.update(self._stored, collection.tagging(TagChange.parse(tags))).tags)

    def note(self, text: str) -> None:
        """Write a note about it; everybody may add one."""
        run = self._stored
        collection.update(run, upkeep.noting(self._context, run, text))

    def remove(self, *, progress: ProgressCallback | None = None, stop: Stop | None = None) -> None:
        """Remove it from the bucket: records, logs, checkpoints and outputs. Datasets and code stay.

        Raises StateError for one that goes on, or may.
        """
        with Call(progress, stop).running() as call:
            upkeep.remove(self._context, upkeep.plan_removals(self._context, [self._stored]), call.line)

    @property
    def facts(self) -> Listing[Fact]:
        """Everything that is known of it, each fact with where it is from."""
        facts = steps.describe(self._context, self._stored).facts()
        return Listing(facts, "facts", FACTS)

    def _state(self, run: StoredRun) -> RunState | None:
        """Return what is known of it; None without an attempt."""
        try:
            return settle(run, self._context.witnesses)
        except NotFoundError:
            return None

    def _costs(self) -> Sequence[AttemptCost]:
        context, run = self._context, self._stored
        record = run.bucket.stat(run.paths.record)
        if record is None:
            raise run.not_found()
        costs = RunCosts(run, context.prices.of, record.updated)
        return known_costs(costs, self._state(run), run.bucket.now())
