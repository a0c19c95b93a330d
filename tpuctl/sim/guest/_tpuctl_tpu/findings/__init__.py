"""Checks a program on the emulated TPU for code that a real one refuses or runs slowly."""

from __future__ import annotations

from ..hooks import TensorFlow
from ..system import SystemState
from . import host, replicas
from .recorder import Findings, Settings

__all__ = ["Findings", "Settings", "install"]


def install(tensorflow: TensorFlow, findings: Findings, state: SystemState, strategy: type) -> None:
    """Install the checks, unless they are off."""
    if findings.checks == "off":
        return
    host.install(tensorflow, findings, state, strategy)
    replicas.install(tensorflow, findings, strategy)
