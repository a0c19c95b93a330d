"""A simulator of a benchmark's own, for this process and the commands that it starts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tpuctl.cloud import simulator
from tpuctl.cloud.simulator import PublishedEndpoints


@contextmanager
def own_simulator(parent: str | None = None) -> Iterator[tuple[Path, PublishedEndpoints]]:
    """Yield its folder, below `parent` or the system's, and what it serves, without the user's settings."""
    with tempfile.TemporaryDirectory(prefix="tpuctl-bench-", dir=parent) as name:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TPUCTL_")}
        os.environ.clear()
        os.environ.update({**inherited, "TPUCTL_STATE": name, "TPUCTL_TARGET": "sim"})
        served = simulator.ensure(Path(name, "sim"))
        try:
            yield Path(name), served
        finally:
            simulator.stop(Path(name, "sim"))
