"""Names the files of a simulator's folder: the simulator writes them, its clients read them.

- Checks that the packages of the `sim` extra are installed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tpuctl.errors import ConfigError

PROGRAMS = "TPUCTL_SIM_PROGRAMS"
"""The variable of a simulated shell that names the folder of its programs, which comes first in PATH."""


@dataclass(frozen=True)
class SimulatorFolder:
    """Where a simulator keeps its state, and how its clients find it."""

    path: Path

    def check_owner(self) -> None:
        """Raise ConfigError if the folder is another user's, who could put other addresses there."""
        if self.path.exists() and self.path.stat().st_uid != os.geteuid():
            raise ConfigError(
                f"The simulator's folder {self.path} belongs to another user.",
                hint="Name another folder with TPUCTL_STATE.",
            )

    @property
    def lock(self) -> Path:
        """Locked by the simulator (flock) for as long as its process lives."""
        return self.path / "simulator.lock"

    @property
    def starting_lock(self) -> Path:
        """Locked by a client that starts, stops or resets the simulator."""
        return self.path / "starting.lock"

    @property
    def endpoints(self) -> Path:
        """JSON: the addresses of its services, the environment for clients, its process id."""
        return self.path / "endpoints.json"

    @property
    def control(self) -> Path:
        """JSON: the address of the control server, and the token that it requires."""
        return self.path / "control.json"

    @property
    def secret(self) -> Path:
        """What proves that a request is from this user: the token of the control server, among others."""
        return self.path / "secret"

    @property
    def events(self) -> Path:
        """Every request, transition and fault, one JSON object a line; rotated."""
        return self.path / "events.jsonl"

    @property
    def log(self) -> Path:
        """What the process wrote on stdout and stderr; rotated."""
        return self.path / "simulator.log"

    @property
    def hosts(self) -> Path:
        """The file systems of the simulated hosts."""
        return self.path / "hosts"


def rotated(path: Path) -> Path:
    """Return where a rotated file's earlier lines are: the previous file, replaced by each rotation."""
    return path.with_name(f"{path.name}.1")


PACKAGES = ("asyncssh", "aiohttp", "grpc_status", "psutil")


def check_installed() -> None:
    """Raise ConfigError naming the packages of the `sim` extra that are missing."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"The simulator needs packages that are not installed: {', '.join(missing)}.",
            hint="Install them in the clone of tpuctl: pip install '.[sim]'",
        )
