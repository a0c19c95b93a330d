"""JAX programs as they are, on every host of a simulated slice: they find each other and compute together."""

from __future__ import annotations

import json
import re
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
