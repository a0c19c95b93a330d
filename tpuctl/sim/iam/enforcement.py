"""What `sim start --iam` enforces: the policies that Terraform applied, and the user of the shell."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tpuctl.errors import UsageError
from tpuctl.sim.iam.policies import Binding, Policies
from tpuctl.sim.iam.roles import OWNER
from tpuctl.sim.iam.terraform_state import TerraformState, read_state

DEFAULT_USER = "user:owner@example.com"
"""The user of a simulated shell if no option names one: an owner of every project."""
MEMBER = re.compile(r"(user|group|serviceAccount):[^@:\s]+@[^@:\s]+")


@dataclass(frozen=True)
class Enforcement:
    """The policies to enforce, and as whom programs outside the hosts call."""

    state: TerraformState = field(default_factory=TerraformState)
    user: str = DEFAULT_USER

    def policies(self, projects: Iterable[str]) -> Policies:
        """Return the policies; the default user owns these projects and those of the state."""
        policies = self.state.policies
        in_state = (project for project, _ in self.state.buckets.values())
        for project in {*projects, *in_state, *policies.projects}:
            policies.projects[project].append(Binding(OWNER, (DEFAULT_USER,)))
        return policies


def enforcement(file: Path | None, user: str | None) -> Enforcement:
    """Return what options ask for; raises UsageError."""
    if user is not None and not MEMBER.fullmatch(user):
        raise UsageError(
            f"'{user}' names no account.", hint="Write user:E-MAIL, group:E-MAIL or serviceAccount:E-MAIL."
        )
    return Enforcement(read_state(file) if file else TerraformState(), user or DEFAULT_USER)
