"""The checks of terraform/ by name; each returns a description of the problem, empty if there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.terraform import module_names, readme_tables
from tests.terraform.plans import record
from tests.terraform.plans.planning import Refused, planned
from tests.terraform.plans.variations import VARIATIONS
from tests.terraform.validations import judged
from tests.terraform.workbench import Workbench

PLAIN = ("-no-color",)


def fmt(bench: Workbench) -> str:
    """Every file is written as `terraform fmt` writes it."""
    result = bench.run(".", "fmt", "-check", "-recursive", "-diff", *PLAIN)
    return result.text if result.code else ""


def validate(where: str) -> Callable[[Workbench], str]:
    """`terraform validate` accepts a folder."""

    def check(bench: Workbench) -> str:
        result = bench.run(where, "validate", *PLAIN)
        return result.text if result.code else ""

    return check


def test(name: str) -> Callable[[Workbench], str]:
    """`terraform test` passes one file."""

    def check(bench: Workbench) -> str:
        result = bench.run(".", "test", f"-filter=tests/{name}.tftest.hcl", *PLAIN)
        return result.text if result.code or " 0 failed" not in result.text else ""

    return check


def apply(bench: Workbench) -> str:
    """The complete example can be applied and destroyed."""
    applied = bench.run("examples/complete", "apply", "-auto-approve", *PLAIN)
    destroyed = bench.run("examples/complete", "destroy", "-auto-approve", *PLAIN)
    return applied.text if applied.code else destroyed.text if destroyed.code else ""


def settled(bench: Workbench) -> str:
    """A second plan of the complete example is empty."""
    bench.run("examples/complete", "apply", "-auto-approve", *PLAIN)
    result = bench.run("examples/complete", "plan", "-detailed-exitcode", *PLAIN)
    bench.run("examples/complete", "destroy", "-auto-approve", *PLAIN)
    return result.text if result.code else ""


def names(bench: Workbench) -> str:
    """Roles, APIs, permissions, accelerators, zones and runtimes in the files exist at Google."""
    return "; ".join(module_names.unknown(bench.folder))


def applied_names(bench: Workbench) -> str:
    """Roles, APIs and permissions of the applied complete example exist at Google."""
    bench.run("examples/complete", "apply", "-auto-approve", *PLAIN)
    state = json.loads(bench.run("examples/complete", "show", "-json").out)
    bench.run("examples/complete", "destroy", "-auto-approve", *PLAIN)
    return "; ".join(module_names.unknown_in_state(state))


def files(bench: Workbench) -> str:
    """Dependencies, lifecycles, versions and variables are as recorded, and break no law."""
    return record.files_compared(bench.folder)


def plan(name: str) -> Callable[[Workbench], str]:
    """The plan of a variation is as recorded, and breaks no law."""

    def check(bench: Workbench) -> str:
        try:
            return record.plan_compared(planned(bench, VARIATIONS[name]), VARIATIONS[name])
        except Refused as refused:
            return str(refused)

    return check


def edges(bench: Workbench) -> str:
    """The variables take and refuse values where the table of edges says."""
    return "\n".join(judged.problems(bench))


def tables(bench: Workbench) -> str:
    """The README's tables are those of the variables and outputs."""
    readme: Path = bench.folder / "README.md"
    return "" if readme_tables.updated(bench.folder) == readme.read_text() else "README.md is out of date"


CHECKS: dict[str, Callable[[Workbench], str]] = {
    "fmt": fmt,
    "names": names,
    "tables": tables,
    "files": files,
    "validate": validate("."),
    "validate minimal": validate("examples/minimal"),
    "validate complete": validate("examples/complete"),
    "validate teams": validate("examples/teams"),
    "test defaults": test("defaults"),
    "test access": test("access"),
    "test options": test("options"),
    "test reach": test("reach"),
    "test validations": test("validations"),
    "test watch": test("watch"),
    **{f"plan {name}": plan(name) for name in VARIATIONS},
    "edges": edges,
    "apply": apply,
    "applied names": applied_names,
    "second plan": settled,
}
"""From the fastest to the slowest."""
WITHOUT_TERRAFORM = ("names", "tables", "files")
"""Checks that only read the files."""
FORESEEN = tuple(name for name in CHECKS if name.startswith("plan "))
"""Checks of plans that have the values which are otherwise known after apply."""
