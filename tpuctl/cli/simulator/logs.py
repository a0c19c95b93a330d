"""The command sim logs."""

from __future__ import annotations

import click

from tpuctl.cli import output, printing
from tpuctl.cloud import simulator
from tpuctl.cloud.endpoints import simulator_folder
from tpuctl.cloud.simulator.log import SimulatorLog
from tpuctl.cloud.simulator.log_cursor import follow as following
from tpuctl.cloud.simulator.log_cursor import last as last_of


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Keep showing new lines until the simulator stops.")
@click.option(
    "--tail", "--last", "last", type=click.IntRange(0), metavar="N", help="Begin with the last N lines."
)
def logs(follow: bool, last: int | None) -> None:
    """Show the errors of the simulator itself; 'tpuctl sim events' shows what happened in it.

    \b
    Example:
      tpuctl sim logs --follow
    """
    folder = simulator_folder()
    log = SimulatorLog(folder)
    lines = log.new()
    if not lines:
        output.note(f"{log.path} has no lines: nothing went wrong.")
    for line in last_of(lines, last):
        printing.write_log_line(line)
    if follow:
        for line in following(log.new, lambda: simulator.running(folder) is not None):
            printing.write_log_line(line)
