"""PyTorch/XLA on a simulated host computes on the CPU, where it can be installed at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.running_simulator import RunningSimulator
from tests.sim.live_host import User

ADD = "import torch, torch_xla; print(float((torch.ones(3, device=torch_xla.device()) * 2).sum()))"


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def run(simulator: RunningSimulator, user: User, command: str) -> str:
    """Run a command on a host."""
    endpoints = simulator.simulator.endpoints
    node = user.create(endpoints["tpu_grpc"])
    return user.run(Path(endpoints["hosts_file"]), node.network_endpoints[0].ip_address, command)


def test_its_runtime_is_told_to_use_the_cpu(simulator: RunningSimulator, user: User) -> None:
    assert run(simulator, user, "echo $PJRT_DEVICE") == "CPU\n"


def test_a_tensor_on_the_xla_device_is_computed(simulator: RunningSimulator, user: User) -> None:
    imported = subprocess.run(
        [sys.executable, "-c", "import torch_xla"], capture_output=True, text=True, check=False
    )
    if imported.returncode:
        reason = imported.stderr.splitlines()[-1]
        pytest.skip(f"torch_xla needs the torch of its own minor version, 2.9 for the last one: {reason}")
    assert run(simulator, user, f'python3 -c "{ADD}" 2> log').endswith("6.0\n")
