"""Tests transitions as long as Google's, by advancing the clock."""

import pytest
from google.cloud import tpu_v2

from tpuctl.testing import Simulator

PARENT = "projects/sim-project/locations/europe-west4-a"


def test_a_create_takes_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    node = tpu_v2.Node(accelerator_type="v3-8", runtime_version="tpu-ubuntu2204-base")
    with Simulator(speed="real", still=True) as sim:
        for name, value in sim.environment.items():
            monkeypatch.setenv(name, value)
        with tpu_v2.TpuClient() as client:
            operation = client.create_node(parent=PARENT, node_id="slow", node=node)
            sim.clock.advance(60)
            assert sim.world.node("slow").state == "CREATING"
            sim.clock.advance(10)
            operation.result(timeout=30)
        assert sim.world.node("slow").state == "READY"
