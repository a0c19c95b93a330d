"""Groups the sim commands."""

from __future__ import annotations

import click

from tpuctl.cli.groups import Group
from tpuctl.cli.simulator.env import env
from tpuctl.cli.simulator.events import events
from tpuctl.cli.simulator.faults import fault
from tpuctl.cli.simulator.logs import logs
from tpuctl.cli.simulator.process import reset, start, stop
from tpuctl.cli.simulator.status import status

COMMANDS = (start, stop, reset, status, logs, env, fault, events)


@click.group(cls=Group)
def sim() -> None:
    """Start, stop and inspect the simulator; inject faults.

    It serves the Cloud TPU API, Cloud Storage and TPU hosts on this machine.
    """


for command in COMMANDS:
    sim.add_command(command)
