"""The informational lines that TensorFlow's C++ code logs at its start, at every TF_CPP_MIN_LOG_LEVEL."""

from __future__ import annotations

import re

from tpuctl.runs import Run

LEVEL = "TF_CPP_MIN_LOG_LEVEL"
"""The worker sets it to 1, which hides level INFO, unless the user sets it."""
INFO_LINE = re.compile(
    r"I\d{4} \d\d:\d\d:\d+\.\d{6} +\d+ \S+\.cc:\d+\] "
    r"|WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR$"
)
"""Lines of Abseil before its initialization, such as TensorFlow 2.21 logs; no variable hides them:
https://github.com/abseil/abseil-cpp/pull/1718"""


def hides_startup_lines(run: Run) -> bool:
    """Return whether a run's user expects no informational lines of TensorFlow: by default."""
    return run.framework == "tensorflow" and LEVEL not in run.environment


def may_have_startup_lines(lines: bytes) -> bool:
    """Return whether one of many lines may be such a line: one quick look at all of them."""
    return b".cc:" in lines or b"absl::InitializeLog" in lines


def is_startup_line(text: str) -> bool:
    """Return whether a line of a log is one of them."""
    return INFO_LINE.match(text) is not None
