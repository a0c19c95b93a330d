"""Tests train.py on a TPU host that is preempted in the middle."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from google.cloud import storage, tpu_v2

from tpuctl.testing import Simulator

SCRIPT = Path(__file__).with_name("train.py")
PARENT = "projects/sim-project/locations/europe-west4-a"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    return tmp_path / "key"


@pytest.fixture
def create(tpu_simulator_environment: Simulator, key: Path) -> Callable[[], str]:
    """Creates the node, in place of one that was preempted, and returns its address."""

    def create_node() -> str:
        node = tpu_v2.Node(
            accelerator_type="v3-8",
            runtime_version="tpu-ubuntu2204-base",
            scheduling_config=tpu_v2.SchedulingConfig(spot=True),
            network_config=tpu_v2.NetworkConfig(enable_external_ips=True),
            metadata={"ssh-keys": f"me:{key.with_suffix('.pub').read_text()}"},
        )
        with tpu_v2.TpuClient() as client:
            if any(client.list_nodes(parent=PARENT)):
                client.delete_node(name=f"{PARENT}/nodes/trainer").result()
            created = client.create_node(parent=PARENT, node_id="trainer", node=node).result()
        return created.network_endpoints[0].ip_address

    return create_node


def saved_step(sim: Simulator) -> int:
    blob = storage.Client().bucket(sim.endpoints.bucket).blob("run-1/checkpoint.json")
    return int(json.loads(blob.download_as_text())["step"])


def start(sim: Simulator, key: Path, address: str, steps: int) -> subprocess.Popen[str]:
    """Start the loop on the host, its text on standard input."""
    ssh = ["ssh", "-F", str(sim.endpoints.ssh_config), "-i", str(key), "-l", "me"]
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    install = "python3 -m pip install --quiet google-cloud-storage </dev/null >&2"
    command = f"{install} && python3 - {sim.endpoints.bucket} run-1 {steps}"
    with SCRIPT.open() as script:
        return subprocess.Popen(
            [*ssh, *options, address, command], stdin=script, stdout=subprocess.PIPE, text=True
        )


def test_it_resumes_after_a_preemption(
    tpu_simulator_environment: Simulator, create: Callable[[], str], key: Path
) -> None:
    sim = tpu_simulator_environment
    with start(sim, key, create(), steps=10**9):
        sim.wait_for_event(kind="request", what="objects.create", resource="*/run-1/checkpoint.json")
        sim.world.preempt("trainer")
        assert sim.world.node("trainer").state == "PREEMPTED"
    saved = saved_step(sim)
    assert saved > 0

    with start(sim, key, create(), steps=saved + 250) as second:
        output, _ = second.communicate(timeout=60)
    assert output.splitlines() == [f"from step {saved}", f"to step {saved + 250}"]
    assert saved_step(sim) == saved + 250
