"""The options --ttl and --idle: when a TPU ends by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

import click

from tpuctl import durations
from tpuctl.cli.value_types import DURATION
from tpuctl.flows.nodes.lifetime import Lifetime

Command = TypeVar("Command", bound=Callable[..., object])

TTL = click.option(
    "--ttl", type=DURATION, default=0, metavar="DURATION",
    help="Delete it that long after its creation, such as 8h; 'tpuctl extend' moves that.",
)  # fmt: skip
IDLE = click.option(
    "--idle", type=DURATION, default=0, metavar="DURATION",
    help="Delete it after that long without a run, a login or a program that holds chips, such as 30m.",
)  # fmt: skip


def lifetime_options(command: Command) -> Command:
    """Give a command --ttl and --idle, and pass it both as one Lifetime, `lifetime`."""

    @functools.wraps(command)
    def wrapper(*arguments: object, ttl: int, idle: int, **parameters: object) -> object:
        return command(*arguments, lifetime=Lifetime(ttl, idle), **parameters)

    return TTL(IDLE(wrapper))  # type: ignore[return-value]  # the wrapper stands for the command


def lifetime_text(lifetime: Lifetime) -> str:
    """Return when a TPU ends, for the facts that are shown before it is created."""
    parts = [f"{durations.text(lifetime.ttl)} (--ttl)"] if lifetime.ttl else []
    parts += [f"{durations.text(lifetime.idle)} without use (--idle)"] if lifetime.idle else []
    return f"{', or '.join(parts)}; then it deletes itself" if parts else "until 'tpuctl down'"
