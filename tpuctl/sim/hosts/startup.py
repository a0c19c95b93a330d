"""Runs a host's startup script at each boot, as Compute Engine's guest agent does."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tpuctl.sim.hosts.disk import HostDisk
from tpuctl.sim.hosts.programs.disk_full import is_full
from tpuctl.sim.hosts.programs.login import command_line
from tpuctl.sim.hosts.programs.programs import Programs

KEY = "startup-script"
RUN = 'exec "$TPUCTL_SIM_DISK/startup-script" >>"$TPUCTL_SIM_DISK/startup-script.log" 2>&1 </dev/null'
"""The log is that of the serial console on Google's hosts."""


def script_of(metadata: Mapping[str, str], project_metadata: Mapping[str, str]) -> str:
    """Return the script; the node's own is used before that of its project."""
    return metadata.get(KEY) or project_metadata.get(KEY, "")


def run_startup_script(
    script: str, disk: HostDisk, programs: Programs, environment: Mapping[str, str]
) -> None:
    """Start the script; what it starts in turn ends with the host.

    TPUCTL_HOST_ROOT stands for the root of the host's file system where a program looks for the host's
    processes: the machine's own /proc shows every host's.
    """
    path = disk.folder / KEY
    path.write_text(script)
    path.chmod(0o700)
    variables = {**environment, "TPUCTL_HOST_ROOT": str(disk.view)}
    program = programs.start(command_line(RUN, variables, disk.home, full=is_full(disk.home)))
    for descriptor in (program.stdin, program.stdout, program.stderr):
        if descriptor is not None:
            os.close(descriptor)
