"""Reads the simulator's log: stdout and stderr of its process, such as tracebacks."""

from __future__ import annotations

from pathlib import Path

from tpuctl.cloud.simulator.log_cursor import LogCursor
from tpuctl.simulator_folder import SimulatorFolder


class SimulatorLog:
    """The log of the simulator that serves `folder`, running or not."""

    def __init__(self, folder: Path) -> None:
        self.path = SimulatorFolder(folder).log
        self._cursor = LogCursor(self.path)

    def new(self) -> list[str]:
        """Return the complete lines since the last call; the first call returns all."""
        return [line.decode(errors="replace") for line in self._cursor.new_lines()]
