"""What a TPU would refuse or do slowly, found while a program runs on the emulated one."""

from __future__ import annotations

from typing import Any

from ..system import SystemState
from . import datasets, files, replicas, scopes
from .recorder import Findings, Settings

__all__ = ["Findings", "Settings", "install"]


def install(tensorflow: Any, findings: Findings, state: SystemState, strategy: type) -> None:
    """Look over the shoulder of the program, unless it wants no checks."""
    if findings.checks == "off":
        return
    scopes.install(tensorflow, findings, state, strategy)
    datasets.install(tensorflow, findings, state, strategy)
    files.install(tensorflow, findings, state)
    replicas.install(tensorflow, findings, strategy)
