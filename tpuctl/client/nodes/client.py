"""The part of the client that is about TPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from tpuctl.client.context import Call, Context, Span, Stop, seconds
from tpuctl.client.nodes import changes, creation, node, overview
from tpuctl.client.nodes.creation import DownPlan, NodeOptions, NodePlan
from tpuctl.client.nodes.node import Node, OutputCallback
from tpuctl.client.nodes.records import CommandResult, NodeInfo, PathLike
from tpuctl.client.options import check_least, check_options
from tpuctl.client.records import Progress, ProgressCallback
from tpuctl.display.listing import Listing
from tpuctl.flows.nodes.lookup import find_decided
from tpuctl.flows.remote.copy import CopyResult, parse_copy
from tpuctl.flows.remote.targets import WorkerSet
from tpuctl.parallel import values


class NodeClient:
    """Creates, finds, uses and deletes TPUs."""

    _context: Context

    def up(
        self,
        accelerator: str | None = None,
        *,
        progress: ProgressCallback | None = None,
        stop: Stop | None = None,
        **options: Unpack[NodeOptions],
    ) -> Node:
        """Create a TPU, or use the existing one of that name, and return it once every host answers over SSH.

        It bills from then on. A call that is stopped, or whose zone has no capacity, says in its error what
        may bill. Raises StockoutError, QuotaError, PreemptedError, HostError, DeadlineError, UsageError for
        options that no zone offers, and ConfigError where only gcloud's own file names the project.
        """
        self._context.require_chosen_project()
        with Call(progress, stop).running() as call:
            plan = self._planned(accelerator, options)
            return Node(self._context, creation.create(self._context, plan._plan, call.line))

    def plan_up(self, accelerator: str | None = None, **options: Unpack[NodeOptions]) -> NodePlan:
        """Return what `up` would do, and what that costs; sends reads only."""
        return self._planned(accelerator, options)

    def _planned(self, accelerator: str | None, options: NodeOptions) -> NodePlan:
        check_options(options, NodeOptions)
        check_least("slices", options.get("slices"), 1)
        made = creation.up_options(self._context, accelerator, options)
        search = creation.search_of(
            self._context,
            made,
            tuple(options.get("zones", ())),
            race=options.get("race", False),
            wait=seconds(options.get("wait_capacity", 0)),
            detach=options.get("detach", False),
        )
        return NodePlan(
            self._context, creation.plan(self._context, made, creation.lifetime_of(options), search)
        )

    def nodes(self, *, all_users: bool = False) -> Listing[NodeInfo]:
        """Return your TPUs, and requests for TPUs that wait, in every zone or in that of the client.

        `all_users` adds those that tpuctl created for others. A zone that does not answer is a warning.
        """
        context = self._context
        seen = overview.every_overview(context, context.from_flag("zone"))
        for zone in seen.inventory.unreachable:
            context.warn(f"no answer from {zone}: what is there is not listed, and may bill.")
        return overview.listing(context, seen if all_users else overview.own(context, seen))

    def node(self, name: str) -> Node:
        """Return the TPU of this name; raises NotFoundError, or StateError where several have it."""
        zone = self._context.from_flag("zone")
        return Node(self._context, find_decided(self._context.cloud.provider, name, zone))

    def down(
        self,
        *names: str,
        all: bool = False,
        progress: ProgressCallback | None = None,
        stop: Stop | None = None,
    ) -> tuple[str, ...]:
        """Delete these TPUs, and return their names: without names your only one, with `all` all of yours.

        Yours are those that tpuctl created for you. Raises StateError without names where you have several.
        A list of names that may be empty is no way to delete some: check it first.
        """
        self._context.require_chosen_project()
        with Call(progress, stop).running() as call:
            return self.plan_down(*names, all=all)._delete(call.line)

    def plan_down(self, *names: str, all: bool = False) -> DownPlan:
        """Return what `down` would delete; sends reads only."""
        zone = self._context.from_flag("zone")
        return DownPlan(self._context, changes.plan_down(self._context, names, zone, everything=all))

    def exec(
        self, name: str, command: str | Sequence[str], *, workers: Sequence[int] = (),
        timeout: Span | None = None, output: OutputCallback | None = None,
        progress: ProgressCallback | None = None, stop: Stop | None = None,
    ) -> CommandResult:  # fmt: skip
        """Run a command on every worker of a TPU at once: as `node(name).exec` does."""
        return self.node(name).exec(
            command, workers=workers, timeout=timeout, output=output, progress=progress, stop=stop
        )

    def cp(
        self, sources: PathLike | Sequence[PathLike], destination: PathLike, *,
        workers: Sequence[int] = (), progress: ProgressCallback | None = None, stop: Stop | None = None,
    ) -> tuple[CopyResult, ...]:  # fmt: skip
        """Copy files and folders to every host of a TPU, or from every host into a folder each.

        Paths are those of the command line: `NAME:PATH` is a path on all workers of a TPU, `NAME@3:PATH` on
        worker 3. What is there with the same size, time and mode is not sent again. Raises the error of the
        first worker that failed.
        """
        listed = [sources] if isinstance(sources, PathLike) else list(sources)
        request = parse_copy([str(source) for source in listed], str(destination))
        zone = self._context.from_flag("zone")
        chosen = WorkerSet(tuple((worker, worker) for worker in workers))
        with Call(progress, stop).running() as call:
            reached = node.find(self._context, request.host, request.host.workers or chosen, zone)
            reached = node.reach(self._context, reached, call.line)

            def report(worker: int, size: int, total: int) -> None:
                text = f"worker {worker}: {size} of {total or 'unknown'} bytes"
                call.report(Progress(text, size, total or None, "bytes", worker))

            return tuple(values(node.copy(self._context, reached, request, report)))
