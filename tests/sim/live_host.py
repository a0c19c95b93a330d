"""A user with an SSH key, and a way to run commands on a simulated host."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import paramiko
from google.api_core.future.polling import DEFAULT_POLLING
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tpuctl.cloud.ssh import make_key, read_public_key

USER = "ada"
POLLING = DEFAULT_POLLING.with_delay(0.01, 0.1).with_timeout(60)
PARENT = "projects/sim-project/locations/europe-west4-a"


class User:
    """Has a key; creates nodes that accept it, and logs in."""

    def __init__(self, folder: Path) -> None:
        self.key = folder / "id_ed25519"
        make_key(self.key)
        self.public = read_public_key(self.key)

    @property
    def key_line(self) -> str:
        """The key as a line of `ssh-keys`."""
        return f"{USER}:{self.public} {USER}"

    def create(
        self,
        address: str,
        node_id: str = "one",
        accelerator: str = "v3-8",
        metadata: dict[str, str] | None = None,
        parent: str = PARENT,
        runtime: str = "tpu-ubuntu2204-base",
    ) -> Any:
        """Create a spot node over gRPC, whose metadata is the key alone unless given, and wait for READY."""
        node = tpu_v2.Node(
            accelerator_type=accelerator,
            runtime_version=runtime,
            scheduling_config=tpu_v2.SchedulingConfig(spot=True),
            network_config=tpu_v2.NetworkConfig(enable_external_ips=True),
            metadata={"ssh-keys": self.key_line} if metadata is None else metadata,
        )
        with tpu_client(address) as client:
            return client.create_node(parent=parent, node_id=node_id, node=node).result(polling=POLLING)

    def delete(self, address: str, node_id: str) -> None:
        """Delete a node and wait until it is gone."""
        with tpu_client(address) as client:
            client.delete_node(name=f"{PARENT}/nodes/{node_id}").result(polling=POLLING)

    def run(self, hosts_file: Path, address: str, command: str, timeout: float = 60) -> str:
        """Run a command on the host at `address` and return its output; it has to succeed."""
        host, port = json.loads(hosts_file.read_text())[address]
        with paramiko.SSHClient() as client:
            client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
            client.connect(
                host,
                port,
                USER,
                key_filename=str(self.key),
                allow_agent=False,
                look_for_keys=False,
                timeout=60,
            )
            _, out, err = client.exec_command(command, timeout=timeout)
            text, errors = out.read().decode(), err.read().decode()
            assert out.channel.recv_exit_status() == 0, errors
        return text

    def install(self, hosts_file: Path, address: str, *requirements: str) -> None:
        """Install packages on the host, as a user of a real one has to."""
        self.run(hosts_file, address, f"python3 -m pip install {shlex.join(requirements)}")

    def run_script(
        self, hosts_file: Path, address: str, script: str, *, before: str = "", after: str = ""
    ) -> str:
        """Put a script on the host and run `BEFORE python3 script.py AFTER`; returns what it prints."""
        put = f"printf %s {shlex.quote(script)} > script.py"
        return self.run(hosts_file, address, f"{put}; {before} python3 script.py {after}", timeout=200)


@contextmanager
def tpu_client(address: str) -> Iterator[tpu_v2.TpuClient]:
    """A client of the Cloud TPU API at an address of loopback."""
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        yield tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))


def wait_until(true: Callable[[], object], seconds: float = 120.0) -> None:
    """Look until something has happened in another process."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
