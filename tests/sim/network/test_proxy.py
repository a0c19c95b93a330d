"""The CONNECT proxy and its certificate authority: real clients, TensorFlow's framing, tunnels, refusals."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import stat
import struct
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from aiohttp import web
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.event_loops.thread import LoopThread
from tests.sim.guards import guard_of
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs.server import RUNNER_OPTIONS, GcsServer
from tpuctl.sim.network.certificate_authority import BUNDLE_VARIABLES, CertificateAuthority
from tpuctl.sim.network.proxy import ConnectProxy, FramingRepair, Refuse, Route, Serve, Tunnel

GOOGLE = "storage.googleapis.com"


class Echo(asyncio.Protocol):
    """Sends back what it gets, and ends when the other side does."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Network:
    """A proxy with Cloud Storage and an echo server behind it, in a thread."""

    def __init__(self, folder: Path) -> None:
        self.gcs = GcsServer(folder / "gcs", FaultRegistry())
        self.gcs.store.ensure_bucket("acme-data", "acme")
        self.authority = CertificateAuthority(folder / "ca")
        self._folder = folder
        self._thread = LoopThread()
        self._thread.start(self._start())
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._thread.finish(self._stop())
        self.gcs.close()

    def connect(self, target: str) -> tuple[socket.socket, bytes]:
        """Ask the proxy for a connection: the socket, and the head of the answer."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1)
        return connection, head

    def secure(self, host: str) -> ssl.SSLSocket:
        """Connect to a host through the proxy, under TLS."""
        connection, head = self.connect(f"{host}:443")
        assert head.startswith(b"HTTP/1.1 200 ")
        context = ssl.create_default_context(cafile=str(self.authority.ca_file))
        return context.wrap_socket(connection, server_hostname=host)

    def _call(self, work: Any) -> Any:
        return self._thread.run(work)

    async def _start(self) -> None:
        self._runner = web.AppRunner(self.gcs.application(), shutdown_timeout=1, **RUNNER_OPTIONS)
        await self._runner.setup()
        assert self._runner.server is not None
        self._echo = await self._thread.loop.create_server(Echo, "127.0.0.1", 0)
        self.echo_port = self._echo.sockets[0].getsockname()[1]
        routes: dict[str, Route] = {
            GOOGLE: Serve(self._runner.server),
            "www.googleapis.com": Serve(self._runner.server),
            f"*.{GOOGLE}": Serve(self._runner.server),
            "tpu.googleapis.com": Tunnel("127.0.0.1", self.echo_port),
            "*.googleapis.com": Refuse("not part of the simulator"),
        }
        self._proxy = ConnectProxy(routes, self.authority, guard_of(self._folder))
        self.port = await self._proxy.start()

    async def _stop(self) -> None:
        await self._proxy.close()
        await self._runner.cleanup()
        self._echo.close()
        await self._echo.wait_closed()


@pytest.fixture(autouse=True)
def no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the developer's own certificates."""
    for name in BUNDLE_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with closing(Network(tmp_path)) as running:
        yield running


