"""A simulator that enforces the roles of an applied example of terraform/."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.sim.iam.enforcement import enforcement

Tpuctl = Callable[..., CommandResult]
Start = Callable[..., RunningSimulator]
RECORDED = ROOT / "tests/terraform/recorded"
PROJECT = "demo-project-1"
ADA = "user:ada@example.com"
HEADER = """\
# /// script
# dependencies = {dependencies}
# [tool.tpuctl]
# accelerator = "v3-8"
# ///
"""


@dataclass(frozen=True)
class Example:
    """An applied example of terraform/, and its settings."""

    name: str
    member: str
    data: str
    runs: str
    account: str
    project: str = PROJECT


MINIMAL = Example(
    "minimal",
    ADA,
    f"{PROJECT}-tpuctl-data",
    f"{PROJECT}-tpuctl-runs",
    f"tpuctl-tpu@{PROJECT}.iam.gserviceaccount.com",
)
COMPLETE = Example(
    "complete",
    "group:vision@example.com",
    f"{PROJECT}-pictures",
    f"{PROJECT}-models",
    f"vision-team-tpu@{PROJECT}.iam.gserviceaccount.com",
)


def state_without(example: Example, dropped: Callable[[dict[str, Any]], bool], path: Path) -> Path:
    """Write the example's state without some resources, and return the file."""
    state = json.loads((RECORDED / f"{example.name}-rights.json").read_text())
    for module in state["values"]["root_module"]["child_modules"]:
        module["resources"] = [resource for resource in module["resources"] if not dropped(resource)]
    path.write_text(json.dumps(state))
    return path


def start(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    example: Example = MINIMAL,
    *,
    user: str | None = None,
    dropped: Callable[[dict[str, Any]], bool] = lambda resource: False,
    state: Path | None = None,
) -> RunningSimulator:
    """Start the simulator that commands find, and point them at the example's project.

    `dropped` tells which resources are missing from the state, and `state` is another one than the example's.
    """
    settings = {
        "TARGET": "sim",
        "PROJECT": example.project,
        "BUCKET": example.runs,
        "DATA_BUCKET": example.data,
        "SERVICE_ACCOUNT": example.account,
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"TPUCTL_{name}", value)
    state = state or state_without(example, dropped, folder / "iam.json")
    return RunningSimulator(folder / "state" / "sim", iam=enforcement(state, user or example.member))


def grant(kind: str, role: str, *, bucket: str = "", member: str = "") -> Callable[[dict[str, Any]], bool]:
    """Return a test for the resources that grant a role, of a member on a bucket where these are given."""

    def matches(resource: dict[str, Any]) -> bool:
        values = resource["values"]
        return (
            resource["type"] == kind
            and values["role"].endswith(role)
            and bucket in values.get("bucket", "")
            and member in values["member"]
        )

    return matches


def job(body: str, name: str = "job.py", *dependencies: str) -> str:
    """Write a job that requires packages, and return its path."""
    Path(name).write_text(HEADER.format(dependencies=json.dumps(dependencies)) + body)
    return name
