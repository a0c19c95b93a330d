"""Connections of the worker's program that stay open between requests."""

from __future__ import annotations

import base64
import socket
import threading
import traceback
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from tests.cloud.web_server import QuietServer
from tests.isolation.ports import refusing_port
from tpuctl.host import wire
from tpuctl.host.wire import Answer, AnswerError, Wire, ask


class Service(QuietServer):
    """Answers with the number of its connection; `ends` closes it after each answer, unannounced."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.connections = 0
        self.ends = False
        self.answers_two_at_once: threading.Barrier | None = None
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1
        self.number = self.server.connections

    def do_GET(self) -> None:
        if self.server.answers_two_at_once:
            self.server.answers_two_at_once.wait(60)
        status = 404 if self.path == "/missing" else 200
        body = b"connection %d" % self.number
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.server.ends

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def client(service: Service) -> Iterator[Wire]:
    with closing(Wire(service.url)) as client:
        yield client


def test_requests_of_a_thread_share_a_connection(service: Service, client: Wire) -> None:
    assert client.request("GET", "/missing").status == 404
    answer = client.request("GET", "/a", b"data", {"Content-Type": "text/plain"})
    assert (answer.status, answer.text, service.connections) == (200, "connection 1", 1)
    assert answer.headers["date"].endswith("GMT")


def test_a_connection_that_the_service_has_closed_is_replaced(service: Service, client: Wire) -> None:
    service.ends = True
    assert [client.request("GET", "/").text for _ in range(3)] == [f"connection {n}" for n in (1, 2, 3)]


def test_a_new_connection_that_fails_is_not_tried_again(service: Service) -> None:
    with (
        refusing_port() as port,
        closing(Wire(f"http://127.0.0.1:{port}")) as client,
        pytest.raises(ConnectionError),
    ):
        client.request("GET", "/")


def test_a_connection_that_was_idle_is_not_used_again(
    service: Service, client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.request("GET", "/")
    monkeypatch.setattr(wire, "IDLE", -1.0)
    assert client.request("GET", "/").text == "connection 2"


def test_threads_share_a_connection_unless_they_ask_at_once(service: Service, client: Wire) -> None:
    def ask() -> None:
        answers.append(client.request("GET", "/").text)

    answers: list[str] = []
    for _ in range(2):
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join()
    assert answers == ["connection 1"] * 2
    service.answers_two_at_once = threading.Barrier(2)
    threads = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers[2:]) == ["connection 1", "connection 2"]


def test_an_interrupted_request_leaves_nothing_for_the_next_one(
    service: Service, client: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(Exception):
        pass

    def interrupted(*_: object) -> None:
        raise Stopped

    client.request("GET", "/")
    with monkeypatch.context() as patch:
        patch.setattr("http.client.HTTPResponse.begin", interrupted)
        with pytest.raises(Stopped):
            client.request("GET", "/")
    assert client.request("GET", "/missing").status == 404


def test_https_goes_through_the_environments_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its login; not where `no_proxy` names the host."""
    requests: list[bytes] = []

    def serve() -> None:
        stream, _ = listener.accept()
        with stream:
            requests.append(stream.recv(65_536))
            stream.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://a%40b:secret@127.0.0.1:{port}")
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with (
            closing(Wire("https://storage.googleapis.com")) as client,
            pytest.raises(OSError, match="403 Forbidden"),
        ):
            client.request("GET", "/")
        thread.join()
        monkeypatch.setenv("NO_PROXY", "localhost")
        with closing(Wire("https://localhost:1")) as client, pytest.raises(ConnectionRefusedError):
            client.request("GET", "/")
    (request,) = requests
    assert request.startswith(b"CONNECT storage.googleapis.com:443 ")
    assert base64.b64encode(b"a@b:secret") in request


def answered(*pieces: bytes, **changes: Any) -> tuple[Answer, bytes]:
    """Return the answer to a request of these pieces, after which the service closes, and the request."""
    requests: list[bytes] = []

    def serve() -> None:
        stream, _ = listener.accept()
        with stream:
            while b"\r\n\r\n" not in b"".join(requests):
                requests.append(stream.recv(65_536))
            for piece in pieces:
                stream.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            return ask(url, "GET", "/a?b=c", **changes), b"".join(requests)
        finally:
            thread.join()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\ndata",
        b"HTTP/1.1 200 OK\r\n\r\ndata",
        CHUNKED + b"3;a=b\r\ndat\r\n1\r\na\r\n0\r\nT: x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndata",
    ],
    ids=["1.0", "no length", "chunks", "100"],
)
def test_every_way_to_say_how_long_an_answer_is(answer: bytes) -> None:
    result, request = answered(answer, headers={"A": "b"})
    assert (result.status, result.body) == (200, b"data")
    assert request.startswith(b"GET /a?b=c HTTP/1.1\r\n")
    assert b"\r\nA: b\r\n" in request


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\ndata",
        CHUNKED + b"4\r\nda",
        CHUNKED + b"long\r\ndata",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000,
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000,
    ],
    ids=["SSH", "no status", "cut", "cut chunk", "chunk", "headers", "long header"],
)
def test_what_is_no_whole_answer_is_an_error_of_the_system(answer: bytes) -> None:
    """So that it is tried again, as a cut connection is."""
    with pytest.raises((AnswerError, ConnectionResetError)):
        answered(answer)


def test_a_service_that_closes_before_it_answers_has_an_error_of_its_own() -> None:
    """By which a request is sent again over another connection."""
    with pytest.raises(ConnectionResetError):
        answered()


def test_no_value_adds_a_header(service: Service, client: Wire) -> None:
    """Nor is it in the error: it may be a token."""
    token = f"{'secret' * 2}\r\nHost: other"
    with pytest.raises(ValueError, match="a header of the request") as caught:
        client.request("GET", "/", None, {"A": token})
    assert "secretsecret" not in "".join(traceback.format_exception(caught.value))
    assert client.request("GET", "/").status == 200
