"""Clients on httplib2, such as SkyPilot's: through the proxy with PySocks, and never past it without."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running_simulator import RunningSimulator
from tpuctl.sim.network.certificate_authority import CertificateAuthority

URL = "https://tpu.googleapis.com/v2/projects/sim-project/locations/europe-west4-a/nodes"
PROGRAM = """
import socket, sys
port, url, lacks_socks = int(sys.argv[1]), sys.argv[2], len(sys.argv) > 3
if lacks_socks:
    sys.modules["socks"] = None  # as where PySocks is not installed
addresses = socket.getaddrinfo
def real_network(host, at, *rest, **options):  # where the names of Google are those of another server
    is_google = host.endswith("googleapis.com")
    return addresses("127.0.0.1" if is_google else host, port if is_google else at, *rest, **options)
socket.getaddrinfo = real_network
connect = socket.socket.connect
socket.socket.connect = lambda own, to: connect(
    own, ("127.0.0.1", port) if to[0].endswith("googleapis.com") else to
)
import httplib2
try:
    token = {"Authorization": "Bearer of the simulator"}
    answer, body = httplib2.Http(timeout=60).request(url, headers=token)
    print(answer.status, body.decode())
except Exception as error:
    print(type(error).__name__)
"""


class RealService:
    """Stands for Google's own server: its certificate is good for what trusts this machine's authorities."""

    def __init__(self, authority: CertificateAuthority) -> None:
        requests: list[str] = []
        self.requests = requests

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                requests.append(self.headers.get("Authorization", ""))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"the real one")

            def log_message(self, *_: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = authority.server_context(["tpu.googleapis.com"])
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # who hangs up is expected
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealService]:
    """A server that this machine's own bundle of authorities, which the simulator takes over, trusts."""
    authority = CertificateAuthority(tmp_path / "roots")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    service = RealService(authority)
    yield service
    service.close()


@pytest.mark.parametrize(
    ("lacks", "printed"),
    [((), "200 {}"), (("PySocks",), "SSLCertVerificationError")],
    ids=["with", "without"],
)
def test_nothing_reaches_the_real_service(
    real: RealService, tmp_path: Path, lacks: tuple[str, ...], printed: str
) -> None:
    simulator = RunningSimulator(tmp_path / "sim")
    try:
        completed = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(real.port), URL, *lacks],
            env={"PATH": os.environ["PATH"], **simulator.simulator.endpoints["environment"]},
            capture_output=True,
            text=True,
            timeout=100,
        )
    finally:
        simulator.close()
    assert completed.stdout.strip() == printed, completed.stderr
    assert real.requests == []
