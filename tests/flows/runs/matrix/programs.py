"""The worker's program as `submit` ships it, with its own times shortened, or the clock of a host wrong."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

from tpuctl.flows.runs.submission.launch import worker_program

FACTOR = 20
"""By which the product's times of silence are shorter where a test would wait for minutes."""
SHORTENED = (
    "HEARTBEAT", "FRESH", "NEIGHBOUR_INTERVAL", "NEIGHBOUR_SILENCE", "PEER_INTERVAL", "LONGEST_LOOK",
    "CODE_TIMEOUT",
)  # fmt: skip
"""Of `timing`: how long one waits for a word. How long a process has for its end stays."""
TIMING = "tpuctl/host/timing.py"
SHORTENING = {
    TIMING: f"""
for name in {SHORTENED}:
    globals()[name] /= {FACTOR}
REQUEST_PAUSES = tuple(pause / {FACTOR} for pause in REQUEST_PAUSES)
""",
    "tpuctl/host/wire.py": f"\nTIMEOUT /= {FACTOR}\n",
}
HOUR = 3600
WRONG_CLOCKS = {
    TIMING: f"""
import os
worker = int(os.environ["HOME"].rpartition("/w")[2].partition("/")[0])
ahead = {HOUR} if worker % 2 else -{HOUR}
true_time, true_gmtime = time.time, time.gmtime
time.time = lambda: true_time() + ahead
time.gmtime = lambda seconds=None: true_gmtime(time.time() if seconds is None else seconds)
"""
}
"""The clocks of odd hosts are an hour ahead, those of even ones an hour behind."""


def changed(appendices: Mapping[str, str]) -> bytes:
    """Return the program with text at the end of some of its modules, by their paths."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(worker_program())) as source, zipfile.ZipFile(buffer, "w") as copy:
        for name in source.namelist():
            copy.writestr(name, source.read(name).decode() + appendices.get(name, ""))
    return buffer.getvalue()
