"""The part of the client that is about runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, get_args

from tpuctl import clock
from tpuctl.client.context import Call, Context, Span, Stop, length
from tpuctl.client.nodes.creation import NodeOptions
from tpuctl.client.options import (
    check_choices,
    check_least,
    check_list,
    check_options,
    check_texts,
    check_values,
)
from tpuctl.client.records import ProgressCallback
from tpuctl.client.runs import starting, steps
from tpuctl.client.runs.busy import Policy
from tpuctl.client.runs.plans import RunPlan, planned
from tpuctl.client.runs.records import (
    CostGroup,
    CostReport,
    LogCallback,
    RunCopy,
    RunEnd,
    RunResult,
)
from tpuctl.client.runs.requests import submit_request
from tpuctl.client.runs.run import Run
from tpuctl.display import cost_of
from tpuctl.display.listing import Listing
from tpuctl.flows.runs.evidence.witnesses import RecordMissingError
from tpuctl.flows.runs.state import LABELS
from tpuctl.flows.runs.submission.plan import SubmitRequest
from tpuctl.flows.runs.whole import new_name
from tpuctl.host.worker.records import COMMAND, MODULE
from tpuctl.masking import masked_arguments
from tpuctl.runs import SUCCEEDED, check_name
from tpuctl.shells import with_options
from tpuctl.upkeep import TagCondition

if TYPE_CHECKING:
    from tpuctl.flows.runs.recovery.lease import WatchEvent
    from tpuctl.flows.runs.summaries import RunInfo

COLUMNS: Mapping[str, Callable[[RunInfo], object]] = {
    "run": lambda run: run.name,
    "state": lambda run: run.state,
    "node": lambda run: run.node,
    "zone": lambda run: run.zone,
    "type": lambda run: run.accelerator,
    "dataset": lambda run: run.dataset,
    "submitted": lambda run: clock.iso(run.submitted),
    "duration": lambda run: timedelta(seconds=round(run.duration.total_seconds())),
    "cost": lambda run: run.cost,
    "reason": lambda run: "" if run.state == SUCCEEDED else run.reason,
}


class SubmitOptions(TypedDict, total=False):
    """The options of `submit` and `plan_submit`; what is left out is that of the script's header."""

    name: str
    """By default SCRIPT-DATE-TIME."""
    kind: Literal["module", "command"]
    """What `script` names, where it is no file: a module of the project, or a command."""
    root: str | Path
    """Folder of the project, which is sent whole; by default the nearest with pyproject.toml, setup.py,
    setup.cfg or .git."""
    framework: Literal["tensorflow", "jax", "pytorch"]
    node: str
    """By default your only READY one of the type."""
    accelerator: str
    dataset: str
    """NAME or NAME/VERSION."""
    include: Sequence[str | Path]
    """More files or folders, also such as .gitignore names."""
    environment: Mapping[str, str]
    """Variables of the script; values are not stored in the bucket."""
    secrets: Mapping[str, str]
    """Variables whose values no disk gets."""
    store_environment: Sequence[str]
    """Names of variables whose values the run's record gets, too."""
    python: str
    """Version of Python for the script, such as 3.12."""
    extras: Sequence[str]
    """Extras of the project's pyproject.toml that hosts install, too."""
    groups: Sequence[str]
    """Its dependency groups that hosts install, too."""
    indexes: Sequence[str]
    """URLs besides PyPI that packages may come from where the project's files say so."""
    wheelhouse: str | Path
    code_limit: int
    """Most bytes of the script's files."""
    setup: str
    """Command for sh that each host runs before the script."""
    setup_timeout: Span
    restarts: int | Literal["unlimited"]
    """How often it is started again after a preemption or a lost host: `client.watch` does so."""
    restarts_on_failure: int
    restart_zones: Sequence[str]
    max_price: str
    """Restart it only on a TPU that costs no more per hour."""
    busy: Literal["refuse", "queue", "replace"]
    """What to do about a TPU that is busy: by default refuse, with a StateError."""
    queue_timeout: Span


