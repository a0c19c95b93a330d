"""Every call of a member's way is in the table, and what the table says is granted is granted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult
from tests.sim.iam.rehearsal import COMPLETE, MINIMAL, PROJECT, RECORDED, Example, start
from tests.terraform.plans import record
from tests.terraform.rights.table import README, Row, not_granted, rows, updated
from tpuctl.bucket_layout import RunPaths
from tpuctl.cloud.error_mapping import Failure, explain
from tpuctl.cloud.iap.frames import ROLE as IAP_ROLE
from tpuctl.cloud.tpu.error_mapping import SERVICE
from tpuctl.sim.iam.callers import Caller
from tpuctl.sim.iam.conditions import Condition
from tpuctl.sim.iam.enforcement import Binding, Resource, TerraformState, bucket_bindings, read_state
from tpuctl.sim.iam.roles import includes, permissions_of
from tpuctl.sim.json_values import JsonObject

HOST = f"serviceAccount:{MINIMAL.account}"
WHO = {MINIMAL.member: "member", HOST: "host"}
JOB = (
    '# /// script\n# dependencies = []\n# ///\nimport os, pathlib\nprint(os.environ["TPUCTL_DATA_DIR"])\n'
    'print("trained")\n'
)
WALK = (
    "doctor",
    "zones v3-8",
    "price v3-8",
    "data upload words words.csv",
    "data ls",
    "data describe words",
    "up v3-8 --name n1 --ttl 8h --yes",
    "ls",
    "extend n1 1h",
    "exec n1 -- true",
    "submit job.py --tpu n1 --dataset words --name r1",
    "wait r1 --timeout 5m",
    "logs r1",
    "describe r1",
    "runs",
    "pull r1 --to out",
    "why n1",
    "stop n1 --yes",
    "start n1 --yes",
    "drill n1 --yes",
    "down n1 --yes",
    "up v3-8 --name q1 --queued --yes",
    "submit job.py --tpu q1 --dataset words --name r2",
    "cancel r2 --grace 0s --yes",
    "down q1 --yes",
    "data rm words --yes",
)
"""Commands of tpuctl, in the order in which a member types them."""


@contextmanager
def recorded_permissions(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[tuple[str, str]]]:
    """Yield who was asked for which permission: Google has no list of calls that one could read instead."""
    asked: set[tuple[str, str]] = set()
    may = Caller.may

    def noted(caller: Caller, permission: str, resource: Resource) -> bool:
        asked.add((WHO.get(caller.member, caller.member), permission))
        return may(caller, permission, resource)

    monkeypatch.setattr(Caller, "may", noted)
    yield asked


def walk(
    tpuctl: Callable[..., CommandResult], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> set[tuple[str, str]]:
    """Do all of it on hosts without external addresses; return who needed which permission."""
    for name, value in (("EXTERNAL_IPS", "no"), ("NETWORK", "tpuctl"), ("SUBNETWORK", "tpuctl-europe-west4")):
        monkeypatch.setenv(f"TPUCTL_{name}", value)
    Path("words.csv").write_text("word,length\nant,3\nbear,4\n" * 20)
    Path("job.py").write_text(JOB)
    with recorded_permissions(monkeypatch) as asked:
        simulator = start(monkeypatch, folder, MINIMAL)
        try:
            for line in WALK:
                result = tpuctl(*line.split())
                assert result.code == 0, (line, result.out, result.err)
            assert list(simulator.events.find(service="iap", what="connect")), "hosts are reached through IAP"
        finally:
            simulator.close()
    return asked


PERMISSION_DENIED = 7
NAMES = {MINIMAL: "tpuctl", COMPLETE: "vision_team"}
NOT_SIMULATED = {
    # https://cloud.google.com/iam/docs/roles-permissions: what these roles are for
    "roles/logging.logWriter": ("logging.logEntries.create",),
    "roles/monitoring.metricWriter": ("monitoring.timeSeries.create",),
    "roles/serviceusage.serviceUsageConsumer": ("serviceusage.services.use",),
}


def bindings(state: TerraformState, row: Row, example: Example) -> list[Binding]:
    """Return what the state grants on the resource of a row."""
    if row.on == "project":
        return state.policies.projects[PROJECT]
    if row.on == "TPU account":
        return state.policies.accounts[example.account]
    bucket = {"bucket of runs": example.runs, "bucket of datasets": example.data}[row.on]
    documents: list[JsonObject] = state.bucket_policies[bucket]
    return list(bucket_bindings(json.dumps({"bindings": documents})))


@pytest.mark.parametrize("example", [MINIMAL, COMPLETE], ids=lambda example: example.name)
def test_the_base_grants_the_role_and_the_role_has_the_permission(example: Example) -> None:
    state = read_state(RECORDED / f"{example.name}-rights.json")
    for row in rows():
        member = example.member if row.who == "member" else f"serviceAccount:{example.account}"
        role = row.role
        if role.startswith("NAME_"):
            role = f"projects/{PROJECT}/roles/{NAMES[example]}{role.removeprefix('NAME')}"
        granted = [binding for binding in bindings(state, row, example) if member in binding.members]
        assert role in [binding.role for binding in granted], f"{row} is not granted"
        held = state.policies.roles.get(role) or NOT_SIMULATED.get(role) or permissions_of(role)
        assert includes(held, row.permission), f"{role} lacks {row.permission}"


@pytest.mark.slow
def test_a_members_way_needs_what_the_table_has_and_no_more(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tpuctl: Callable[..., CommandResult],
) -> None:
    asked = walk(tpuctl, monkeypatch, tmp_path)
    known = {(row.who, row.permission) for row in rows()}
    beside = {("member", permission) for permission in not_granted()}
    assert asked - known - beside == set(), "calls that the table lacks"
    walked = {(row.who, row.permission) for row in rows() if row.tested == "walk"}
    assert walked - asked == set(), "rows that no command needs"
    elsewhere = {row.tested for row in rows() if row.tested.endswith(".py")}
    assert all((README.parents[1] / path.rpartition(" ")[2]).is_file() for path in elsewhere)


def test_the_readme_has_the_rights_of_the_watcher() -> None:
    text = (
        README.read_text().partition("**What it calls, and so may call**")[2].partition("\n\nIt reads no")[0]
    )
    granted = [
        lines
        for name, lines in record.of_plan("watch").items()
        if re.match(r"google_\w+_iam_member\.watch(_overwrite)?\[", name)
    ]
    roles = {str(lines["role"]) for lines in granted if str(lines["role"]).startswith("roles/")}
    assert {f"roles/{role}" for role in re.findall(r": `([a-zA-Z.]+\.[a-zA-Z]+)`", text)} == roles
    overwritten = [
        Condition.parse(str(lines["condition[0].expression"]))
        for lines in granted
        if str(lines["role"]).endswith("_watch_overwrite")
    ]
    run = RunPaths("RUN")
    objects = [
        run.record, run.verdict, run.notes, run.stop, run.results, f"{run.outputs}results.json",
        run.attempt(1), run.attempt_verdict(1), run.launch(1), run.lease(1), run.status(1, 0),
    ]  # fmt: skip
    place = f"projects/_/buckets/{MINIMAL.runs}/objects/"
    allowed = [
        name
        for name in objects
        if any(condition.holds({"resource.name": place + name}) for condition in overwritten)
    ]
    assert sorted(re.findall(r"`(runs/RUN/[^`]+)`", text)) == sorted(
        name.replace("/1/", "/K/") for name in allowed
    )


def test_the_readme_has_the_table() -> None:
    assert README.read_text() == updated(), "run python -m tests.terraform.rights.table"


def test_a_403_names_the_role_that_this_base_grants() -> None:
    for permission, role in {row.permission: row.role for row in rows() if row.who == "member"}.items():
        if permission.startswith("iap."):
            assert role == IAP_ROLE, permission
            continue
        message = f"Required '{permission}' permission for 'projects/p'. Permission '{permission}' denied"
        error = explain(Failure(SERVICE, "The nodes", PERMISSION_DENIED, message))
        assert role in error.hint, permission
