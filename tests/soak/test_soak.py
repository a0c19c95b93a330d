"""Random rounds of work with faults: afterwards no resources are leaked, and memory has not grown."""

from __future__ import annotations

import json
import os
import random
import re
import sqlite3
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
import requests
from google.api_core import exceptions
from google.api_core.future.polling import DEFAULT_POLLING
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage, tpu_v2
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from google.cloud.storage.retry import DEFAULT_RETRY
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tpuctl.cloud import simulator as simulator_process
from tpuctl.cloud.simulator import PublishedEndpoints
from tpuctl.cloud.simulator.process import ControlClient
from tpuctl.cloud.ssh import make_key, read_public_key
from tpuctl.errors import DeadlineError
from tpuctl.faults import request
from tpuctl.polling import Backoff, poll
from tpuctl.sim.hosts.programs.processes import snapshot, world_mark

BOUNDED = ("events.jsonl", "simulator.log", "world.db", "metadata.db")
"""Files of fixed number and bounded size, with the files that SQLite keeps beside them."""
ALLOWANCE = 8.0
"""MB that memory may grow between two quarters of the run: allocators, caches that fill."""


@dataclass(frozen=True)
class Reading:
    """The resources of an idle simulator, without nodes, objects and faults."""

    seconds: float
    memory: float
    """Resident, MB."""
    descriptors: dict[str, int]
    """Kind (socket, pipe, anon_inode, or the name of a file in the simulator's folder) -> count."""
    threads: int
    processes: list[int] = field(default_factory=list)
    """Processes of its hosts."""
    files: list[str] = field(default_factory=list)
    """Files in its folder and its temporary folder, without the bounded ones and interrupted uploads. Those
    can be resumed for a week, as in Cloud Storage."""


def read(pid: int, folder: Path, temporary: Path, seconds: float) -> Reading:
    """Take a reading of the simulator with this process id."""
    status = (Path("/proc") / str(pid) / "status").read_text()
    mark = world_mark(folder / "hosts")
    return Reading(
        seconds=seconds,
        memory=int(_field(status, "VmRSS")) / 1024,
        descriptors=dict(_descriptors(pid)),
        threads=int(_field(status, "Threads")),
        processes=[process.pid for process in snapshot() if process.mark.startswith(mark)],
        files=sorted({*_files(folder), *_files(temporary)} - _resumable_uploads(folder)),
    )


def growth(readings: list[Reading]) -> float:
    """Return the growth of memory in MB from the second quarter of the run to the last, by their medians.

    The first quarter is warm-up: imports, thread pools, caches.
    """
    quarter = len(readings) // 4
    early, late = readings[quarter : 2 * quarter], readings[-quarter:]
    return statistics.median(reading.memory for reading in late) - statistics.median(
        reading.memory for reading in early
    )


