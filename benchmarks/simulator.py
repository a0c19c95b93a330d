"""The simulator's speed: start, calls, long lists, a large slice and its memory, SSH to a host."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import paramiko
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from benchmarks.measure import report, rows
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.records import GuestAttribute, Host
from tpuctl.sim.settings import profile
from tpuctl.sim.state import Database
from tpuctl.sim.tpu import grpc_api
from tpuctl.sim.world import World

ZONE = "europe-west4-a"
RUNTIME = "tpu-ubuntu2204-base"
NODES = 10_000
LISTED = f"{NODES:,} nodes listed in pages"
TARGETS = {
    "ready from cold": "1.5 s at most",
    "GET node over gRPC": "2 ms at most",
    LISTED: "no error",
    "v3-2048 (256 hosts) ready": "2 s at most",
    "`true` over a fresh paramiko connection": "20 ms at most",
}
MEMORY = "100 MB at most"

Times = list[tuple[float, float]]
"""Wall and CPU seconds of each run."""


def main() -> None:
    """Measure and report."""
    times = {"ready from cold": cold_start(), LISTED: long_list()}
    with fresh() as (_, endpoints), client(endpoints["tpu_grpc"]) as api:
        times["GET node over gRPC"] = get_node(api, endpoints["project"])
        times["`true` over a fresh paramiko connection"] = true_over_ssh(api, endpoints)
    with fresh() as (process, endpoints), client(endpoints["tpu_grpc"]) as api:
        before = memory(process.pid)
        times["v3-2048 (256 hosts) ready"] = large_slice(api, endpoints["project"])
        after = memory(process.pid)
    measured = rows(times)
    notes = [f"{row.name}: {row.wall * 1000:.2f} ms; target: {TARGETS[row.name]}" for row in measured]
    notes.append(f"memory with 256 hosts up: {after:.0f} MB, before {before:.0f} MB; target: {MEMORY}")
    notes.append("CPU: of the client alone")
    report("simulator", measured, [], notes)


def cold_start(runs: int = 5) -> Times:
    """From the start of `python -m tpuctl.sim` to its endpoints file."""
    times = []
    for _ in range(runs + 1):
        began, used = time.perf_counter(), time.process_time()
        with fresh():
            times.append((time.perf_counter() - began, time.process_time() - used))
    return times[1:]


def get_node(api: tpu_v2.TpuClient, project: str) -> Times:
    """One call after the other on one connection."""
    name = create(api, project, "one", "v3-8")
    return _timed(lambda: api.get_node(name=name), runs=500)


def long_list() -> Times:
    """Through the official client, page by page, from a world of nodes without running hosts."""
    with many_nodes() as address, client(address) as api:

        def all_pages() -> None:
            nodes = api.list_nodes(parent="projects/bench/locations/-")
            assert sum(1 for _ in nodes) == NODES

        return _timed(all_pages, runs=5)


def large_slice(api: tpu_v2.TpuClient, project: str) -> Times:
    """From the request to the end of its operation, once."""
    began, used = time.perf_counter(), time.process_time()
    create(api, project, "large", "v3-2048")
    return [(time.perf_counter() - began, time.process_time() - used)]


def true_over_ssh(api: tpu_v2.TpuClient, endpoints: dict[str, Any]) -> Times:
    """Connect, authenticate, run `true`, close."""
    key = paramiko.ECDSAKey.generate()
    keys = f"bench:{key.get_name()} {key.get_base64()} bench"
    name = create(api, endpoints["project"], "ssh", "v3-8", metadata={"ssh-keys": keys})
    address = api.get_node(name=name).network_endpoints[0].ip_address
    host, port = json.loads(Path(endpoints["hosts_file"]).read_text())[address]

    def true() -> None:
        with paramiko.SSHClient() as ssh:
            ssh.set_missing_host_key_policy(paramiko.AutoAddPolicy())
            ssh.connect(host, port, "bench", pkey=key, look_for_keys=False, allow_agent=False)
            _, out, _ = ssh.exec_command("true")
            assert out.channel.recv_exit_status() == 0

    return _timed(true, runs=30)


def create(api: tpu_v2.TpuClient, project: str, node_id: str, accelerator: str, **fields: Any) -> str:
    """Create a node and return its name when it is READY."""
    node = tpu_v2.Node(accelerator_type=accelerator, runtime_version=RUNTIME, **fields)
    parent = f"projects/{project}/locations/{ZONE}"
    operation = api.create_node(parent=parent, node_id=node_id, node=node)
    while not api.get_operation({"name": operation.operation.name}).done:
        time.sleep(0.01)
    return f"{parent}/nodes/{node_id}"


def memory(process: int) -> float:
    """Return the resident memory of a process in MB, as `ps` of Linux and macOS says."""
    ps = subprocess.run(["ps", "-o", "rss=", "-p", str(process)], capture_output=True, text=True, check=True)
    return int(ps.stdout) / 1024


@contextmanager
def fresh() -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """A simulator of its own, with what its endpoints file says."""
    with tempfile.TemporaryDirectory(prefix="tpuctl-bench-") as folder:
        command = [sys.executable, "-m", "tpuctl.sim", "--folder", folder, "--idle", "0"]
        with subprocess.Popen(command, env={**os.environ, "TPUCTL_STATE": folder}) as process:
            endpoints = Path(folder) / "endpoints.json"
            while not endpoints.exists():
                if process.poll() is not None:
                    raise SystemExit("the simulator did not start")
                time.sleep(0.002)
            try:
                yield process, json.loads(endpoints.read_text())
            finally:
                process.send_signal(signal.SIGTERM)


@contextmanager
def client(address: str) -> Iterator[tpu_v2.TpuClient]:
    """The official client."""
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        yield tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))


@contextmanager
def many_nodes() -> Iterator[str]:
    """The address of an API with many nodes, on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    with tempfile.TemporaryDirectory(prefix="tpuctl-bench-") as folder:
        database = Database(Path(folder) / "world.db")
        world, server, address = asyncio.run_coroutine_threadsafe(_serve_many(database), loop).result()
        try:
            yield address
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(None), loop).result()
            asyncio.run_coroutine_threadsafe(world.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
            database.close()


async def _serve_many(database: Database) -> tuple[World, Any, str]:
    world = World(database, profile("instant"), NoHosts(), FaultRegistry())
    fields = {"acceleratorType": "v3-8", "runtimeVersion": RUNTIME}
    for number in range(NODES):
        world.nodes.create(f"projects/bench/locations/{ZONE}", f"n{number}", fields)
    while world.operations.running():
        await asyncio.sleep(0.01)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(tuple(grpc_api.handlers(world)))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    return world, server, address


class NoHosts:
    """Hosts that are never started, for nodes that are READY nevertheless."""

    async def start(self, hosts: Sequence[Host], metadata: dict[str, str]) -> None: ...

    async def stop(self, hosts: Sequence[Host], *, keep_disk: bool) -> None: ...

    async def update_metadata(self, hosts: Sequence[Host], metadata: dict[str, str]) -> None: ...

    async def announce(self, hosts: Sequence[Host], notices: Any) -> None: ...

    def guest_attributes(self, host: Host) -> list[GuestAttribute]:
        return []


def _timed(work: Callable[[], Any], runs: int) -> Times:
    """Wall and CPU seconds of each run, after one that does not count."""
    times = []
    for _ in range(runs + 1):
        began, used = time.perf_counter(), time.process_time()
        work()
        times.append((time.perf_counter() - began, time.process_time() - used))
    return times[1:]


if __name__ == "__main__":
    main()
