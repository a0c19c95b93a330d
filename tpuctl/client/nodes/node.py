"""The handle of one TPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tpuctl.client.calls import Call, Stop
from tpuctl.client.context import Context
from tpuctl.client.nodes import changes, hosts, overview
from tpuctl.client.nodes.records import CommandResult, NodeInfo, WorkerResult
from tpuctl.client.records import FACTS, Fact, ProgressCallback
from tpuctl.client.spans import Span, length, seconds
from tpuctl.display.listing import Listing
from tpuctl.display.markup import record_html
from tpuctl.errors import NotFoundError
from tpuctl.flows.nodes.inventory import Allocation
from tpuctl.flows.remote.execution import Output
from tpuctl.flows.remote.output_places import OutputEnds
from tpuctl.flows.remote.workers import HostName, WorkerSet

if TYPE_CHECKING:
    from datetime import datetime

    from tpuctl.flows.remote.command import Results

OutputCallback = Callable[[int, str, bytes], None]
"""Takes a worker, `stdout` or `stderr`, and a piece of its output."""


class Node:
    """A TPU: one node, or a request for several slices. What may change is read anew when it is used."""

    name: str
    zone: str

    def __init__(self, context: Context, allocation: Allocation) -> None:
        self._context = context
        self.name = allocation.name
        self.zone = allocation.zone

    def __repr__(self) -> str:
        return f"<tpuctl.Node {self.name} in {self.zone}>"

    def _repr_html_(self) -> str:
        return record_html(self.info, f"Node {self.name}")

    @property
    def info(self) -> NodeInfo:
        """What is known of it; raises NotFoundError once it is gone."""
        known = overview.find(self._context, self.name, self.zone)
        records = overview.records_of(self._context, known)
        if not records:
            raise NotFoundError(f"There is no node '{self.name}'.")
        return records[0]

    @property
    def facts(self) -> Listing[Fact]:
        """Everything that is known of it, each fact with where it is from."""
        facts = overview.describe(self._context, self.name, self.zone).facts
        return Listing([Fact(each.name, each.value, each.source) for each in facts], "facts", FACTS)

    @property
    def state(self) -> str:
        """As the provider names it: `READY`."""
        return self.info.state

    def wait(
        self, *, timeout: Span | None = None, progress: ProgressCallback | None = None,
        stop: Stop | None = None,
    ) -> Node:  # fmt: skip
        """Return it once it is READY and its hosts answer over SSH; raises DeadlineError after `timeout`."""
        limit = float("inf") if timeout is None else seconds(timeout)
        with Call(progress, stop).running() as call:
            changes.await_ready(self._context, self.name, self.zone, limit, call.line)
        return self

    def exec(
        self, command: str | Sequence[str], *, workers: Sequence[int] = (), timeout: Span | None = None,
        output: OutputCallback | None = None, progress: ProgressCallback | None = None,
        stop: Stop | None = None,
    ) -> CommandResult:  # fmt: skip
        """Run a command on every worker at once, or on some; a text is a line for the login shell.

        An exit code is no error: see the result. Raises DeadlineError after `timeout`, once the command was
        ended on the hosts.
        """
        words = (command,) if isinstance(command, str) else tuple(command)
        selection = WorkerSet(tuple((worker, worker) for worker in workers))
        kept = OutputEnds()

        def take(piece: Output) -> None:
            kept.take(piece)
            if output:
                output(piece.worker, piece.stream, piece.data)

        with Call(progress, stop).running() as call:
            reached = hosts.find(self._context, HostName(self.name), selection, self.zone)
            reached = hosts.reach(self._context, reached, call.line)
            limit = None if timeout is None else seconds(timeout)
            results = hosts.execute(self._context, reached, words, take, limit)
        return _command_result(words, results, kept)

    def down(self, *, progress: ProgressCallback | None = None, stop: Stop | None = None) -> None:
        """Delete it, so that it stops billing."""
        with Call(progress, stop).running() as call:
            plan = changes.plan_down(self._context, [self.name], self.zone)
            changes.down(self._context, plan, call.line)

    def stop(self, *, progress: ProgressCallback | None = None, stop: Stop | None = None) -> Node:
        """Stop it, if it has one host: its chips stop billing, its disk stays and bills."""
        with Call(progress, stop).running() as call:
            plan = changes.plan_stop(self._context, self.name, self.zone)
            changes.stop(self._context, plan, call.line)
        return self

    def start(self, *, progress: ProgressCallback | None = None, stop: Stop | None = None) -> Node:
        """Start it after a stop, and return it once its host answers."""
        with Call(progress, stop).running() as call:
            plan = changes.plan_start(self._context, self.name, self.zone)
            changes.start(self._context, plan, call.line)
        return self

    def extend(self, by: Span) -> datetime:
        """Move the end of its `ttl`, and return the new end."""
        plan = changes.plan_extension(self._context, self.name, round(length(by)), self.zone)
        changes.extend(self._context, plan, lambda _: None)
        return plan.expires


def _command_result(words: tuple[str, ...], results: Results, kept: OutputEnds) -> CommandResult:
    workers = tuple(
        WorkerResult(
            end.worker,
            end.exit_code,
            kept.stream(end.worker, "stdout").text(),
            kept.stream(end.worker, "stderr").text(),
            end.error,
        )
        for end in results.ends
    )
    return CommandResult(results.node, words, workers)
