"""JAX, TensorFlow and PyTorch/XLA as they are on the hosts of a simulated slice.

They find each other and compute.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from google.cloud import tpu_v2

from tests.running_simulator import CommandResult, RunningSimulator
from tests.sim.live_host import POLLING, User, tpu_client, wait_until

ZONE = "projects/sim-project/locations/us-central2-b"
SLICE = """
import json, os, sys
import jax, jax.numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
jax.distributed.initialize()
mesh = Mesh(jax.devices(), ("chips",))  # jax.make_mesh refuses several slices, as on TPUs
ones = jax.make_array_from_callback(
    (jax.device_count(),), NamedSharding(mesh, PartitionSpec("chips")), lambda _: jnp.ones(1)
)
add = jax.jit(jax.shard_map(
    lambda x: jax.lax.psum(x, "chips"), mesh=mesh, in_specs=PartitionSpec("chips"), out_specs=PartitionSpec()
))
seen = {
    "process": jax.process_index(),
    "devices": [jax.local_device_count(), jax.device_count()],
    "psum": float(add(ones)[0]),
    "slices": sorted(set(multihost_utils.process_allgather(jnp.array(int(os.environ["SLICE"]))).tolist())),
}
print("seen", json.dumps(seen), flush=True)
"""
KILLED = """
import os, time
import jax
jax.distributed.initialize()
print(os.getpid(), file=open("joined", "w"), flush=True)
time.sleep(600)
"""
JOB = """# /// script
# dependencies = ["jax[tpu]"]
# [tool.tpuctl]
# accelerator = "v5litepod-16"
# framework = "jax"
# ///
import os, sys
import jax
jax.distributed.initialize()
from jax.experimental import multihost_utils
total = multihost_utils.process_allgather(jax.numpy.array(jax.local_device_count())).sum()
print(f"{jax.process_index()} of {jax.process_count()}: worker {os.environ['TPUCTL_WORKER']}, {total} chips")
"""
SEEN = "seen "


def last_line(output: str) -> dict[str, object]:
    """Return what a worker printed, among the lines of JAX's transport."""
    (line,) = [line for line in output.splitlines() if line.startswith(SEEN)]
    report: dict[str, object] = json.loads(line.removeprefix(SEEN))
    return report


class Hosts:
    """Runs programs on hosts of several slices at once, over SSH."""

    def __init__(self, simulator: RunningSimulator, user: User) -> None:
        self._user, self._hosts_file = user, Path(simulator.simulator.endpoints["hosts_file"])

    def script(self, slices: list[list[str]], script: str, after: str = "") -> list[str]:
        """Run a script on each host, which finds its slice's number in SLICE; returns what they printed."""
        return self._everywhere(
            slices,
            lambda number, address: self._user.run_script(
                self._hosts_file, address, script, before=f"SLICE={number}", after=after
            ),
        )

    def command(self, slices: list[list[str]], command: str) -> list[str]:
        """Run a command on each host."""
        return self._everywhere(slices, lambda _, address: self._user.run(self._hosts_file, address, command))

    def _everywhere(self, slices: list[list[str]], work: Callable[[int, str], str]) -> list[str]:
        places = [(number, address) for number, addresses in enumerate(slices) for address in addresses]
        with ThreadPoolExecutor(len(places)) as pool:
            return list(pool.map(lambda place: work(*place), places))


def two_slices_of_one_request(address: str, user: User) -> list[list[str]]:
    """Create two v4-8 by one queued resource; returns the addresses of their hosts."""
    node = tpu_v2.Node(
        accelerator_type="v4-8",
        runtime_version="tpu-ubuntu2204-base",
        network_config={"enable_external_ips": True},
        metadata={"ssh-keys": user.key_line},
    )
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(
        parent=ZONE, node=node, multislice_params={"node_count": 2, "node_id_prefix": "slice"}
    )
    names = [f"{ZONE}/nodes/slice-{number}" for number in range(2)]
    with tpu_client(address) as client:
        client.create_queued_resource(
            parent=ZONE,
            queued_resource_id="q",
            queued_resource=tpu_v2.QueuedResource(tpu={"node_spec": [spec]}),
        ).result(polling=POLLING)
        queued = f"{ZONE}/queuedResources/q"
        wait_until(lambda: client.get_queued_resource(name=queued).state.state.name == "ACTIVE")
        return [addresses(client.get_node(name=name)) for name in names]


def addresses(node: tpu_v2.Node) -> list[str]:
    return [endpoint.ip_address for endpoint in node.network_endpoints]


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def test_slices_compute_side_by_side_also_right_after_a_kill(simulator: RunningSimulator, user: User) -> None:
    """A v4-16, which has two hosts with four chips each, and two v4-8 that are one for JAX."""
    api, hosts = simulator.simulator.endpoints["tpu_grpc"], Hosts(simulator, user)
    alone = addresses(user.create(api, "one", "v4-16", parent=ZONE))
    first, second = two_slices_of_one_request(api, user)
    hosts.command([alone, first, second], "python3 -m pip install 'jax[tpu]'")
    hosts.script([alone], KILLED, after="> log 2>&1 & until test -s joined; do sleep 0.1; done")
    hosts.command([alone], "kill -9 $(cat joined)")
    reports = [last_line(output) for output in hosts.script([alone, first, second], SLICE)]
    assert reports == [
        {"process": 0, "devices": [4, 8], "psum": 8.0, "slices": [0]},
        {"process": 1, "devices": [4, 8], "psum": 8.0, "slices": [0]},
        {"process": 0, "devices": [4, 8], "psum": 8.0, "slices": [1, 2]},
        {"process": 1, "devices": [4, 8], "psum": 8.0, "slices": [1, 2]},
    ]


@pytest.mark.daily
def test_a_submitted_job_runs_on_every_worker(
    tpuctl: Callable[..., CommandResult], simulator: RunningSimulator
) -> None:
    Path("job.py").write_text(JOB)
    assert tpuctl("up", "v5litepod-16", "--framework", "jax", "--yes").code == 0
    submitted = tpuctl("submit", "job.py")
    assert submitted.code == 0, submitted.err
    followed = tpuctl("logs", "-f")
    assert followed.code == 0, followed.out + followed.err
    assert "Linked this machine's packages: jax-" in followed.out, "nothing is downloaded"
    lines = re.findall(r"\d of .* chips", followed.out)
    assert sorted(lines) == [f"{worker} of 4: worker {worker}, 16 chips" for worker in range(4)]


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


ADD = "import torch, torch_xla; print(float((torch.ones(3, device=torch_xla.device()) * 2).sum()))"


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
