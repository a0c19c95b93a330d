"""Stock gcloud tunnels through the relay: the proof that it speaks the real protocol."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.isolation.ports import free_port
from tests.sim.iap.site import Site
from tests.sim.iap.test_relay import LARGE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not on the PATH"),
]


def start(site: Site, port: int, *options: str) -> subprocess.Popen[str]:
    """Run `gcloud compute start-iap-tunnel` to a port of the host."""
    environment: dict[str, str] = site.running.simulator.endpoints["environment"]
    command = ["gcloud", "compute", "start-iap-tunnel", site.host.hostname, str(port), *options]
    return subprocess.Popen(
        [*command, f"--zone={site.host.zone}"],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def connected(site: Site, port: int) -> Iterator[socket.socket]:
    """Yield a connection to the host's port through gcloud."""
    local = free_port()
    process = start(site, port, f"--local-host-port=127.0.0.1:{local}")
    try:
        with connect(local, process) as connection:
            connection.settimeout(60)
            yield connection
    finally:
        process.kill()
        process.communicate(timeout=60)


def connect(port: int, process: subprocess.Popen[str]) -> socket.socket:
    """Connect as soon as gcloud listens."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 60)
        except OSError:
            assert process.poll() is None, "gcloud has ended"
            assert time.monotonic() < deadline, "gcloud does not listen"
            time.sleep(0.05)


def test_bytes_go_both_ways_and_a_tunnel_that_is_cut_goes_on(site: Site, echo_port: int) -> None:
    with connected(site, echo_port) as connection:
        site.running.faults.add("iap-cut", bytes=2_000_000, count=1)
        sending = threading.Thread(target=connection.sendall, args=(LARGE,), daemon=True)
        sending.start()
        received = bytearray()
        while len(received) < len(LARGE):
            piece = connection.recv(1 << 16)
            assert piece, len(received)
            received += piece
        sending.join()
    assert received == LARGE
    assert site.running.events.find(service="iap", what="reconnect")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("4003", "[4003: 'failed to connect to backend']"),
        ("4033", "[4033: 'not authorized']"),
        ("401", "Handshake status 401"),
    ],
)
def test_gcloud_names_the_reason_of_a_refusal(site: Site, code: str, text: str) -> None:
    site.running.faults.add("iap-refused", code=code)
    _, errors = start(site, 22, "--listen-on-stdin").communicate(timeout=60)
    assert text in " ".join(errors.split()).replace('"', "'")