def slope(readings: list[Reading]) -> float:
    """Return the trend of memory after the first quarter, in MB an hour (least squares)."""
    settled = readings[len(readings) // 4 :]
    seconds = [reading.seconds for reading in settled]
    line = statistics.linear_regression(seconds, [reading.memory for reading in settled])
    return line.slope * 3600


def _descriptors(pid: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    folder = Path("/proc") / str(pid) / "fd"
    for name in os.listdir(folder):
        try:
            target = os.readlink(folder / name)
        except FileNotFoundError:
            continue
        counts[re.sub(r":\[.*", "", target).rpartition("/")[2]] += 1
    return counts


def _files(folder: Path) -> list[str]:
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(BOUNDED)
    ]


def _resumable_uploads(folder: Path) -> set[str]:
    """Return the files of uploads that can be resumed."""
    with closing(sqlite3.connect(f"file:{folder}/gcs/metadata.db?mode=ro", uri=True)) as database:
        blobs = [blob for (blob,) in database.execute("select blob from sessions where blob != ''")]
    return {f"gcs/blobs/{blob[:2]}/{blob}" for blob in blobs}


def _field(status: str, name: str) -> str:
    match = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    assert match
    return match[1]


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


MINUTES = 120
"""Seconds of a long run in make test-all; an hour by TPUCTL_SOAK_SECONDS=3600."""
ROUNDS = 48
"""Enough for every fault: three rounds of four have one or more. They take about twenty seconds."""
SECONDS = os.environ.get("TPUCTL_SOAK_SECONDS")
"""Least duration, in place of the default (the rounds alone, or MINUTES)."""
REPORT = os.environ.get("TPUCTL_SOAK_REPORT")
"""A file for the measurements."""
SEED = int(os.environ.get("TPUCTL_SOAK_SEED", "1"))
QUIET = 4
"""Every such round has no faults, and everything must succeed."""
FEWEST = 8
"""Least number of rounds for a comparison."""
POOL = 16
"""Threads that are always allowed: a pool for files and name lookups that fills on demand, and gRPC's own."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")]


@pytest.fixture
def temporary(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The simulator's folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def folder(temporary: Path, tmp_path: Path) -> Iterator[Path]:
    """The folder of the simulator, which is deleted after the test."""
    folder = tmp_path / "state" / "sim"
    yield folder
    simulator_process.reset(folder)


def test_nothing_is_leaked_after_many_rounds(folder: Path, temporary: Path, tmp_path: Path) -> None:
    workload = soak(folder, temporary, tmp_path, rounds=ROUNDS, seconds=float(SECONDS or 0))
    assert {f"fault {kind}" for kind, _ in FAULTS} <= set(workload.succeeded)


@pytest.mark.timeout(2 * float(SECONDS or 0) + 1800)
def test_nothing_is_leaked_after_minutes(folder: Path, temporary: Path, tmp_path: Path) -> None:
    soak(folder, temporary, tmp_path, rounds=FEWEST, seconds=float(SECONDS or MINUTES))


def soak(folder: Path, temporary: Path, client_folder: Path, *, rounds: int, seconds: float) -> Workload:
    """Run the workload, and compare the resources of the idle simulator with those early in the run.

    A reading is taken after each round, when everything is deleted again.
    """
    served = simulator_process.ensure(folder, "--idle", "0")
    workload = Workload(served, folder, client_folder, SEED)
    readings: list[Reading] = []
    begun = time.monotonic()
    try:
        while len(readings) < rounds or time.monotonic() - begun < seconds:
            number = len(readings)
            workload.round(number, faulty=number % QUIET != 0)
            readings.append(read(served.pid, folder, temporary, time.monotonic() - begun))
    finally:
        workload.close()
        _report(readings, workload)
    _assert_idle(served, folder, temporary, readings)
    assert growth(readings) < ALLOWANCE, f"memory grew by {growth(readings):.1f} MB"
    assert simulator_process.stop(folder)
    assert list(temporary.iterdir()) == []
    return workload


def _assert_idle(served: PublishedEndpoints, folder: Path, temporary: Path, readings: list[Reading]) -> None:
    """Wait until it has no more resources than early in the run; connections take a moment to end."""
    early = readings[: max(FEWEST, len(readings) // 2)]
    kinds = {kind for reading in early for kind in reading.descriptors}
    most = {kind: max(reading.descriptors.get(kind, 0) for reading in early) for kind in kinds}
    threads = max(POOL, *(reading.threads for reading in early))

    def leaked() -> dict[str, object]:
        now = read(served.pid, folder, temporary, 0)
        more = {kind: count for kind, count in now.descriptors.items() if count > most.get(kind, 0)}
        new = [path for path in now.files if path not in readings[0].files]
        excess = {"processes": now.processes, "files": new, "descriptors": more}
        return {**excess, "threads": now.threads if now.threads > threads else 0}

    try:
        poll(
            lambda: None if any(leaked().values()) else True,
            awaiting="an idle simulator",
            timeout=100,
            backoff=Backoff(0.1),
        )
    except DeadlineError:
        connections = psutil.Process(served.pid).net_connections("all")
        lines = [f"{item.laddr} {item.raddr} {item.status}" for item in connections]
        raise AssertionError(
            "\n".join([f"leaked: {leaked()}; early in the run: {most}, {threads} threads", *lines])
        ) from None


def _report(readings: list[Reading], workload: Workload) -> None:
    """Write the measurements to REPORT, to analyse a long run."""
    if not REPORT or len(readings) < FEWEST:
        return
    content = {
        "rounds": len(readings),
        "seconds": round(readings[-1].seconds),
        "memory first, settled, last (MB)": [
            round(readings[place].memory, 1) for place in (0, len(readings) // 4, -1)
        ],
        "growth (MB)": round(growth(readings), 2),
        "slope (MB an hour)": round(slope(readings), 2),
        "descriptors": [sum(reading.descriptors.values()) for reading in readings],
        "threads": [reading.threads for reading in readings],
        "memory": [round(reading.memory, 1) for reading in readings],
        "succeeded": dict(workload.succeeded),
        "failed": dict(workload.failed),
    }
    Path(REPORT).write_text(json.dumps(content, indent=1))
