"""A host's crontab: the program of that name, and the @reboot lines, which run at each boot as cron does.

The crontab of this machine's own user is never touched. Lines with a time do not run.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from pathlib import Path

from tpuctl.sim.hosts.disk import HostDisk
from tpuctl.sim.hosts.programs.programs import Command, Programs

FILE, LOG = "crontab", "cron.log"
"""In the host's folder: the lines, and what they print, which cron would mail."""
AT_BOOT = "@reboot"
SHELL = "/bin/sh"
PATH = "/usr/bin:/bin"
"""What cron on Ubuntu sets."""

PROGRAM = """\
#!/bin/sh
# Written by the simulator: the crontab of this host.
file="$TPUCTL_SIM_DISK/crontab"
case "${1:--}" in
-l) [ -e "$file" ] || { echo "no crontab for $(id -un)" >&2; exit 1; }; exec cat "$file" ;;
-r) exec rm -f "$file" ;;
-) cat >"$file.$$" && mv "$file.$$" "$file" ;;
-*) echo "crontab: the simulator has no option $1" >&2; exit 1 ;;
*) cat -- "$1" >"$file.$$" && mv "$file.$$" "$file" ;;
esac
"""


def install(folder: Path) -> Path:
    """Write the program below a host's folder, and return where it is, for PATH."""
    place = folder / "bin"
    place.mkdir(mode=0o700, exist_ok=True)
    program = place / FILE
    if not program.exists() or program.read_text() != PROGRAM:
        program.write_text(PROGRAM)
        program.chmod(0o700)
    return place


def boot_commands(disk: HostDisk) -> list[str]:
    """Return the commands of the @reboot lines."""
    path = disk.folder / FILE
    lines = path.read_text(errors="surrogateescape").splitlines() if path.exists() else []
    words = (line.split(None, 1) for line in lines)
    return [parts[1] for parts in words if len(parts) == 2 and parts[0] == AT_BOOT]


def run(command: str, disk: HostDisk, programs: Programs, environment: Mapping[str, str]) -> None:
    """Start one command with cron's variables; what it starts in turn ends with the host."""
    user = getpass.getuser()
    path = f"{disk.folder / 'bin'}:{PATH}"
    variables = {**environment, "SHELL": SHELL, "PATH": path, "LOGNAME": user, "USER": user}
    line = f'exec >>"$TPUCTL_SIM_DISK/{LOG}" 2>&1 </dev/null; {command}'
    program = programs.start(Command(SHELL, [SHELL, "-c", line], variables, disk.home))
    for descriptor in (program.stdin, program.stdout, program.stderr):
        if descriptor is not None:
            os.close(descriptor)
