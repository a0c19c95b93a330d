"""Writes docs/findings.md to standard output: `python -m tpuctl.sim.guest._tpuctl_tpu.findings`."""

from __future__ import annotations

import sys

from .catalogue import document

sys.stdout.write(document())
