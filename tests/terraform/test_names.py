"""Tests without terraform: names against the catalogue, the README's tables."""

from __future__ import annotations

import json

import pytest

from tests.terraform import module_names, readme_tables
from tests.terraform.planted_mistakes import NAMES
from tests.terraform.workbench import SOURCE, Workbench


def test_roles_apis_permissions_accelerators_zones_and_runtimes_exist() -> None:
    assert list(module_names.unknown(SOURCE)) == []


@pytest.mark.parametrize(
    "mistake", [mistake for mistake in NAMES if mistake.check == "names"], ids=lambda mistake: mistake.name
)
def test_a_name_that_google_lacks_is_found(tmp_path, mistake) -> None:
    bench = Workbench(tmp_path, {})
    with bench.changed(mistake.file, mistake.old, mistake.new):
        assert mistake.message in "; ".join(module_names.unknown(bench.folder))


def test_the_lists_of_names_are_sorted_and_say_where_they_come_from() -> None:
    catalogued = json.loads(module_names.CATALOGUE.read_text())
    assert catalogued["source"]
    for kind in module_names.NAMED:
        assert catalogued[kind] == sorted(set(catalogued[kind]))


def test_the_tables_of_the_readme_are_those_of_the_module() -> None:
    assert readme_tables.updated(SOURCE) == (SOURCE / "README.md").read_text()
