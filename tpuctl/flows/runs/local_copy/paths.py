"""Gives each object of a run a path in its copy, or says why it has none."""

from __future__ import annotations

from collections.abc import Iterable

from tpuctl.flows.runs.local_copy.joined_logs import Parts, joined_logs
from tpuctl.local.object_names import UnsafeNameError, local_parts
from tpuctl.local.places import Fold, Places

RECORD = "run.json"


def assign_paths(folder: str, names: Iterable[str], fold: Fold) -> tuple[dict[str, Parts], dict[str, str]]:
    """Return the path of each object that gets one, and the reasons of the others.

    Files of tpuctl's own come first, then the deepest.
    """
    parts: dict[str, Parts] = {}
    refused: dict[str, str] = {}
    for name in names:
        try:
            parts[name] = local_parts(name.removeprefix(folder))
        except UnsafeNameError as error:
            refused[name] = str(error)
    taken = Places(fold)
    for log in sorted(joined_logs(parts.values())):
        taken.take(log)
    paths = {}
    for name in sorted(parts, key=lambda name: (parts[name] != (RECORD,), -len(parts[name]), name)):
        try:
            taken.take(parts[name])
            paths[name] = parts[name]
        except UnsafeNameError as error:
            refused[name] = str(error)
    return paths, refused
