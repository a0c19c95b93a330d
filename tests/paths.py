"""Where things are in this checkout."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JOBS = ROOT / "jobs"
RECORDED_OUTPUT = ROOT / "tests" / "terraform" / "recorded" / "complete.json"
"""What `terraform output -json` printed for examples/complete."""
