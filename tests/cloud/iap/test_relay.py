"""Tests how the relay is asked for a tunnel: what a request says, and which token it has.

Tests the way to the relay: the user's proxy, and the user's certificate authorities.
"""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from tpuctl.cloud.iap import relay, websocket
from tpuctl.cloud.iap.frames import Interruption, Refusal
from tpuctl.cloud.iap.relay import Instance, Patience, Relay
from tpuctl.sim.network.certificate_authority import CertificateAuthority

INSTANCE = Instance("p", "z", "host-1", interface="nic1", port=2222)


class Asked:
    """The requests, and the answers to the next ones: HTTP statuses of refusals."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.timeouts: list[float] = []
        self.local: list[bool] = []
        self.refusals: list[int] = []
        self.tokens: list[bool] = []

    def open(self, url: str, headers: Mapping[str, str], timeout: float, *, is_local: bool) -> str:
        self.urls.append(url)
        self.headers.append(dict(headers))
        self.timeouts.append(timeout)
        self.local.append(is_local)
        if self.refusals:
            raise Refusal(self.refusals.pop(0), "no")
        return f"connection {len(self.urls)}"

    def token(self, renew: bool) -> str:
        self.tokens.append(renew)
        return "new" if renew else "old"

    @property
    def authorizations(self) -> list[str]:
        return [headers["Authorization"] for headers in self.headers]

    def relay(self, **options: Any) -> Relay:
        return Relay(self.token, "wss://relay/v4/", patience=Patience(connect=7.0), **options)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setattr(relay, "WebSocket", asked.open)
    return asked


def query(url: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(url).query, encoding="latin-1")


@pytest.mark.parametrize("is_local", [False, True])
def test_a_tunnel_is_asked_for_by_its_instance(asked: Asked, is_local: bool) -> None:
    connection: Any = asked.relay(is_local=is_local).begin(INSTANCE)
    assert connection == "connection 1"
    (url,) = asked.urls
    assert url.startswith("wss://relay/v4/connect?")
    assert query(url) == {
        "project": ["p"],
        "port": ["2222"],
        "newWebsocket": ["True"],
        "zone": ["z"],
        "instance": ["host-1"],
        "interface": ["nic1"],
    }
    assert (asked.authorizations, asked.timeouts, asked.local) == (["Bearer old"], [7.0], [is_local])
    assert asked.headers[0]["User-Agent"].startswith("tpuctl/")


def test_a_tunnel_is_resumed_by_its_session_and_what_was_received(asked: Asked) -> None:
    asked.relay().resume(INSTANCE, b"\xffs&", 12, renew=False)
    (url,) = asked.urls
    assert url.startswith("wss://relay/v4/reconnect?")
    assert query(url) == {"sid": ["\xffs&"], "ack": ["12"], "newWebsocket": ["True"], "zone": ["z"]}
    assert asked.tokens == [False]


def test_a_tunnel_is_resumed_with_a_new_token_where_that_is_needed(asked: Asked) -> None:
    asked.relay().resume(INSTANCE, b"s", 12, renew=True)
    assert (asked.tokens, asked.authorizations) == ([True], ["Bearer new"])


def test_without_a_token_a_request_names_nobody(asked: Asked) -> None:
    Relay(lambda renew: "", "ws://relay").begin(INSTANCE)
    assert list(asked.headers[0]) == ["User-Agent"]


def test_a_token_that_is_refused_is_renewed_once(asked: Asked) -> None:
    asked.refusals = [401]
    connection: Any = asked.relay(is_local=True).begin(INSTANCE)
    assert connection == "connection 2"
    assert asked.authorizations == ["Bearer old", "Bearer new"]
    assert (asked.urls[0], asked.timeouts, asked.local) == (asked.urls[1], [7.0, 7.0], [True, True])
    asked.refusals = [401, 401]
    with pytest.raises(Refusal):
        asked.relay().begin(INSTANCE)
    assert len(asked.urls) == 4


def test_a_new_token_that_is_refused_is_not_renewed(asked: Asked) -> None:
    asked.refusals = [401]
    with pytest.raises(Refusal):
        asked.relay().resume(INSTANCE, b"s", 0, renew=True)
    assert asked.tokens == [True]


def test_another_refusal_renews_nothing(asked: Asked) -> None:
    asked.refusals = [403]
    with pytest.raises(Refusal):
        asked.relay().begin(INSTANCE)
    assert asked.tokens == [False]


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
