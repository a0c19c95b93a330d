"""Checks device names: cores that the slice does not have, or that are not initialized."""

from __future__ import annotations

from ..names import DeviceNames
from ..slices import Slice
from ..system import SystemState
from .recorder import Findings


class Placement:
    """Checks each device name; a slice that runs with fewer cores counts in full."""

    def __init__(self, findings: Findings, state: SystemState, names: DeviceNames, tpu: Slice) -> None:
        self._findings = findings
        self._state = state
        self._names = names
        self._whole = Slice.named(tpu.accelerator)

    def look(self, name: str) -> None:
        """Check one device name; TensorFlow places what it does not know on the host's CPU."""
        core = self._names.core(name)
        if core is None or self._findings.checks == "off":
            return
        if not self._state.initialized:
            text = f"'{name}' is used before the TPU is initialized: its operations run on the host"
            self._findings.slow("NOT_INITIALIZED", text, subject=name)
        elif core >= self._whole.cores:
            text = (
                f"'{name}': {self._whole.accelerator} has {self._whole.cores} cores, counted from 0; "
                "its operations run on the host"
            )
            self._findings.slow("NO_SUCH_CORE", text, subject=name)
