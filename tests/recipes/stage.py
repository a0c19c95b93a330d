"""A folder as a checkout of tpuctl after `make demo`, with a training program that takes no time."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

TRAINING = """
# /// script
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "digits"
# ///
import os
print("data", os.environ["TPUCTL_DATA_DIR"])
print("test accuracy 0.978")
"""


def lay_out(folder: Path) -> None:
    """Write jobs/digits.py and two images of each of two digits."""
    (folder / "jobs").mkdir()
    (folder / "jobs" / "digits.py").write_text(TRAINING)
    for digit in (0, 1):
        for number in range(2):
            path = folder / ".demo" / "digits" / "train" / str(digit) / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), 60 * (1 + digit + number)).save(path)
