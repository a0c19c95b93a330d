"""A random workload from a seed: the real clients use a simulator while faults occur."""

from __future__ import annotations

import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import requests
from google.api_core import exceptions
from google.api_core.future.polling import DEFAULT_POLLING
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage, tpu_v2
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from google.cloud.storage.retry import DEFAULT_RETRY
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tpuctl.cloud.simulator import PublishedEndpoints
from tpuctl.cloud.simulator.process import ControlClient
from tpuctl.cloud.ssh import make_key, read_public_key
from tpuctl.faults import request

USER = "ada"
POLLING = DEFAULT_POLLING.with_delay(0.01, 0.1).with_timeout(60)
PARENT = "projects/sim-project/locations/europe-west4-a"
RETRY = DEFAULT_RETRY.with_delay(0.05, 1.3, 0.2)
TYPES = ("v3-8", "v3-8", "v2-8", "v3-32")
JOB = "python3 -c 'print(sum(range(1000)))'; nohup setsid sleep 300 > /dev/null 2>&1 & echo started"
EXPECTED_ERRORS = (
    exceptions.GoogleAPIError,
    InvalidResponse,
    DataCorruption,
    requests.RequestException,
    ConnectionError,
    subprocess.SubprocessError,
    AssertionError,
)
"""Errors that a client may get while a fault is active."""

FAULTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("stockout", {"zone": "europe-west4-a", "count": 1}),
    ("quota", {"zone": "europe-west4-a", "limit": 0, "count": 1}),
    ("unavailable", {"method": "CreateNode", "when": "after", "count": 1}),
    ("unavailable", {"method": "GetOperation", "count": 2}),
    ("deadline-exceeded", {"method": "tpu.*", "count": 1}),
    ("failed-operation", {"method": "DeleteNode", "count": 1}),
    ("slow-operation", {"method": "CreateNode", "seconds": 0.3, "count": 1}),
    ("preemption", {"node": "n*", "count": 1}),
    ("maintenance", {"node": "n*", "count": 1}),
    ("host-hang", {"node": "n*", "worker": "0", "duration": 0.5}),
    ("host-death", {"node": "n*", "duration": 0.5}),
    ("network-loss", {"node": "n*", "duration": 0.5}),
    ("ssh-refused", {"node": "n*", "duration": 0.3}),
    ("wrong-host-key", {"node": "n*", "duration": 0.5}),
    ("disk-full", {"node": "n*", "duration": 0.5}),
    ("gcs-error", {"status": "503", "method": "storage.objects.*", "count": 3}),
    ("gcs-error", {"status": "429", "method": "storage.objects.create", "count": 2}),
    ("gcs-reset", {"method": "storage.objects.get", "count": 1}),
    ("gcs-reset", {"method": "storage.objects.create", "when": "after", "count": 1}),
    ("gcs-cut", {"bytes": 200_000, "method": "storage.objects.create", "count": 1}),
    ("gcs-cut", {"bytes": 100_000, "method": "storage.objects.get", "count": 1}),
    ("gcs-corrupt", {"method": "storage.objects.get", "count": 1}),
    ("gcs-stall", {"method": "storage.objects.get", "seconds": 0.3, "count": 1}),
    ("gcs-slow", {"latency": 0.01, "bandwidth": 20_000_000}),
)


