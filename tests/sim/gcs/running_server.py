"""Cloud Storage in a thread or in a process of its own, and the real client for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.event_loops.thread import LoopThread
from tests.paths import ROOT
from tests.sim.guards import guard_of
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.server import RUNNER_OPTIONS, GcsServer
from tpuctl.sim.network.certificate_authority import CertificateAuthority
from tpuctl.sim.network.proxy import ConnectProxy, Refuse, Serve

Result = TypeVar("Result")

PROJECT = "acme"
BUCKET = "acme-data"


class RunningGcs:
    """A GcsServer that listens, in a thread with a loop of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.faults = FaultRegistry()
        self.keys: dict[str, RSAPublicKey] = {}
        """The public key of each service account that may sign URLs."""
        self.accounts: dict[str, str] = {}
        """The service account of each token that a host sends."""
        self.server = GcsServer(root, self.faults, self.keys.get, lambda token: self.accounts.get(token, ""))
        self.server.store.ensure_bucket(BUCKET, PROJECT)
        self._thread = LoopThread()
        self.loop = self._thread.loop
        self.runner = web.AppRunner(self.server.application(), shutdown_timeout=1, **RUNNER_OPTIONS)
        self._thread.start(self._listen())
        self.port: int = self.runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"

    def call(self, work: Coroutine[object, object, Result]) -> Result:
        """Run a coroutine in the server's loop and return its result."""
        return self._thread.run(work)

    def blob_files(self) -> list[Path]:
        """Return the files with objects' bytes."""
        return blob_files(self.root)

    def close(self) -> None:
        self._thread.finish(self.runner.cleanup())
        self.server.close()

    async def _listen(self) -> None:
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0, backlog=256).start()


def blob_files(root: Path) -> list[Path]:
    """Return the files with objects' bytes in a store's folder."""
    return [path for path in (root / "blobs").rglob("*") if path.is_file()]


@contextmanager
def client_of(url: str) -> Iterator[storage.Client]:
    client = storage.Client(
        project=PROJECT, credentials=AnonymousCredentials(), client_options={"api_endpoint": url}
    )
    with closing(client):
        yield client


@contextmanager
def proxy_to(gcs: RunningGcs, folder: Path) -> Iterator[tuple[str, str]]:
    """A proxy that resolves Google's names to this server: its URL, and the file of trusted roots."""
    authority = CertificateAuthority(folder)
    server = Serve(gcs.runner.server)
    routes = {"storage.googleapis.com": server, "www.googleapis.com": server, "*": Refuse("not here")}
    proxy = ConnectProxy(routes, authority, guard_of(folder))
    port = gcs.call(proxy.start())
    try:
        yield f"http://127.0.0.1:{port}", str(authority.ca_file)
    finally:
        gcs.call(proxy.close())


@contextmanager
def refused(kind: type[exceptions.GoogleAPICallError], match: str | None = None) -> Iterator[None]:
    """Expect the client to fail; a failed download leaves its response open, so close it."""
    with pytest.raises(kind, match=match) as caught:
        yield
    if caught.value.response is not None:
        caught.value.response.close()


@contextmanager
def gcs_process(root: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Cloud Storage in a process of its own: the process and its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.sim.gcs.server_process", root, *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            yield process, f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()
            process.wait()
