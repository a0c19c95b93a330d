"""Answers of servers of all kinds are read as http.client reads them, over connections that are kept."""

from __future__ import annotations

import http.client
import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
import urllib3

from tests.running_simulator import RunningSimulator
from tpuctl.cloud.google_clients import anonymous_credentials, storage_client
from tpuctl.cloud.media_requests import MediaConnections, UnusualAnswerError
from tpuctl.cloud.storage import Bucket

DATA = bytes(range(256)) * 5_000
PART = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP"
TWO = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextmanager
def serving(*answers: bytes, keeps: bool = False) -> Iterator[tuple[int, list[tuple[int, bytes]]]]:
    """Yield the port of a server with these answers, and the requests: number of connection, head.

    It ends the connection after each answer but `TWO` and `PART`, or keeps it after all.
    """
    requests: list[tuple[int, bytes]] = []

    def serve(listener: socket.socket) -> None:
        left = list(answers)
        for number in itertools.count():
            if not left:
                return
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as stream:
                while left and (head := read_head(stream)):
                    requests.append((number, head))
                    answer = left.pop(0)
                    connection.sendall(answer)
                    if not keeps and answer not in (TWO, PART):
                        break

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield int(listener.getsockname()[1]), requests
        thread.join(60)


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[MediaConnections, list[tuple[int, bytes]]]]:
    """Yield connections to a server with these answers, and the requests."""
    with serving(*answers) as (port, requests), urllib3.HTTPConnectionPool("127.0.0.1", port) as pool:
        yield MediaConnections(pool), requests


def read_head(stream: BinaryIO) -> bytes:
    """Return the lines of a head, none at the end of the stream."""
    return b"".join(itertools.takewhile(lambda line: line not in (b"\r\n", b""), iter(stream.readline, None)))


def read(connections: MediaConnections) -> bytes:
    with connections.get("/x?y=1", {"Accept-Encoding": "gzip"}) as answer:
        return answer.read()


@pytest.mark.parametrize(
    "answer",
    [
        TWO,
        b"HTTP/1.1 100 Continue\r\nA: 1\r\n\r\n" + TWO,
        b"HTTP/1.1 200\r\ncontent-LENGTH:2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    ],
)
def test_a_body_ends_where_its_head_says(answer: bytes) -> None:
    with answering(answer) as (connections, requests):
        assert read(connections) == b"ok"
    ((_, request),) = requests
    assert request.startswith(b"GET /x?y=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert request.endswith(b"\r\nAccept-Encoding: gzip\r\n")


def test_a_connection_is_used_again_once_its_answer_is_read() -> None:
    with answering(TWO, TWO) as (connections, requests):
        assert [read(connections), read(connections)] == [b"ok", b"ok"]
    assert [number for number, _ in requests] == [0, 0]


def test_a_connection_whose_answer_is_not_read_is_not_used_again() -> None:
    with answering(PART, TWO, TWO) as (connections, requests):
        with connections.get("/first", {}) as answer:
            assert answer.read(4) == b"HTTP"
        with pytest.raises(ZeroDivisionError), connections.get("/second", {}):
            raise ZeroDivisionError
        assert read(connections) == b"ok"
    assert [number for number, _ in requests] == [0, 1, 2]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", http.client.RemoteDisconnected),
        (b"SSH-2.0-OpenSSH\r\n", http.client.BadStatusLine),
        (b"HTTP/2 200\r\n\r\n", http.client.BadStatusLine),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", http.client.IncompleteRead),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", http.client.LineTooLong),
        (b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 102 + b"\r\n", http.client.HTTPException),
    ],
)
def test_what_is_no_answer_is_an_error(answer: bytes, error: type[Exception]) -> None:
    with answering(answer) as (connections, _), pytest.raises(error):
        read(connections)


def test_a_header_adds_no_other() -> None:
    with answering() as (connections, _), pytest.raises(ValueError, match="several lines"):
        connections.get("/x", {"Authorization": "a\r\nHost: b"}).__enter__()


def test_objects_come_by_the_users_proxy_from_a_server_with_a_certificate(
    simulator: RunningSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in simulator.simulator.endpoints["environment"].items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    clients = [storage_client("sim-project", anonymous_credentials()) for _ in range(2)]
    assert {client.api_endpoint for client in clients} == {"https://storage.googleapis.com"}
    one, without_connections = (Bucket(client, "sim-project-tpuctl") for client in clients)
    item = one.upload("x", [DATA], "application/octet-stream")
    without_connections.download(item, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == DATA
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    ("answer", "size", "expected"),
    [
        (TWO, 2, (200, b"ok")),
        (b"HTTP/1.1 206 Partial Content\r\ncontent-length: 2\r\n\r\nok", 2, (206, b"ok")),
        (b"HTTP/1.0 200 OK\r\nCONTENT-LENGTH:2\r\n\r\nok", 2, (200, b"ok")),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone", 2, (404, b"none")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 2, (200, b"")),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000, 1_000_000, None),
    ],
)
def test_a_small_answer_is_fetched_with_its_status(
    answer: bytes, size: int, expected: tuple[int, bytes] | None
) -> None:
    with answering(answer) as (connections, requests):
        found = connections.fetch("/x?y=1", {"A": "b", "C": "d"}, size)
        assert found == (expected or (200, b"x" * size))
    ((_, request),) = requests
    assert request.startswith(b"GET /x?y=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert request.endswith(b"\r\nA: b\r\nC: d\r\n")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", http.client.RemoteDisconnected),
        (b"HTTP/1.1 200 OK\r\n\r\nok", UnusualAnswerError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nok", UnusualAnswerError),
        (b"SSH-2.0\r\nContent-Length: 2\r\n\r\nok", UnusualAnswerError),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
            UnusualAnswerError,
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", http.client.IncompleteRead),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\noks", http.client.HTTPException),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 140_000, http.client.LineTooLong),
    ],
)
def test_another_answer_is_not_fetched(answer: bytes, error: type[Exception]) -> None:
    with answering(answer) as (connections, _), pytest.raises(error):
        connections.fetch("/x", {}, 2)


def test_a_connection_is_kept_after_an_answer_that_was_fetched_whole() -> None:
    with answering(TWO, TWO, TWO, TWO, TWO) as (connections, requests):
        assert connections.fetch("/1", {}, 2) == (200, b"ok")
        assert read(connections) == b"ok"
        assert connections.fetch("/3", {}, 1) == (200, b"ok"), "of another size than was asked for"
        assert connections.fetch("/4", {}, 2) == (200, b"ok")
        assert connections.fetch("/5", {}, 2) == (200, b"ok")
    assert [number for number, _ in requests] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nok",
    ],
)
@pytest.mark.parametrize("is_fetched", [True, False])
def test_a_connection_that_the_server_ends_is_not_used_again(answer: bytes, is_fetched: bool) -> None:
    with (
        serving(answer, TWO, keeps=True) as (port, requests),
        urllib3.HTTPConnectionPool("127.0.0.1", port) as pool,
    ):
        connections = MediaConnections(pool)
        first = connections.fetch("/1", {}, 2)[1] if is_fetched else read(connections)
        assert (first, read(connections)) == (b"ok", b"ok")
    assert [number for number, _ in requests] == [0, 1]


def test_a_header_of_a_small_answer_adds_no_other() -> None:
    with answering() as (connections, _):
        for target, headers in (("/x", {"A": "a\nb"}), ("/x\0", {}), ("/x", {"A\r": "b"})):
            with pytest.raises(ValueError, match="several lines"):
                connections.fetch(target, headers, 2)
