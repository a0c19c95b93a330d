"""A simulated Google Cloud whose clock the test moves, and keepers that look often."""

from __future__ import annotations

import pytest

from tests.host.keeper.site import Keepers
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.nodes import lifetime


@pytest.fixture(autouse=True)
def frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keepers look at their host each second."""
    monkeypatch.setattr(lifetime, "LOOK_INTERVAL", 1)


@pytest.fixture
def keepers(simulator: RunningSimulator, bucket: Bucket) -> Keepers:
    """The keepers of this test's simulator."""
    return Keepers(simulator, bucket)