def answer_of(connection: socket.socket) -> bytes:
    """Read one HTTP answer with a Content-Length."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(4096)
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(4096)
    return head + b"\r\n\r\n" + body


def test_the_unmodified_client_reaches_the_simulator(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTPS_PROXY", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", network.url)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(network.authority.ca_file))
    monkeypatch.setenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    data = os.urandom(3 << 20)
    with closing(storage.Client("acme", AnonymousCredentials())) as client:
        blob = client.bucket("acme-data").blob("a", chunk_size=1 << 20)
        blob.upload_from_string(data)
        assert client.bucket("acme-data").blob("a").download_as_bytes() == data
        assert blob.self_link.startswith(f"https://{GOOGLE}/storage/v1/b/acme-data/o/a")


def test_requests_and_urllib_trust_the_authority(network: Network) -> None:
    network.gcs.store.ensure_bucket("acme-more", "acme")
    ca_file = str(network.authority.ca_file)
    with requests.Session() as http:
        http.trust_env = False
        http.proxies = {"https": network.url}
        assert http.put(f"https://acme-more.{GOOGLE}/a", data=b"1", verify=ca_file).status_code == 200
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({"https": network.url}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file)),
    )
    with opener.open("https://www.googleapis.com/storage/v1/b/acme-more/o/a?alt=media") as answer:
        assert answer.read() == b"1"


def test_a_session_location_is_https_under_tls(network: Network) -> None:
    with network.secure("www.googleapis.com") as connection:
        connection.sendall(
            b"POST /upload/storage/v1/b/acme-data/o?uploadType=resumable&name=dir%2Fa HTTP/1.1\r\n"
            b"Host: www.googleapis.com\r\nTransfer-Encoding: identity\r\nContent-Length: 0\r\n"
            b"X-Upload-Content-Length: 5\r\n\r\n"
        )
        head = answer_of(connection)
    assert head.startswith(b"HTTP/1.1 200")
    assert b"\r\nlocation: https://www.googleapis.com/upload/" in head.lower()


def test_tensorflows_framing_is_understood(network: Network) -> None:
    with network.secure("www.googleapis.com") as connection:
        connection.sendall(
            b"POST /upload/storage/v1/b/acme-data/o?uploadType=resumable&name=a HTTP/1.1\r\n"
            b"Host: www.googleapis.com\r\nContent-Length: 0\r\nTransfer-Encoding: identity\r\n\r\n"
        )
        head = answer_of(connection).decode()
        path = next(
            line.split("googleapis.com")[1]
            for line in head.splitlines()
            if line.lower().startswith("location")
        )
        connection.sendall(
            f"PUT {path} HTTP/1.1\r\nHost: www.googleapis.com\r\nTransfer-Encoding: chunked\r\n"
            "Content-Length: 11\r\nContent-Range: bytes 0-10/11\r\nExpect: 100-continue\r\n\r\n".encode()
        )
        assert connection.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n")
        assert answer_of(connection).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /acme-data/a HTTP/1.1\r\nHost: storage.googleapis.com\r\n\r\n")
        assert answer_of(connection).endswith(b"\r\n\r\nhello world")


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_framing_is_repaired_wherever_the_packets_end(step: int) -> None:
    sent = (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        b"POST /a HTTP/1.1\r\ntransfer-encoding:  Identity \r\nContent-Length: 21\r\n\r\n"
        b"Content-Length: 3\r\n\r\nPUT /b HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5;x=y\r\na\r\n\r\n\r\nA\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n"
        b"PUT /c HTTP/1.1\r\nContent-Length: 2\r\n\r\nxyGET /d HTTP/1.1\r\n\r\n"
    )
    expected = sent.replace(b"\r\ntransfer-encoding:  Identity ", b"").replace(b"Content-Length: 5\r\n", b"")
    repair = FramingRepair()
    out = b"".join(repair.feed(sent[at : at + step]) for at in range(0, len(sent), step))
    assert out == expected


def test_what_is_no_http_passes_unread() -> None:
    repair = FramingRepair()
    garbage = b"\x00" * (65 << 10)
    assert repair.feed(garbage) + repair.feed(b"more") == garbage + b"more"
    repair = FramingRepair()
    bad = b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc"
    assert repair.feed(bad) == bad


@pytest.mark.parametrize("host", ["tpu.googleapis.com:443", "127.0.0.1:{echo}", "localhost:{echo}"])
def test_tunnels_carry_bytes_both_ways_until_one_side_ends(network: Network, host: str) -> None:
    connection, head = network.connect(host.format(echo=network.echo_port))
    with connection:
        assert head.startswith(b"HTTP/1.1 200 ")
        data = os.urandom(4 << 20)
        sender = threading.Thread(target=connection.sendall, args=(data,), daemon=True)
        sender.start()
        received = bytearray()
        while len(received) < len(data):
            received += connection.recv(1 << 16)
        sender.join()
        assert bytes(received) == data
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""


def test_a_reset_on_one_side_ends_the_tunnel_on_the_other(network: Network) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection, _ = network.connect(f"127.0.0.1:{server.getsockname()[1]}")
        with server.accept()[0] as accepted:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            accepted.settimeout(60)
            with suppress(ConnectionResetError):
                assert accepted.recv(1) == b""


def test_hosts_outside_the_simulation_are_refused(network: Network) -> None:
    for host in ("compute.googleapis.com", "COMPUTE.googleapis.com."):
        connection, head = network.connect(f"{host}:443")
        with connection:
            reason = f"{host}: not part of the simulator".encode()
            assert head.startswith(b"HTTP/1.1 403 " + reason + b"\r\n"), "clients show the status line alone"
            assert connection.recv(4096) == reason + b"\n"


def test_http_is_refused_where_the_host_is_and_otherwise_not_served(network: Network) -> None:
    for request, status in (
        (b"GET http://compute.googleapis.com/a HTTP/1.1", b"403 compute.googleapis.com: not part of"),
        (b"GET http://example.com/a HTTP/1.1", b"405 "),
        (b"GET http://[/a HTTP/1.1", b"405 "),
    ):
        with socket.create_connection(("127.0.0.1", network.port), timeout=60) as connection:
            connection.sendall(request + b"\r\nHost: x\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 " + status)


def test_a_host_that_cannot_be_reached_is_a_bad_gateway(network: Network) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        port = closed.getsockname()[1]
        for target in (f"127.0.0.1:{port}", "no-such-host.invalid:443"):
            connection, head = network.connect(target)
            with connection:
                assert head.startswith(b"HTTP/1.1 502 ")


@pytest.mark.parametrize(
    "request_line",
    ["GET http://example.com/ HTTP/1.1", "CONNECT nowhere HTTP/1.1", "CONNECT a:99999 HTTP/1.1", "x"],
)
def test_only_connect_is_known(network: Network, request_line: str) -> None:
    with socket.create_connection(("127.0.0.1", network.port), timeout=60) as connection:
        connection.sendall(f"{request_line}\r\n\r\n".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 405 ")


def test_a_client_that_does_not_trust_us_is_let_go(network: Network) -> None:
    connection, _ = network.connect(f"{GOOGLE}:443")
    with connection, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(connection, server_hostname=GOOGLE)
    with network.secure(GOOGLE) as secure:
        assert secure.version() in ("TLSv1.2", "TLSv1.3")


def test_the_authority_is_the_same_after_a_restart_and_private(tmp_path: Path) -> None:
    first = CertificateAuthority(tmp_path)
    content = first.ca_file.read_bytes()
    second = CertificateAuthority(tmp_path)
    assert second.ca_file.read_bytes() == content
    assert content.count(b"BEGIN CERTIFICATE") > 10  # the system's roots are in it
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_bundle_of_the_users_own_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = CertificateAuthority(tmp_path / "corporate").ca_file
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    authority = CertificateAuthority(tmp_path / "ca")
    assert own.read_bytes().split(b"-----END")[0] in authority.ca_file.read_bytes()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    certificates = CertificateAuthority(tmp_path / "ca").ca_file.read_bytes().count(b"BEGIN")
    assert certificates < 2 * own.read_bytes().count(b"BEGIN")
