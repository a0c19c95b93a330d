"""The options --ttl, --idle and --max-cost: when a TPU ends by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import TypeVar

import click
from click.core import ParameterSource

from tpuctl import durations
from tpuctl.cli.value_types import AMOUNT, DURATION
from tpuctl.flows.nodes.lifetime import Lifetime, require_budget

Command = TypeVar("Command", bound=Callable[..., object])

TTL = click.option(
    "--ttl", type=DURATION, default=0, metavar="DURATION",
    help="Delete it that long after its creation, such as 8h; 'tpuctl extend' moves that.",
)  # fmt: skip
IDLE = click.option(
    "--idle", type=DURATION, default=0, metavar="DURATION",
    help="Delete it after that long without a run, a login or a program that holds chips, such as 30m.",
)  # fmt: skip

MAX_COST = click.option(
    "--max-cost", type=AMOUNT, default="0", metavar="AMOUNT",
    help="Delete it when it has cost that much at its price now, such as 20: a --ttl that follows from it.",
)  # fmt: skip


def lifetime_options(command: Command) -> Command:
    """Give a command --ttl, --idle and --max-cost, and pass it all as one Lifetime, `lifetime`."""

    @functools.wraps(command)
    def wrapper(*arguments: object, ttl: int, idle: int, max_cost: Decimal, **parameters: object) -> object:
        named = click.get_current_context().get_parameter_source
        require_budget(
            ttl if named("ttl") is not ParameterSource.DEFAULT else None,
            max_cost if named("max_cost") is not ParameterSource.DEFAULT else None,
        )
        return command(*arguments, lifetime=Lifetime(ttl, idle, max_cost), **parameters)

    return TTL(IDLE(MAX_COST(wrapper)))  # type: ignore[return-value]  # the wrapper stands for the command


def names_an_end() -> bool:
    """Return whether the command line has one of these options, also `--idle 0s`."""
    source = click.get_current_context().get_parameter_source
    return any(source(name) is not ParameterSource.DEFAULT for name in ("ttl", "idle", "max_cost"))


def lifetime_text(lifetime: Lifetime) -> str:
    """Return when a TPU ends, for the facts that are shown before it is created."""
    parts = [f"{durations.text(lifetime.ttl)} ({lifetime.budget or '--ttl'})"] if lifetime.ttl else []
    parts += [f"{durations.text(lifetime.idle)} without use (--idle)"] if lifetime.idle else []
    return f"{', or '.join(parts)}; then it deletes itself" if parts else "until 'tpuctl down'"
