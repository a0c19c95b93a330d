"""terraform/ with the real terraform: every check passes, from fmt to destroy."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from tests.running_simulator import CommandResult
from tests.terraform import applied_rights, checks, module_names
from tests.terraform.provider_schema import VERSIONS
from tests.terraform.workbench import EXAMPLES, Workbench

pytestmark = pytest.mark.slow

Make = Callable[[str], Workbench]
SETTINGS = {
    "project": "demo-project-1",
    "zone": "us-central2-b",
    "bucket": "demo-project-1-models",
    "data_bucket": "demo-project-1-pictures",
    "network": "vision-team",
    "subnetwork": "vision-team-us-central2",
    "subnetworks": {"us-central1": "vision-team-us-central1", "us-central2": "vision-team-us-central2"},
    "service_account": "vision-team-tpu@demo-project-1.iam.gserviceaccount.com",
    "external_ips": "no",
    "iap": "yes",
}
"""The settings that tpuctl reads from examples/complete."""


def test_every_file_is_formatted(workbench: Workbench) -> None:
    assert checks.fmt(workbench) == ""


@pytest.mark.parametrize("where", [".", *EXAMPLES])
@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_valid_at_both_ends_of_the_range_of_providers(
    make_workbench: Make, version: str, where: str
) -> None:
    assert checks.validate(where)(make_workbench(version)) == ""


@pytest.mark.parametrize("name", ["defaults", "access", "options", "reach", "validations", "watch"])
def test_its_own_tests_pass(workbench: Workbench, name: str) -> None:
    assert checks.test(name)(workbench) == ""


def test_a_team_applies_it_runs_tpuctl_init_plans_again_and_destroys_it(
    workbench: Workbench, tpuctl: Callable[..., CommandResult]
) -> None:
    complete = partial(workbench.run, "examples/complete")
    applied = complete("apply", "-auto-approve", "-no-color")
    assert applied.code == 0, applied.text

    every_output = complete("output", "-json").out
    recorded = json.loads((Path(__file__).parent / "recorded" / "complete.json").read_text())
    assert json.loads(every_output) == recorded, "tests on machines without terraform use this record"
    Path("all.json").write_text(every_output)
    Path("one.json").write_text(complete("output", "-json", "tpuctl").out)
    for source in ("all.json", "one.json", str(workbench.folder / "examples/complete")):
        init = tpuctl("init", "--from-terraform", source, "--force")
        assert init.code == 0, init.err
        assert msgspec.toml.decode(Path("tpuctl.toml").read_bytes()) == {**SETTINGS, "terraform": source}

    state = json.loads(complete("show", "-json").out)
    assert {kind for _, kind, _ in module_names.names_in_state(state)} == {"roles", "apis", "permissions"}
    assert module_names.unknown_in_state(state) == []

    second = complete("plan", "-detailed-exitcode", "-no-color")
    assert second.code == 0, second.text
    assert "No changes." in second.out

    destroyed = complete("destroy", "-auto-approve", "-no-color")
    assert destroyed.code == 0, destroyed.text
    assert complete("state", "list").out == ""


@pytest.mark.parametrize("example", applied_rights.EXAMPLES)
def test_the_simulator_enforces_what_was_applied(workbench: Workbench, example: str) -> None:
    """Rehearsals on machines without terraform use these records: tests/sim/iam, tests/cli/project."""
    rights, outputs = applied_rights.applied(workbench, example)
    recorded = applied_rights.RECORDED
    assert rights == json.loads((recorded / f"{example}-rights.json").read_text())
    assert outputs == json.loads((recorded / f"{example}.json").read_text())


def test_a_folder_in_which_nothing_was_applied_says_so(
    workbench: Workbench, tpuctl: Callable[..., CommandResult]
) -> None:
    init = tpuctl("init", "--from-terraform", str(workbench.folder / "examples/minimal"))
    assert init.code == 3
    assert "has no output 'tpuctl'" in init.err
    assert "terraform apply" in init.err


@pytest.mark.parametrize("example", ["minimal", "complete", "teams"])
def test_no_example_grants_anything_to_a_stranger(workbench: Workbench, example: str) -> None:
    """Who is not named by the person who applies it has no right in the project."""
    text = (workbench.folder / "examples" / example / "main.tf").read_text()
    assert "example.com" not in text


def test_without_members_the_person_who_applies_is_told_so(workbench: Workbench) -> None:
    planned = workbench.run("examples/minimal", "plan", "-no-color", "-var", "members=[]")
    assert planned.code == 0, planned.text
    assert (
        "members is empty: nobody is granted the use of TPUs, buckets and SSH, not even you" in planned.text
    )
    assert "iam_member.member[" not in planned.out
    named = workbench.run("examples/minimal", "plan", "-no-color")
    assert "members is empty" not in named.text


def test_region_and_zone_of_an_example_are_variables(workbench: Workbench) -> None:
    planned = workbench.run(
        "examples/minimal", "plan", "-no-color", "-var", "region=us-west4", "-var", "zone=us-west4-a"
    )
    assert planned.code == 0, planned.text
    assert "europe" not in planned.out.replace("Europe", "europe")
    assert '"us-west4-a"' in planned.out


def test_the_project_is_read_once_its_apis_are_on(workbench: Workbench) -> None:
    planned = workbench.run("examples/complete", "plan", "-no-color")
    assert planned.code == 0, planned.text
    reads = planned.text.partition("module.base.data.google_project.this[0] will be read during apply")[2]
    assert reads.startswith(" # (depends on a resource or a module with changes pending)")
