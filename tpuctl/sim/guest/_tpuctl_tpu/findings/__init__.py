"""Checks a program on the emulated TPU for code that a real one refuses or runs slowly."""

from __future__ import annotations

from ..hooks import TensorFlow
from ..system import SystemState
from . import datasets, files, replicas, scopes
from .recorder import Findings, Settings

__all__ = ["Findings", "Settings", "install"]


def install(tensorflow: TensorFlow, findings: Findings, state: SystemState, strategy: type) -> None:
    """Install the checks, unless they are off."""
    if findings.checks == "off":
        return
    scopes.install(tensorflow, findings, state, strategy)
    datasets.install(tensorflow, findings, state, strategy)
    files.install(tensorflow, findings, state)
    replicas.install(tensorflow, findings, strategy)
