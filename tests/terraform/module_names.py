"""The names of Google's things in terraform/ that are in no list of what exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.paths import ROOT
from tpuctl.accelerators import RUNTIME_BASES, catalogue

CATALOGUE = ROOT / "tpuctl" / "google_names.json"
NAMED = {
    # list in the catalogue: how such a name looks as a literal
    "roles": re.compile(r'"(roles/[^"$]+)"'),
    "apis": re.compile(r'"([^"/$]+\.googleapis\.com)"'),
    "permissions": re.compile(r'"(tpu\.(?!googleapis)[a-zA-Z]+\.[a-zA-Z]+)"'),
}
ASSIGNED = re.compile(r'^\s*(accelerator_type|runtime_version|zone|version)\s*=\s*"([^"]*)"', re.M)
RANGE = ">= 6.50, < 9"
ARGUMENTS = {"role": "roles", "service": "apis", "permissions": "permissions"}
"""Argument of a resource -> the list that its values have to be in."""


def unknown(folder: Path) -> Iterator[str]:
    """Yield a sentence for each name that is not known, and each provider with another range of versions."""
    known = json.loads(CATALOGUE.read_text())
    for path in sorted(folder.rglob("*.tf")):
        text = path.read_text()
        for kind, pattern in NAMED.items():
            for name in pattern.findall(text):
                if name not in known[kind]:
                    yield f"{path.name}: {name} is not among the {kind} of {CATALOGUE.name}"
        yield from (f"{path.relative_to(folder)}: {problem}" for problem in _wrong_assignments(text))


def unknown_in_state(state: dict[str, Any]) -> list[str]:
    """Return a sentence for each name that is not known in what `terraform show -json` prints after an apply.

    This sees the names that expressions put together, too.
    """
    known = json.loads(CATALOGUE.read_text())
    return [
        f"{address}: {name} is not among the {kind} of {CATALOGUE.name}"
        for address, kind, name in names_in_state(state)
        if name not in known[kind] and not name.startswith("projects/")
    ]


def names_in_state(state: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield address of the resource, kind and name of each role, API and permission."""
    for resource in _resources(state["values"]["root_module"]):
        for argument, kind in ARGUMENTS.items():
            values = resource["values"].get(argument) or []
            for name in [values] if isinstance(values, str) else values:
                yield resource["address"], kind, name


def _resources(module: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (one for one in module.get("resources", ()) if one["mode"] == "managed")
    for child in module.get("child_modules", ()):
        yield from _resources(child)


def _wrong_assignments(text: str) -> Iterator[str]:
    assigned: dict[str, str] = {}
    for name, value in ASSIGNED.findall(text):
        assigned[name] = value
        if name == "version" and value != RANGE:
            yield f'a provider has the range "{value}" instead of "{RANGE}"'
    accelerator, zone = assigned.get("accelerator_type"), assigned.get("zone")
    every_zone = {one for kind in catalogue().values() for one in kind.zones}
    if zone and zone not in every_zone:
        yield f"{zone} is no zone of the catalogue"
    if accelerator and accelerator not in catalogue():
        yield f"{accelerator} is no accelerator of the catalogue"
    elif accelerator and zone not in catalogue()[accelerator].zones:
        yield f"{accelerator} is not offered in {zone}"
    if assigned.get("runtime_version") and assigned["runtime_version"] not in RUNTIME_BASES:
        yield f"{assigned['runtime_version']} is no runtime of the catalogue"
