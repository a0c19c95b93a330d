"""Generates docs/faults.md from the table of kinds: `python -m tpuctl.faults.document > docs/faults.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tpuctl.faults.fields import TYPES, Field
from tpuctl.faults.kinds import KINDS, LIMITS, Kind
from tpuctl.faults.methods import GCS, TPU

INTRODUCTION = """\
# Injecting faults into the simulator

<!-- Written by `python -m tpuctl.faults.document`; a test compares. -->

Add faults to the simulator by command, by a scenario file, or in code, and see how your tools react. The
names are the same everywhere: `--zone` on the command line is `zone` in a file and in code.

    tpuctl sim fault add stockout --zone europe-west4-a --count 2
    tpuctl sim fault ls
    tpuctl sim fault rm f1
    tpuctl sim events --follow --kind fault

A scenario is a TOML file, for `tpuctl sim start --scenario FILE`; it replaces an earlier one:

    seed = 7

    [[fault]]
    kind = "stockout"
    zone = "europe-west4-a"
    count = 2

    [[fault]]
    kind = "gcs-error"
    status = 503
    method = "storage.objects.create"
    object = "runs/*"
    probability = 0.2

In code, where the simulator runs in the same process:

    fault = simulator.faults.add("preemption", run="digits-*", step=200)
    simulator.faults.remove(fault.id)
    simulator.events.find(kind="fault", what="preemption")

A fault is in force from when it is added until its count is used up, its duration is over, or it is removed.
It survives a restart of the simulator. If several match, the one that was added first fires. Firing by
probability depends on the seed, the kind, the place in the scenario and the number of earlier matches: the
same scenario injects the same faults into the same calls. `tpuctl sim events` shows every request, state
transition and fault in order, also from before a restart.

PATTERN is a shell pattern (`*`, `?`, `[ab]`). TIME is a number of seconds or has a unit (`500ms`, `30s`,
`2m`, `1h`); BYTES may have one, too (`64kB`, `5MB`).
"""


def document() -> str:
    """Return the text of docs/faults.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    yield "## Options of every fault\n"
    yield from _table(LIMITS)
    for section in dict.fromkeys(kind.section for kind in KINDS.values()):
        yield f"\n## {section}"
        for kind in KINDS.values():
            if kind.section == section:
                yield from _kind(kind)
    yield "\n## Methods\n"
    yield (
        "Of the Cloud TPU API, where `tpu.` is optional: " + ", ".join(f"`{name}`" for name in TPU) + ".\n"
    )
    yield "Of Cloud Storage: " + ", ".join(f"`storage.{name}`" for name in GCS) + "."


def _kind(kind: Kind) -> Iterator[str]:
    yield f"\n### {kind.name}\n"
    yield f"{kind.help}\n"
    if kind.note:
        yield f"{kind.note}\n"
    if kind.count is not None:
        yield f"The default of `count` is {kind.count}.\n"
    yield f"    tpuctl sim fault add {kind.name} {kind.example}\n"
    yield from _table(kind.fields)


def _table(fields: tuple[Field, ...]) -> Iterator[str]:
    yield "| option | value | meaning | default |"
    yield "|---|---|---|---|"
    for field in fields:
        value = ", ".join(field.choices) or TYPES[field.type].metavar or "true, false"
        yield f"| `{field.name}` | {value} | {field.help} | {_default(field)} |"


def _default(field: Field) -> str:
    if field.required:
        return "*required*"
    if field.name == "count":
        return f"unlimited; `1` for {', '.join(kind.name for kind in KINDS.values() if kind.count == 1)}"
    return "" if field.default in (None, "", {}) else f"`{field.default}`"


if __name__ == "__main__":
    sys.stdout.write(document())
