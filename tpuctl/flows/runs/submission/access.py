"""Lets our SSH key log in on the hosts of a submission: a node that another made does not know it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpuctl.flows.hosts.way_in import grant_access
from tpuctl.flows.progress import Report
from tpuctl.flows.runs.submission.plan import SubmitPlan
from tpuctl.nodes import HttpRequest, SshKey

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.ssh import Ssh


def admit(provider: Provider, ssh: Ssh, plan: SubmitPlan, report: Report) -> SubmitPlan:
    """Return the plan once every host lets our key log in; sends something only if one may not yet.

    Raises as `grant_access` does.
    """
    key = ssh.login_key()
    if provider.ssh_key_change(plan.node, key) is None:
        return plan
    return replace(plan, node=grant_access(provider, ssh, plan.node, key, report))


def requests(provider: Provider, plan: SubmitPlan, key: SshKey) -> list[HttpRequest]:
    """Return the request by which `admit` adds the key, for --dry-run."""
    change = provider.ssh_key_change(plan.node, key)
    return [provider.http_request(change)] if change else []
