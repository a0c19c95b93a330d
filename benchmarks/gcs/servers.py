"""The servers that benchmarks/gcs measures, each in a process of its own: ours and a peer from PyPI."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from tpuctl.sim.events import Events
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.rules import Preconditions
from tpuctl.sim.gcs.server import RUNNER_OPTIONS, GcsServer
from tpuctl.sim.gcs.storage.store import Store

BUCKET = "bench-data"
LISTED = 100_000
FOLDERS = 1_000

PEER = "gcp-storage-emulator"
PEER_RANGE = "gcp-storage-emulator>=2022.6"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tpuctl-benchmarks" / PEER


@dataclass(frozen=True)
class Server:
    """A server that listens; `process` is what its memory is read from."""

    name: str
    port: int
    process: int

    def peak_memory(self) -> float | None:
        """Return the most memory it held at once, in MB; None where the system does not say."""
        try:
            lines = Path(f"/proc/{self.process}/status").read_text().splitlines()
        except OSError:
            return None
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM"))


@contextmanager
def ours(folder: Path) -> Iterator[Server]:
    """Our server, with a bucket of 100,000 objects in 1,000 folders beside the one to be filled."""
    _fill(folder)
    command = [sys.executable, "-m", "benchmarks.gcs.servers", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        try:
            yield Server("tpuctl", int(process.stdout.readline()), process.pid)
        finally:
            process.kill()
            process.wait()


@contextmanager
def peer(folder: Path) -> Iterator[Server]:
    """gcp-storage-emulator, in an environment of its own; raises OSError where it cannot be had."""
    program = _installed()
    port = _free_port()
    command = [str(program), f"--data-dir={folder}", "start", "--quiet", "--host=127.0.0.1", f"--port={port}"]
    command.append(f"--default-bucket={BUCKET}")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
    try:
        _wait(port)
        yield Server(PEER, port, process.pid)
    finally:
        process.kill()
        process.wait()


def _installed() -> Path:
    program = CACHE / "bin" / PEER
    if not program.exists():
        venv.create(CACHE, with_pip=True)
        install = [str(CACHE / "bin" / "python"), "-m", "pip", "install", "--quiet", PEER_RANGE]
        process = subprocess.run(install, capture_output=True, text=True, check=False)
        if process.returncode:
            raise OSError(f"{PEER} cannot be installed: {process.stderr.strip().splitlines()[-1]}")
    return program


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


def _wait(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/storage/v1/b/{BUCKET}", timeout=5).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _fill(folder: Path) -> None:
    with closing(Store(folder)) as store:
        store.ensure_bucket(BUCKET, "bench")
        store.ensure_bucket(f"{BUCKET}-listed", "bench")
        with store.blobs.create() as writer, store.database.transaction():
            content = writer.finish()
            for number in range(LISTED):
                name = f"folder-{number % FOLDERS:04}/object-{number:06}"
                store.objects.create(f"{BUCKET}-listed", name, content, {}, Preconditions())


async def _serve(folder: Path) -> None:
    faults = FaultRegistry(events=Events(path=folder / "events.jsonl"))
    runner = web.AppRunner(GcsServer(folder, faults).application(), **RUNNER_OPTIONS)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=256).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
