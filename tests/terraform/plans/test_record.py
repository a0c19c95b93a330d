"""The plans and files of terraform/ are as recorded; what is recorded can be read, and obeys the laws."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.terraform.laws import book
from tests.terraform.plans import record, stanzas
from tests.terraform.plans.planning import all_planned
from tests.terraform.plans.stanzas import Stanzas
from tests.terraform.plans.variations import OF_EXAMPLES, VARIATIONS
from tests.terraform.provider_schema import VERSIONS
from tests.terraform.workbench import SOURCE, Workbench

Make = Callable[..., Workbench]

BEFORE: Stanzas = {
    "google_compute_network.this": {"mtu": 8896, "name": "tpuctl"},
    'google_storage_bucket.this["a.b[0]"]': {
        "lifecycle_rule[0].action[0].type": "Delete",
        "labels": {"x": "y = z"},
    },
    "google_project_service.this": {},
}


@pytest.fixture(scope="module")
def plans(make_workbench: Make) -> dict[str, Stanzas]:
    return all_planned(make_workbench(VERSIONS[-1], foresees=True), VARIATIONS.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIATIONS)
def test_a_plan_is_as_recorded(plans: dict[str, Stanzas], name: str) -> None:
    problem = record.plan_compared(plans[name], VARIATIONS[name])
    assert not problem, problem


@pytest.mark.slow
def test_the_oldest_providers_plan_the_same(make_workbench: Make) -> None:
    for name, plan in all_planned(make_workbench(VERSIONS[0], foresees=True), OF_EXAMPLES).items():
        assert record.compared(record.of_plan(name), plan, name) == ""


def test_the_files_are_as_recorded() -> None:
    problem = record.files_compared(SOURCE)
    assert not problem, problem


@pytest.mark.parametrize("name", VARIATIONS)
def test_a_recorded_plan_obeys_the_laws(name: str) -> None:
    """Without terraform too."""
    assert record.of_plan(name), "there is no record: make accept-terraform"
    assert book.broken(record.of_plan(name), VARIATIONS[name].ssh_ranges) == []


def test_every_record_belongs_to_a_variation_or_a_folder() -> None:
    folders = {"plans": VARIATIONS, "files": record.FOLDERS}
    for folder, names in folders.items():
        assert {path.stem for path in (record.RECORDED / folder).iterdir()} == set(names)


def test_every_optional_part_is_on_in_a_record() -> None:
    """Each input of the module that has a default is set by a variation."""
    inputs = {
        name.split()[1] for name, lines in record.of_files("module").items() if name.startswith("variable ")
    }
    assert inputs == {name for variation in VARIATIONS.values() for name in variation.settings}


def test_a_record_is_read_as_it_was_written() -> None:
    assert stanzas.read(stanzas.text(BEFORE, "before")) == BEFORE
    now = {name: lines for name, lines in BEFORE.items() if "network" not in name} | {
        "output a": {"value": None}
    }
    written = stanzas.text(now, "now", BEFORE, "before")
    assert stanzas.read(written, BEFORE) == now
    assert "google_storage_bucket" not in written


def test_arguments_become_lines_and_again_arguments() -> None:
    values = {"allow": [{"ports": ["22"]}, {}], "labels": {"a.b": "c"}, "mtu": 0, "unset": None, "none": []}
    lines = stanzas.flat(values)
    assert lines == {"allow[0].ports": ["22"], "allow[1]": {}, "labels": {"a.b": "c"}, "mtu": 0}
    assert stanzas.nested(lines) == {"allow": [{"ports": ["22"]}, {}], "labels": {"a.b": "c"}, "mtu": 0}


def test_a_difference_names_the_resource_the_lines_and_the_command() -> None:
    now = {**BEFORE, "google_compute_network.this": {"mtu": 1460, "name": "tpuctl"}, "output a": {"value": 1}}
    del now["google_project_service.this"]
    assert record.compared(BEFORE, now, "the plan x").splitlines() == [
        "the plan x is not as recorded:",
        "google_compute_network.this differs:",
        "  - mtu = 8896",
        "  + mtu = 1460",
        "google_project_service.this is gone",
        "output a is new:",
        "  + value = 1",
        record.HOW_TO_ACCEPT,
    ]
    assert record.compared(BEFORE, dict(BEFORE), "the plan x") == ""


def test_what_breaks_no_law_is_accepted_and_what_breaks_one_is_not(make_workbench: Make, tmp_path) -> None:
    bench = make_workbench(VERSIONS[-1], foresees=True)
    plain = VARIATIONS["plain"]
    assert record.accept_plans(bench, [plain], tmp_path) == []
    written = (tmp_path / "plans" / "plain.txt").read_text()
    assert written == (record.RECORDED / "plans" / "plain.txt").read_text()

    with bench.changed("network.tf", "mtu                     = var.mtu", "mtu                     = 1500"):
        assert record.accept_plans(bench, [plain], tmp_path) == []
    assert "  mtu = 1500\n" in (tmp_path / "plans" / "plain.txt").read_text()

    (tmp_path / "plans" / "plain.txt").write_text("as it was")
    with bench.changed("network.tf", '["35.235.240.0/20"]', '["0.0.0.0/0"]'):
        (open_ingress, ssh) = record.accept_plans(bench, [plain], tmp_path)
    assert "lets in 0.0.0.0/0, a wide part of the internet" in open_ingress
    assert "opens port 22 to 0.0.0.0/0" in ssh
    assert (tmp_path / "plans" / "plain.txt").read_text() == "as it was"
