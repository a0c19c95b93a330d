"""The recorded plans and files of terraform/, compared with those of now.

    python -m tests.terraform.plans.record             # what differs; exit code 1 if anything does
    python -m tests.terraform.plans.record --accept    # or make accept-terraform: record it

A plan that breaks a law is not recorded.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.terraform import applied_rights, readme_tables, stand_in
from tests.terraform.laws import book
from tests.terraform.plans import blocks, stanzas
from tests.terraform.plans.planning import all_planned
from tests.terraform.plans.stanzas import Stanzas
from tests.terraform.plans.variations import VARIATIONS, Variation
from tests.terraform.provider_schema import VERSIONS
from tests.terraform.workbench import EXAMPLES, SOURCE, Workbench

RECORDED = Path(__file__).parents[1] / "recorded"
FOLDERS = {"module": ".", **{where.rpartition("/")[2]: where for where in EXAMPLES}}
"""Name of a record of files -> the folder."""
HOW_TO_ACCEPT = (
    "If this is meant: make accept-terraform, and review the difference of tests/terraform/recorded."
)


def of_plan(name: str) -> Stanzas:
    """Return the recorded plan of a variation; empty without a record."""
    variation, path = VARIATIONS[name], RECORDED / "plans" / f"{name}.txt"
    like = of_plan(variation.like) if variation.like else None
    return stanzas.read(path.read_text(), like) if path.exists() else {}


def of_files(name: str) -> Stanzas:
    """Return the record of the files of a folder; empty without a record."""
    path = RECORDED / "files" / f"{name}.txt"
    return stanzas.read(path.read_text()) if path.exists() else {}


def compared(recorded: Stanzas, now: Stanzas, title: str) -> str:
    """Return how a record differs from now, by resource, and what to do; empty if it does not."""
    differences = list(stanzas.differences(recorded, now))
    return "\n".join([f"{title} is not as recorded:", *differences, HOW_TO_ACCEPT]) if differences else ""


def files_compared(folder: Path) -> str:
    """Return how the files of a copy of terraform/ differ from their records, and which laws they break."""
    now = {name: blocks.stanzas(folder / where) for name, where in FOLDERS.items()}
    texts = [compared(of_files(name), now[name], f"terraform/{FOLDERS[name]}") for name in now]
    laws = [sentence for each in now.values() for sentence in book.broken_by_blocks(each)]
    return "\n".join(filter(None, [*laws, *texts]))


def plan_compared(now: Stanzas, variation: Variation) -> str:
    """Return how a plan differs from its record, and which laws it breaks."""
    laws = book.broken(now, variation.ssh_ranges)
    return "\n".join(
        filter(None, [*laws, compared(of_plan(variation.name), now, f"the plan {variation.name}")])
    )


def accept_plans(bench: Workbench, variations: Iterable[Variation], recorded: Path = RECORDED) -> list[str]:
    """Record plans, unless one breaks a law; return the sentences of the laws."""
    every = list(variations)
    plans = all_planned(bench, every)
    laws = [f"{one.name}: {line}" for one in every for line in book.broken(plans[one.name], one.ssh_ranges)]
    for one in every if not laws else ():
        settings = f" with {json.dumps(one.settings, ensure_ascii=False)}" if one.settings else ""
        title = f"The plan of {'the module' if one.where == '.' else one.where}{settings}"
        like = (plans[one.like], one.like) if one.like else ()
        _write(recorded / "plans" / f"{one.name}.txt", stanzas.text(plans[one.name], title, *like))
    return laws


def accept_files(recorded: Path = RECORDED) -> list[str]:
    """Record what a plan does not show, unless it breaks a law; return the sentences of the laws."""
    files = {name: blocks.stanzas(SOURCE / where) for name, where in FOLDERS.items()}
    laws = [f"{name}: {line}" for name, lines in files.items() for line in book.broken_by_blocks(lines)]
    for name, lines in files.items() if not laws else ():
        title = f"The files of terraform/{FOLDERS[name]}: dependencies, lifecycles, versions, variables"
        _write(recorded / "files" / f"{name}.txt", stanzas.text(lines, title))
    return laws


def accept() -> list[str]:
    """Record everything anew, and update the README's tables; return why not, if a law is broken."""
    with tempfile.TemporaryDirectory() as folder:
        with stand_in.running(VERSIONS[-1], foresees=True) as environment:
            laws = accept_files() or accept_plans(
                _installed(Path(folder, "planned"), environment), VARIATIONS.values()
            )
        if laws:
            return laws
    applied_rights.write()
    (SOURCE / "README.md").write_text(readme_tables.updated(SOURCE))
    return []


def _installed(folder: Path, environment: Mapping[str, str]) -> Workbench:
    bench = Workbench(folder, environment)
    bench.install()
    return bench


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text() != content:
        path.write_text(content)
        sys.stderr.write(f"recorded {path}\n")


def difference() -> str:
    """Return how terraform/ differs from all records."""
    with (
        stand_in.running(VERSIONS[-1], foresees=True) as environment,
        tempfile.TemporaryDirectory() as folder,
    ):
        plans = all_planned(_installed(Path(folder), environment), VARIATIONS.values())
    texts = [plan_compared(plans[name], VARIATIONS[name]) for name in plans]
    return "\n".join(filter(None, [files_compared(SOURCE), *texts]))


if __name__ == "__main__":
    if sys.argv[1:] == ["--accept"]:
        problems = "\n".join(accept())
        problems = f"nothing was recorded, because laws are broken:\n{problems}" if problems else ""
    else:
        problems = difference()
    sys.stdout.write(f"{problems}\n" if problems else "")
    sys.exit(1 if problems else 0)
