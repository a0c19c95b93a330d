"""Runs commands on the workers of a TPU, and copies files to and from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tpuctl.client.context import Context
from tpuctl.flows.hosts.ssh_access import patient_ssh
from tpuctl.flows.progress import Report
from tpuctl.flows.remote import copy as copy_flow
from tpuctl.flows.remote.command import Results, run_command
from tpuctl.flows.remote.copy_paths import CopyRequest
from tpuctl.flows.remote.execution import Output
from tpuctl.flows.remote.targets import Hosts, admission_requests, admit, find_hosts
from tpuctl.flows.remote.workers import HostName, WorkerSet, parse_host_name
from tpuctl.nodes import HttpRequest
from tpuctl.parallel import Result

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh


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
) -> Sequence[Result[int, copy_flow.Copied]]:
    """Copy to or from every worker at once."""
    return copy_flow.copy(_ssh(context, hosts), hosts, request, report)


def _ssh(context: Context, hosts: Hosts) -> Ssh:
    return patient_ssh(context.cloud.provider, context.cloud.ssh, hosts.node)
