"""Finds names of roles, APIs, permissions and zones in terraform/ that do not exist at Google."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.paths import ROOT
from tpuctl.accelerators import catalogue
from tpuctl.images import PLAIN

CATALOGUE = ROOT / "tpuctl" / "google_names.json"
NAMED = {
    # list in the catalogue: pattern of such a name as a literal
    "roles": re.compile(r'"(roles/[^"$]+)"'),
    "apis": re.compile(r'"([^"/$]+\.googleapis\.com)"'),
    "permissions": re.compile(r'"(tpu\.(?!googleapis)[a-zA-Z]+\.[a-zA-Z]+)"'),
}
ASSIGNED = re.compile(r'^\s*(accelerator_type|runtime_version|zone|version)\s*=\s*"([^"]*)"', re.M)
DEFAULT = re.compile(r'^variable "(accelerator_type|zone)" \{[^}]*?\bdefault\s*=\s*"([^"]*)"', re.M)
RANGE = ">= 6.50, < 9"
ARGUMENTS = {"role": "roles", "service": "apis", "permissions": "permissions"}
"""Argument of a resource -> the list in the catalogue that must have its values."""


def unknown(folder: Path) -> Iterator[str]:
    """Yield a sentence for each unknown name, and each provider with another range of versions."""
    catalogued = json.loads(CATALOGUE.read_text())
    for path in sorted(folder.rglob("*.tf")):
        text = path.read_text()
        for kind, pattern in NAMED.items():
            for name in pattern.findall(text):
                if name not in catalogued[kind]:
                    yield f"{path.name}: {name} is not among the {kind} of {CATALOGUE.name}"
        yield from (f"{path.relative_to(folder)}: {problem}" for problem in _wrong_assignments(text))


def unknown_in_state(state: dict[str, Any]) -> list[str]:
    """Return a sentence for each unknown name in the output of `terraform show -json` after an apply.

    The state also has the names that expressions compose.
    """
    catalogued = json.loads(CATALOGUE.read_text())
    return [
        f"{address}: {name} is not among the {kind} of {CATALOGUE.name}"
        for address, kind, name in names_in_state(state)
        if name not in catalogued[kind] and not name.startswith("projects/")
    ]


def names_in_state(state: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield address of the resource, kind and name of each role, API and permission."""
    for resource in _resources(state["values"]["root_module"]):
        for argument, kind in ARGUMENTS.items():
            values = resource["values"].get(argument) or []
            for name in [values] if isinstance(values, str) else values:
                yield resource["address"], kind, name


def _resources(module: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (resource for resource in module.get("resources", ()) if resource["mode"] == "managed")
    for child in module.get("child_modules", ()):
        yield from _resources(child)


def _wrong_assignments(text: str) -> Iterator[str]:
    assigned: dict[str, str] = {}
    for name, value in (*DEFAULT.findall(text), *ASSIGNED.findall(text)):
        assigned[name] = value
        if name == "version" and value != RANGE:
            yield f'a provider has the range "{value}" instead of "{RANGE}"'
    accelerator, zone = assigned.get("accelerator_type"), assigned.get("zone")
    every_zone = {zone for kind in catalogue().values() for zone in kind.zones}
    if zone and zone not in every_zone:
        yield f"{zone} is not a zone of the catalogue"
    if accelerator and accelerator not in catalogue():
        yield f"{accelerator} is not an accelerator of the catalogue"
    elif accelerator and zone not in catalogue()[accelerator].zones:
        yield f"{accelerator} is not offered in {zone}"
    if assigned.get("runtime_version") and assigned["runtime_version"] not in PLAIN:
        yield f"{assigned['runtime_version']} is not a runtime of the catalogue"
