"""Tests the way to the relay: the user's proxy, and the user's certificate authorities."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
import requests

from tpuctl.cloud.iap import websocket
from tpuctl.cloud.iap.frames import Interruption
from tpuctl.sim.network.certificate_authority import CertificateAuthority

NAME = "tunnel.cloudproxy.app"


class Proxy:
    """An HTTP proxy that answers CONNECT, and connects everything to one server that speaks TLS."""

    def __init__(self, folder: Path) -> None:
        authority = CertificateAuthority(folder)
        self.ca_file = authority.ca_file
        self._context = authority.server_context([NAME])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.status = "200 Connection established"
        self.requests: list[str] = []
        self.left = threading.Event()
        """Set when a client that was refused has closed its connection."""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                stream, _ = self._listener.accept()
                with suppress(OSError), stream:
                    self._answer(stream)

    def _answer(self, stream: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            request += stream.recv(1)
        self.requests.append(request.decode())
        stream.sendall(f"HTTP/1.1 {self.status}\r\n\r\n".encode())
        if not self.status.startswith("200"):
            if not stream.recv(1):
                self.left.set()
            return
        with self._context.wrap_socket(stream, server_side=True) as inner:
            inner.sendall(b"hello")
            inner.recv(1)


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    for name in (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    running = Proxy(tmp_path)
    monkeypatch.setenv("https_proxy", f"http://ada:s%40cret@{running.address}")
    yield running
    running.close()


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_the_users_proxy_and_authorities_are_used(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(proxy.ca_file))
    with websocket.connect(f"wss://{NAME}/v4/connect", 60, is_local=False) as stream:
        assert stream.recv(5) == b"hello"
    assert proxy.requests[0].startswith(f"CONNECT {NAME}:443 HTTP/1.")
    login = base64.b64encode(b"ada:s@cret").decode()
    assert f"authorization: basic {login}".lower() in proxy.requests[0].lower()


def test_an_unknown_authority_is_refused(proxy: Proxy) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        websocket.connect(f"wss://{NAME}/v4/connect", 60, is_local=False)


def test_a_proxy_that_refuses_is_named_without_its_password(proxy: Proxy) -> None:
    proxy.status = "407 Proxy Authentication Required"
    with pytest.raises(Interruption, match="407 Proxy Authentication Required") as raised:
        websocket.connect(f"wss://{NAME}/v4/connect", 60, is_local=False)
    assert proxy.address in raised.value.reason
    assert "cret" not in raised.value.reason


@pytest.mark.parametrize("status", ["407 Proxy Authentication Required", "no status at all"])
def test_the_connection_to_a_proxy_that_refuses_is_closed(proxy: Proxy, status: str) -> None:
    proxy.status = status
    with pytest.raises(Interruption, match="does not open a connection") as raised:
        websocket.connect(f"wss://{NAME}/v4/connect", 60, is_local=False)
    assert proxy.left.wait(60)
    assert raised.value.__traceback__  # until here nothing else could close it


def test_another_kind_of_proxy_is_named(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5://ada:secret@127.0.0.1:1")
    with pytest.raises(Interruption, match=r"socks5://127\.0\.0\.1 cannot be used: only http:// proxies can"):
        websocket.connect(f"wss://{NAME}/v4/connect", 60, is_local=False)


def test_certificates_that_cannot_be_read_are_named(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file")
    with pytest.raises(Interruption, match=r"certificates of /no/such/file cannot be read: No such file"):
        websocket.authorities()


def test_hosts_of_no_proxy_and_the_simulator_are_reached_without_one(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"ws://127.0.0.1:{server.getsockname()[1]}/v4"
        websocket.connect(url, 60, is_local=True).close()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        websocket.connect(url, 60, is_local=False).close()
    assert proxy.requests == []


@pytest.mark.parametrize(
    ("url", "place"), [(f"ws://{NAME}/v4", f"{NAME}:80"), (f"ws://{NAME}:8443/v4", f"{NAME}:8443")]
)
def test_a_url_without_a_port_has_the_port_of_its_scheme(proxy: Proxy, url: str, place: str) -> None:
    with websocket.connect(url, 60, is_local=False) as stream:
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not isinstance(stream, ssl.SSLSocket)
    assert proxy.requests[0].startswith(f"CONNECT {place} HTTP/1.")


def test_the_authorities_of_our_other_clients_are_known(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests.utils, "DEFAULT_CA_BUNDLE_PATH", str(proxy.ca_file))
    with websocket.connect(f"wss://{NAME}/v4/connect", 60, is_local=False) as stream:
        assert stream.recv(5) == b"hello"


def test_a_connection_is_closed_where_no_certificates_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file")
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(Interruption, match="cannot be read") as raised:
            websocket.connect(f"wss://127.0.0.1:{server.getsockname()[1]}/v4", 60, is_local=True)
        stream, _ = server.accept()
        with stream:
            stream.settimeout(60)
            assert stream.recv(1) == b""
    assert raised.value.__traceback__  # until here nothing else could close it


@pytest.mark.parametrize(
    ("proxy_url", "place"), [("http://proxy.lab", "proxy.lab:80"), ("proxy.lab:3128", "proxy.lab:3128")]
)
def test_a_proxy_without_a_port_is_at_port_80(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, proxy_url: str, place: str
) -> None:
    asked: list[str] = []

    class Connection(HTTPConnection):
        """One that reaches nobody."""

        def connect(self) -> None:
            asked.append(f"{self.host}:{self.port}")
            raise OSError("no such host")

        def set_tunnel(self, *_: object, **__: object) -> None:
            """Leave the place of the proxy itself."""

    monkeypatch.setattr(websocket, "HTTPConnection", Connection)
    monkeypatch.setenv("https_proxy", proxy_url)
    with pytest.raises(
        Interruption, match=f"the proxy {place} does not open a connection to {NAME}: no such"
    ):
        websocket.connect(f"wss://{NAME}/v4", 60, is_local=False)
    assert asked == [place]