class RunClient:
    """Submits, finds and watches runs."""

    _context: Context

    def submit(
        self, script: str | Path, arguments: Sequence[str] = (), *,
        progress: ProgressCallback | None = None, stop: Stop | None = None, **options: Unpack[SubmitOptions],
    ) -> Run:  # fmt: skip
        """Copy a script with its project to a TPU and start it there, detached; return its run.

        Without a project, the modules that it imports from its folder are copied. Raises StateError where no
        TPU fits, or it is busy, and UsageError for a script that cannot run. A call that is stopped before
        every worker has started ends the run; later the run goes on.
        """
        self._context.require_chosen_project()
        with Call(progress, stop).running() as call:
            plan = self._planned_run(script, arguments, options, call)
            name = starting.start(self._context, plan._plan, plan._policy, plan._typed, call)
        return Run(self._context, name)

    def plan_submit(
        self, script: str | Path, arguments: Sequence[str] = (), **options: Unpack[SubmitOptions]
    ) -> RunPlan:
        """Return what `submit` would start, and where; sends reads only."""
        return self._planned_run(script, arguments, options, Call())

    def _planned_run(
        self, script: str | Path, arguments: Sequence[str], options: SubmitOptions, call: Call
    ) -> RunPlan:
        request, policy, words = self._requested(script, arguments, options)
        chosen = {"--name": request.name, "--tpu": request.tpu}
        typed = with_options(("submit", *words), {name: value for name, value in chosen.items() if value})
        return planned(self._context, request, policy, typed, call)

    def _requested(
        self, script: str | Path, arguments: Sequence[str], options: SubmitOptions
    ) -> tuple[SubmitRequest, Policy, tuple[str, ...]]:
        """Return what is to run, what to do about a busy TPU, and script and arguments as they are typed."""
        check_options(options, SubmitOptions)
        check_texts("arguments", arguments)
        check_values("environment", options.get("environment", {}))
        check_values("secrets", options.get("secrets", {}))
        request, policy = submit_request(self._context, script, tuple(arguments), options)
        path = f"./{script}" if str(script).startswith("-") else str(script)
        shown = masked_arguments(arguments).arguments
        if request.kind == COMMAND:
            return request, policy, ("--", path, *shown)
        words = ("-m", path) if request.kind == MODULE else (path,)
        return request, policy, (*words, *(("--", *shown) if shown else ()))

    def run_script(
        self, script: str | Path, arguments: Sequence[str] = (), *, up: str | Sequence[str] | None = None,
        down: bool = False, to: str | Path | None = None, machine: NodeOptions | None = None,
        log: LogCallback | None = None, progress: ProgressCallback | None = None, stop: Stop | None = None,
        **options: Unpack[SubmitOptions],
    ) -> RunResult:  # fmt: skip
        """Run a script from nothing to its results: create a TPU, submit, follow, pull, and delete the TPU.

        Each step is done unless it is done already: the same call with the same `name` resumes after a kill,
        from any machine. `up` has the types of the TPU to make, the first with capacity, or is empty for
        those of the script's header; without it a TPU that fits is used. `machine` has more options of a TPU
        that is made, and `down` deletes it at the end, also of a failure. Files go to `to`, by default a
        folder of the run's name, and lines to `log` as they come. The end may be a failure: see `end.error`.
        Raises what `up`, `submit` and `pull` raise; the error says what is still running, and what bills.
        """
        from tpuctl.client.runs import whole

        self._context.require_chosen_project()
        with Call(progress, stop).running() as call:
            request, policy, typed = self._requested(script, arguments, options)
            name = check_name(request.name) if request.name else new_name(request, clock.now())
            types = (up,) if isinstance(up, str) else up
            asked = whole.WholeRun(
                name, replace(request, name=name), whole.typed_words(typed, name, types, is_deleted=down),
                Path(to or name), types, *whole.of_machine(self._context, machine or {}),
                is_deleted=down, policy=policy, is_named=bool(request.name),
            )  # fmt: skip
            ending = whole.Steps(self._context, asked, whole.CallScreen(self._context, asked, call, log)).go()
        return RunResult(
            RunEnd._of(ending.verdict), RunCopy._of(name, ending.pulled), ending.deleted, ending.kept
        )

    def runs(
        self, *, states: Sequence[str] = (), datasets: Sequence[str] = (), since: Span | None = None,
        limit: int | None = 50, tags: Sequence[str] = (),
    ) -> Listing[RunInfo]:  # fmt: skip
        """Return the newest runs of everybody, oldest first; `limit=None` for all.

        Only those in one of `states`, with one of `datasets` (NAME or NAME/VERSION), submitted `since`, and
        with all `tags` (KEY or KEY=VALUE).
        """
        from tpuctl.flows.runs.summaries import Selection

        check_choices("states", states, LABELS)
        check_list("datasets", datasets)
        check_list("tags", tags)
        check_least("limit", limit, 0)
        selection = Selection(
            tuple(states),
            tuple(datasets),
            None if since is None else length(since),
            limit,
            [TagCondition.parse(tag) for tag in tags],
        )
        page = steps.page(self._context, selection)
        return Listing((run.info for run in page.runs), "runs", COLUMNS)

    def run(self, name: str | None = None) -> Run:
        """Return the run of this name, or your last one; raises NotFoundError."""
        stored = steps.find(self._context, name)
        try:
            stored.record  # noqa: B018  read for its error
        except RecordMissingError:
            pass  # it works, and can be stopped
        return Run(self._context, stored.name)

    def watch(
        self, *names: str, all: bool = False, once: bool = False, confirm: bool = False,
        environment: Mapping[str, str] | None = None, progress: ProgressCallback | None = None,
        stop: Stop | None = None,
    ) -> Iterator[WatchEvent]:  # fmt: skip
        """Start runs again that were preempted or lost, and yield what happens to each, until all have ended.

        Without names your only run that may be started again; with `all` all of yours, also those still to
        come, until it is stopped. `once` takes one step of each. `environment` has values that neither the
        bucket nor this machine has. `confirm` allows runs that were submitted elsewhere, as their records are
        now, which any job may write: without it they are refused with a ConfigError.
        """
        self._context.require_chosen_project()
        call = Call(progress, stop)
        tools = steps.tools(self._context, call.line, dict(environment or {}))
        stored = steps.to_watch(self._context, names, everything=all)
        for run in steps.unknown_runs(self._context, stored) if confirm else ():
            steps.confirm_restarts(self._context, run)
        events = steps.watched(self._context, stored, tools, once=once)
        return call.each(events)

    def cost(
        self, *, since: Span = timedelta(days=30), by: Literal["run", "node", "user", "label"] = "run"
    ) -> CostReport:
        """Estimate what runs have cost, and the time in which no run used a TPU: no bill."""
        from tpuctl.flows.costs.bills import By, grouped

        check_choices("by", [by], get_args(By))
        report = steps.costs(self._context, length(since))
        groups = tuple(
            CostGroup(
                group.key,
                group.attempts,
                timedelta(seconds=group.seconds),
                cost_of(group.total.price.rounded()),
            )
            for group in grouped(report.entries, by)
        )
        return CostReport(
            clock.parse(report.since),
            clock.parse(report.until),
            groups,
            cost_of(report.total.price.rounded()),
            tuple(report.gaps),
        )
