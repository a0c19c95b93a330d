"""The worker's own Cloud Storage client behind a faulty wire, and a simulated host to run its program on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cloud.faulty_wire import FaultyWire
from tests.host.worker.host import BUCKET, Host, ssh_environment
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.host import gcs, timing
from tpuctl.polling import Backoff, poll


@pytest.fixture
def wire(simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyWire]:
    """A proxy between the worker's client in this process and the simulator; retries do not pause."""
    running = FaultyWire(simulator.simulator.endpoints["storage"])
    monkeypatch.setattr(gcs, "HOST", f"http://{running.address}")
    monkeypatch.setattr(timing, "REQUEST_PAUSES", (0.0,) * len(timing.REQUEST_PAUSES))
    monkeypatch.setenv("GCE_METADATA_HOST", running.address)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield running
    running.close()


@pytest.fixture
def worker_bucket(wire: FaultyWire) -> Iterator[gcs.Bucket]:
    """The bucket as the worker sees it."""
    with closing(gcs.Bucket(BUCKET)) as bucket:
        yield bucket


@pytest.fixture
def host(simulator: RunningSimulator, node: str, bucket: Bucket, tmp_path: Path) -> Host:
    """Worker 0 of a READY v3-8."""
    environment = ssh_environment()
    return Host(environment, Path(environment["HOME"]) / ".tpuctl/runs/r1/1", bucket)


@pytest.fixture
def wait_for_end() -> Callable[[int], None]:
    """Wait until a process that is not a child of ours has ended."""

    def wait(pid: int) -> None:
        def ended() -> bool | None:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return True
            try:  # an orphan waits for init to reap it, which in a container may never come
                return "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] or None
            except OSError:
                return None

        poll(ended, awaiting=f"process {pid} to end", timeout=60, backoff=Backoff(0.02, 0.1))

    return wait
