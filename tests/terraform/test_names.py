"""Tests without terraform: names against the catalogue, the README's tables."""

from __future__ import annotations

import json

from tests.terraform import module_names, readme_tables
from tests.terraform.workbench import SOURCE


def test_roles_apis_permissions_accelerators_zones_and_runtimes_exist() -> None:
    assert list(module_names.unknown(SOURCE)) == []


def test_the_lists_of_names_are_sorted_and_say_where_they_come_from() -> None:
    catalogued = json.loads(module_names.CATALOGUE.read_text())
    assert catalogued["source"]
    for kind in module_names.NAMED:
        assert catalogued[kind] == sorted(set(catalogued[kind]))


def test_the_tables_of_the_readme_are_those_of_the_module() -> None:
    assert readme_tables.updated(SOURCE) == (SOURCE / "README.md").read_text()
