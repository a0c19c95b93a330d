"""Imports all that commands import when they first need it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import walk_packages

NOT_OF_COMMANDS = ("sim", "keeper", "worker", "testing", "__main__", "flows.datasets.beam")
"""Modules of tpuctl that run in processes of their own, or with packages that are not always installed."""


@cache
def import_commands() -> None:
    """Import the modules of all commands, and Google's clients."""
    for name in (*command_modules(), "google.cloud.tpu_v2", "google.cloud.storage"):
        import_module(name)


def command_modules() -> Iterator[str]:
    """Yield the name of each module of tpuctl that commands may import."""
    import tpuctl

    left_out = tuple(f"tpuctl.{name}" for name in NOT_OF_COMMANDS)
    for module in walk_packages(tpuctl.__path__, "tpuctl."):
        if not module.name.startswith(left_out):
            yield module.name
