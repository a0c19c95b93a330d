"""The providers' schema and rules: their source, and that they fit each other and the module.

Tests without terraform: names against the catalogue, the README's tables.
"""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.terraform import extract_schema, module_names, provider_schema, readme_tables
from tests.terraform.provider_rules import ALLOWED, AT_MOST_ONE, EXACTLY_ONE, PATTERNS, RANGES
from tests.terraform.provider_schema import VERSIONS
from tests.terraform.stand_in import LIKE_GOOGLE, PROVIDERS
from tests.terraform.workbench import SOURCE

USED = re.compile(r'^(resource|data) "(\w+)"', re.M)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schema_has_what_the_module_uses_and_nothing_else(version: str) -> None:
    used = {block for path in SOURCE.glob("*.tf") for block in USED.findall(path.read_text())}
    schemas = [provider_schema.load(provider, version) for provider in PROVIDERS]
    blocks = {("resource", name) for schema in schemas for name in schema.resources}
    blocks |= {("data", name) for schema in schemas for name in schema.data_sources}
    assert blocks == used


@pytest.mark.parametrize("version", VERSIONS)
def test_the_rules_are_about_attributes_that_the_schema_has(version: str) -> None:
    blocks = {}
    for provider in PROVIDERS:
        schema = provider_schema.load(provider, version)
        blocks |= schema.data_sources | schema.resources
    rules = (PATTERNS, ALLOWED, RANGES, LIKE_GOOGLE)
    paths = [(name, path) for table in rules for name in table for path in table[name]]
    for groups in (EXACTLY_ONE, AT_MOST_ONE):
        paths += [(name, path) for name, every in groups.items() for group in every for path in group]
    assert [(name, path) for name, path in paths if not has(blocks[name], path)] == []


def has(block: dict, path: str) -> bool:
    name, _, rest = path.partition(".")
    if rest:
        return name in block.get("block_types", {}) and has(block["block_types"][name]["block"], rest)
    return name in block.get("attributes", {}) or name in block.get("block_types", {})


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_schema_states_its_source_and_licence(provider: str, version: str) -> None:
    content = json.loads((provider_schema.FOLDER / f"{provider}-{version}.json").read_text())
    assert content["derived_from"].startswith(f"cdktn-provider-{provider} ")
    assert "MPL-2.0" in content["derived_from"]


@pytest.mark.slow
@pytest.mark.network
def test_each_schema_is_that_of_the_public_packages(tmp_path) -> None:
    """Downloads 240 MB from PyPI."""
    try:
        wheels = extract_schema.download(tmp_path)
    except subprocess.CalledProcessError:
        pytest.skip("PyPI cannot be reached: the schema is not compared with its source packages")
    for (provider, version), wheel in wheels.items():
        committed = (provider_schema.FOLDER / f"{provider}-{version}.json").read_text()
        assert extract_schema.rendered(extract_schema.extract(wheel, provider, version)) == committed


def test_roles_apis_permissions_accelerators_zones_and_runtimes_exist() -> None:
    assert list(module_names.unknown(SOURCE)) == []


def test_the_lists_of_names_are_sorted_and_say_where_they_come_from() -> None:
    catalogued = json.loads(module_names.CATALOGUE.read_text())
    assert catalogued["source"]
    for kind in module_names.NAMED:
        assert catalogued[kind] == sorted(set(catalogued[kind]))


def test_the_tables_of_the_readme_are_those_of_the_module() -> None:
    assert readme_tables.updated(SOURCE) == (SOURCE / "README.md").read_text()
