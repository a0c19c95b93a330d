"""The Python that runs the programs for the emulated TPU: this one, or one with another TensorFlow."""

from __future__ import annotations

import os
import sys

PYTHON = os.environ.get("TPUCTL_TEST_TENSORFLOW") or sys.executable
