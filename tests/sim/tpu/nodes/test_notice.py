"""What a program on a host of a real simulator sees and feels of a preemption and of a maintenance event."""

from __future__ import annotations

import io
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import paramiko
import pytest
from google.cloud import tpu_v2, tpu_v2alpha1
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.cloud.tpu_v2alpha1.services.tpu.transports import TpuGrpcTransport as AlphaGrpcTransport

from tests.sim.tpu.api import POLLING

PARENT = "projects/sim-project/locations/europe-west4-a"
NODE = f"{PARENT}/nodes/one"
WATCH = """
import os, urllib.request
where = f"http://{os.environ['GCE_METADATA_HOST']}/computeMetadata/v1/instance/"
def read(path):
    request = urllib.request.Request(where + path, headers={"Metadata-Flavor": "Google"})
    response = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request)
    print(response.read().decode(), flush=True)
    return response.headers["ETag"]
etag = read("ENTRY")
read(f"ENTRY?wait_for_change=true&last_etag={etag}")
"""


class Host:
    """One host of a node, reached by SSH."""

    def __init__(self, simulator: Any, node: tpu_v2.Node, key: paramiko.PKey) -> None:
        table = json.loads(simulator.simulator.hosts.hosts_file.read_text())
        host, port = table[node.network_endpoints[0].ip_address]
        self._ssh = paramiko.SSHClient()
        self._ssh.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        self._ssh.connect(host, port, "ann", pkey=key, look_for_keys=False, allow_agent=False)

    def watch(self, entry: str) -> io.BufferedIOBase:
        """The output of a program that prints a metadata value and the next one."""
        self.run("cat > watch.py", WATCH.replace("ENTRY", entry))
        _, out, _ = self._ssh.exec_command("python3 watch.py")
        return out

    def run(self, command: str, stdin: str) -> None:
        writing, out, _ = self._ssh.exec_command(command)
        writing.write(stdin)
        writing.channel.shutdown_write()
        assert out.channel.recv_exit_status() == 0

    def close(self) -> None:
        self._ssh.close()


@pytest.fixture
def channel(simulator: Any) -> Any:
    address = simulator.simulator.endpoints["tpu_grpc"]
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as opened:
        yield opened


@pytest.fixture
def host(simulator: Any, channel: grpc.Channel) -> Any:
    key = paramiko.ECDSAKey.generate()
    metadata = {"ssh-keys": f"ann:{key.get_name()} {key.get_base64()} ann"}
    node = tpu_v2.Node(
        accelerator_type="v3-8",
        runtime_version="tpu-ubuntu2204-base",
        metadata=metadata,
        scheduling_config={"spot": True},
        network_config={"enable_external_ips": True},
    )
    client = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
    created = client.create_node(parent=PARENT, node_id="one", node=node).result(polling=POLLING)
    opened = Host(simulator, created, key)
    yield opened
    opened.close()


def test_a_program_reads_the_notice_and_runs_on_until_it_is_ended(simulator: Any, host: Host) -> None:
    out = host.watch("preempted")
    assert out.readline() == "FALSE\n"
    with ThreadPoolExecutor(1) as pool:
        preempting = pool.submit(simulator.call, simulator.world.preempt(NODE, notice=3600))
        assert out.readline() == "TRUE\n"
        host.run("true", "")
        assert simulator.world.nodes.all()[0].state == "READY"
        simulator.simulator.clock.advance(3600)
        preempting.result()
    assert simulator.world.nodes.all()[0].state == "PREEMPTED"
    with pytest.raises((socket.error, paramiko.SSHException, EOFError)):
        host.run("true", "")


def test_a_program_reads_of_a_maintenance_event_and_is_not_ended(
    simulator: Any, host: Host, channel: grpc.Channel
) -> None:
    out = host.watch("maintenance-event")
    assert out.readline() == "NONE\n"
    alpha = tpu_v2alpha1.TpuClient(transport=AlphaGrpcTransport(channel=channel))
    alpha.simulate_maintenance_event(request={"name": NODE}).result(polling=POLLING)
    assert out.readline() == "TERMINATE_ON_HOST_MAINTENANCE\n"
    host.run("true", "")
    assert simulator.world.nodes.all()[0].state == "READY"
