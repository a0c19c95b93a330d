"""The options that say how often a run is started again, on what machine, and with which values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from tpuctl.cli.value_types import LOCAL_PATH

Command = TypeVar("Command", bound=Callable[..., object])

RESTART_OPTIONS = (
    click.option(
        "--restarts", metavar="N",
        help="Start it again so often after a preemption, a maintenance or a lost host, or 'unlimited', the"
        " default on a spot TPU; 'tpuctl watch' does so. Default elsewhere: 0.",
    ),
    click.option(
        "--restarts-on-failure", metavar="N",
        help="Start it again so often after a failure of its own; default: 0.",
    ),
    click.option(
        "--restart-zone", "restart_zones", multiple=True, metavar="ZONE",
        help="Zone, region or 'any' for the TPU of a restart, after the zone of this one; repeatable.",
    ),
    click.option(
        "--max-price", metavar="AMOUNT",
        help="Restart it only on a TPU that costs no more per hour, such as 12.50.",
    ),
)  # fmt: skip


def value_options(environment_help: str, secret_help: str) -> Callable[[Command], Command]:
    """Give a command the options for values that a run's record does not have, with this help of two."""
    options = (
        click.option("--env", "environment", multiple=True, metavar="KEY[=VALUE]", help=environment_help),
        click.option(
            "--env-file", "env_files", multiple=True, type=LOCAL_PATH,
            help="File with lines KEY=VALUE, or KEY.",
        ),
        click.option("--secret", "secrets", multiple=True, metavar="KEY[=@FILE]", help=secret_help),
    )  # fmt: skip

    def give(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return give
