"""The handle of one TPU.

- Runs commands on the workers of a TPU, and copies files to and from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tpuctl.client.context import Call, Context, Span, Stop, length, seconds
from tpuctl.client.nodes import changes, overview
from tpuctl.client.nodes.records import CommandResult, NodeInfo, WorkerResult
from tpuctl.client.records import FACTS, ProgressCallback
from tpuctl.display import Fact
from tpuctl.display.listing import Listing
from tpuctl.display.markup import record_html
from tpuctl.errors import NotFoundError
from tpuctl.flows.hosts.way_in import patient_ssh
from tpuctl.flows.nodes import lifetime, power
from tpuctl.flows.nodes.lookup import Allocation
from tpuctl.flows.progress import Report
from tpuctl.flows.remote import copy as copy_flow
from tpuctl.flows.remote.copy import CopyRequest
from tpuctl.flows.remote.execution import Output, OutputEnds, Results, run_command
from tpuctl.flows.remote.targets import (
    HostName,
    Hosts,
    WorkerSet,
    admission_requests,
    admit,
    find_hosts,
    parse_host_name,
)
from tpuctl.nodes import HttpRequest
from tpuctl.parallel import Result

if TYPE_CHECKING:
    from datetime import datetime

    from tpuctl.cloud.ssh import Ssh


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
        return Listing(facts, "facts", FACTS)

    @property
    def state(self) -> str:
        """As the provider names it: `READY`."""
        return self.info.state

    def wait(
        self,
        *,
        timeout: Span | None = None,
        progress: ProgressCallback | None = None,
        stop: Stop | None = None,
    ) -> Node:
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
            reached = find(self._context, HostName(self.name), selection, self.zone)
            reached = reach(self._context, reached, call.line)
            limit = None if timeout is None else seconds(timeout)
            results = execute(self._context, reached, words, take, limit)
        return _command_result(words, results, kept)

    def down(self, *, progress: ProgressCallback | None = None, stop: Stop | None = None) -> None:
        """Delete it, so that it stops billing."""
        with Call(progress, stop).running() as call:
            plan = changes.plan_down(self._context, [self.name], self.zone)
            changes.down(self._context, plan, call.line)

    def stop(self, *, progress: ProgressCallback | None = None, stop: Stop | None = None) -> Node:
        """Stop it, if it has one host: its chips stop billing, its disk stays and bills."""
        with Call(progress, stop).running() as call:
            plan = power.plan_stop(self._context.cloud.provider, self.name, self.zone)
            power.stop(self._context.cloud.provider, plan, call.line)
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
        lifetime.extend(self._context.cloud.provider, plan, lambda _: None)
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


def host_name(text: str) -> HostName:
    """Return what NAME or NAME@3 means; nothing, or `@3`, is the user's only node. Raises UsageError."""
    if text[:1] in ("", "@"):
        return HostName("", parse_host_name(f"_{text}").workers)
    return parse_host_name(text)


def find(context: Context, host: HostName, workers: WorkerSet, zone: str | None) -> Hosts:
    """Return the workers that are to be reached; sends reads only."""
    return find_hosts(context.cloud.provider, host.name, workers, context.owner, zone)


def admissions(context: Context, hosts: Hosts) -> list[HttpRequest]:
    """Return the requests by which `reach` changes something, for --dry-run."""
    cloud = context.cloud
    return admission_requests(cloud.provider, hosts.node, cloud.ssh.login_key())


def reach(context: Context, hosts: Hosts, report: Report) -> Hosts:
    """Return the hosts once our key logs in on them; sends something only if it does not yet."""
    cloud = context.cloud
    return admit(cloud.provider, cloud.ssh, hosts, cloud.ssh.login_key(), report)


def execute(
    context: Context,
    hosts: Hosts,
    words: Sequence[str],
    take: Callable[[Output], None],
    timeout: float | None,
) -> Results:
    """Run a command on every worker at once."""
    return run_command(_ssh(context, hosts), hosts, words, take, timeout)


def copy(
    context: Context, hosts: Hosts, request: CopyRequest, report: copy_flow.Progress
) -> Sequence[Result[int, copy_flow.CopyResult]]:
    """Copy to or from every worker at once."""
    return copy_flow.copy(_ssh(context, hosts), hosts, request, report)


def _ssh(context: Context, hosts: Hosts) -> Ssh:
    return patient_ssh(context.cloud.provider, context.cloud.ssh, hosts.node)