def faults(seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every fault once, then all again in another order, without end."""
    rng = random.Random(seed)
    while True:
        yield from rng.sample(FAULTS, len(FAULTS))


class Workload:
    """Rounds of work with the real clients; all choices depend on `seed`."""

    def __init__(self, served: PublishedEndpoints, folder: Path, client_folder: Path, seed: int) -> None:
        self.succeeded: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self._served = served
        self._random = random.Random(seed)
        self._faults = faults(seed)
        self._key = client_folder / "id_ed25519"
        make_key(self._key)
        self._control = ControlClient(folder)
        self._ssh_config = folder / "hosts.ssh_config"
        self._channel = grpc.insecure_channel(served.tpu_grpc, options=[("grpc.enable_http_proxy", 0)])
        self._tpu = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=self._channel))
        self._storage = storage.Client(
            project=served.project,
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": served.storage},
        )
        self._bucket = self._storage.bucket(served.bucket)
        self._timeout_factor = 1

    def close(self) -> None:
        """Close the clients."""
        self._channel.close()
        self._storage.close()

    def round(self, number: int, *, faulty: bool) -> None:
        """Create a node, move objects, run a job, and clean up; without faults everything must succeed."""
        name = f"n{number}"
        self._timeout_factor = 1 if faulty else 10
        if faulty:
            for kind, options in islice(self._faults, self._random.randint(1, 4)):
                self._control.add([request(kind, options)])
                self.succeeded[f"fault {kind}"] += 1
        steps: list[tuple[str, Callable[[], None]]] = [
            ("objects", lambda: self._objects(number)),
            ("node", lambda: self._create(name)),
            ("job", lambda: self._job(name)),
            ("queued resource", lambda: self._queue(f"q{number}")),
        ]
        self._random.shuffle(steps)
        steps.sort(key=lambda step: step[0] == "job")  # it needs the node
        for label, step in steps:
            with self._tolerating(label, faulty=faulty):
                step()
        self._clean_up()

    @contextmanager
    def _tolerating(self, step: str, *, faulty: bool) -> Iterator[None]:
        try:
            yield
        except EXPECTED_ERRORS:
            if not faulty:
                raise
            self.failed[step] += 1
        else:
            self.succeeded[step] += 1

    def _create(self, name: str) -> None:
        node = tpu_v2.Node(
            accelerator_type=self._random.choice(TYPES),
            runtime_version="tpu-ubuntu2204-base",
            network_config={"enable_external_ips": True},
            metadata={"ssh-keys": f"{USER}:{read_public_key(self._key)} {USER}"},
        )
        self._tpu.create_node(parent=PARENT, node_id=name, node=node).result(polling=POLLING)

    def _queue(self, name: str) -> None:
        spec = tpu_v2.QueuedResource.Tpu.NodeSpec(
            parent=PARENT,
            node_id=f"{name}-node",
            node=tpu_v2.Node(accelerator_type="v2-8", runtime_version="tpu-ubuntu2204-base"),
        )
        queued = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
        self._tpu.create_queued_resource(
            parent=PARENT, queued_resource_id=name, queued_resource=queued
        ).result(polling=POLLING)

    def _job(self, name: str) -> None:
        node = self._tpu.get_node(name=f"{PARENT}/nodes/{name}")
        address = self._random.choice(node.network_endpoints).ip_address
        ssh = ["ssh", "-F", str(self._ssh_config), "-i", str(self._key), "-l", USER]
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR",
                   f"ConnectTimeout={3 * self._timeout_factor}",
                   f"ServerAliveInterval={self._timeout_factor}", "ServerAliveCountMax=3")  # fmt: skip
        command = [*ssh, *(word for option in options for word in ("-o", option)), address, JOB]
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=60 * self._timeout_factor, check=True
        )
        assert result.stdout.split() == ["499500", "started"]

    def _objects(self, number: int) -> None:
        data = os.urandom(self._random.choice((1_000, 400_000, 9_000_000)))
        blob = self._bucket.blob(f"round-{number}/data", chunk_size=self._random.choice((None, 1 << 20)))
        retry, timeout = RETRY.with_timeout(5 * self._timeout_factor), 10 * self._timeout_factor
        blob.upload_from_string(data, retry=retry, timeout=timeout)
        downloaded = self._bucket.blob(blob.name).download_as_bytes(retry=retry, timeout=timeout)
        assert downloaded == data
        (listed,) = self._storage.list_blobs(self._bucket, prefix=f"round-{number}/", retry=retry)
        assert listed.size == len(data)

    def _clean_up(self) -> None:
        """Delete everything; without faults nothing may prevent that."""
        self._control.clear()
        for queued in self._tpu.list_queued_resources(parent=PARENT):
            deleting = tpu_v2.DeleteQueuedResourceRequest(name=queued.name, force=True)
            self._until_gone(lambda deleting=deleting: self._tpu.delete_queued_resource(deleting))
        for node in self._tpu.list_nodes(parent=PARENT):
            self._until_gone(lambda name=node.name: self._tpu.delete_node(name=name))
        assert not list(self._tpu.list_nodes(parent=PARENT))
        for blob in list(self._storage.list_blobs(self._bucket, versions=True)):
            blob.delete()

    def _until_gone(self, delete: Callable[[], Any]) -> None:
        """Delete a resource that another operation may use or delete meanwhile."""
        for _ in range(20):
            try:
                delete().result(polling=POLLING)
            except exceptions.NotFound:
                return
            except exceptions.GoogleAPICallError as busy:
                last = busy
            else:
                return
        raise last
