"""TensorFlow on a slice of several hosts: the script runs on worker 0 alone, with the replicas of all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tests.sim.live_host import User

POD_JOB = """# /// script
# dependencies = ["tensorflow"]
# [tool.tpuctl]
# accelerator = "v3-32"
# ///
import json, os
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)

@tf.function
def total():
    return strategy.reduce("SUM", strategy.run(lambda: tf.constant(1)), axis=None)

print(json.dumps({
    "environment": [os.environ[name] for name in ("TPUCTL_WORKER", "TPU_NAME", "TPU_LOAD_LIBRARY")],
    "replicas": strategy.num_replicas_in_sync,
    "hosts": len(resolver.cluster_spec().as_dict()["worker"]),
    "sum": int(total()),
}))
"""
REAL = """
import json
import tensorflow as tf
Resolver = tf.distribute.cluster_resolver.TPUClusterResolver
try:
    Resolver("elsewhere").cluster_spec()
except ValueError as error:
    refusal = str(error)
print(json.dumps({"workers": Resolver().cluster_spec().as_dict()["worker"], "refusal": refusal}))
"""


def test_worker_0_has_the_replicas_of_every_host(
    tpuctl: Callable[..., CommandResult], simulator: RunningSimulator
) -> None:
    Path("job.py").write_text(POD_JOB)
    assert tpuctl("up", "v3-32", "--name", "pod", "--framework", "tensorflow", "--yes").code == 0
    submitted = tpuctl("submit", "job.py", "--env", "TPUCTL_SIM_CORES=4")
    assert submitted.code == 0, submitted.err
    followed = tpuctl("logs", "-f")
    assert followed.code == 0, followed.out + followed.err
    (report,) = (line for line in followed.out.splitlines() if line.startswith("{"))
    assert json.loads(report) == {
        "environment": ["0", "pod", "0"],
        "replicas": 4,
        "hosts": 4,
        "sum": 4,
    }


@pytest.mark.slow
def test_tensorflows_own_resolver_asks_the_api(simulator: RunningSimulator, tmp_path: Path) -> None:
    """Without the emulation, on any worker: by googleapiclient and oauth2client, as images for TPUs have."""
    endpoints, user = simulator.simulator.endpoints, User(tmp_path)
    node = user.create(endpoints["tpu_grpc"], "pod", "v3-32", runtime="tpu-vm-tf-2.17.0-pod-pjrt")
    addresses = [endpoint.ip_address for endpoint in node.network_endpoints]
    hosts = Path(endpoints["hosts_file"])
    user.install(hosts, addresses[1], "google-api-python-client", "oauth2client", "pysocks")
    before = "env -u TPUCTL_SIM_TPU TPU_NAME=pod TPU_LOAD_LIBRARY=0"
    report = json.loads(user.run_script(hosts, addresses[1], REAL, before=before))
    assert report["workers"] == [f"{address}:8470" for address in addresses]
    assert "nodes/elsewhere' was not found" in report["refusal"]
