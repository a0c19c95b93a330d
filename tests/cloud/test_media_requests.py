"""Requests for the bytes of objects: what is sent, and what becomes of each answer."""

from __future__ import annotations

import gzip
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest
from google.api_core import exceptions as google
from google.auth.credentials import Credentials

from tests.running_simulator import RunningSimulator
from tpuctl.cloud.google_clients import anonymous_credentials, storage_client
from tpuctl.cloud.request_log import BrokenOffError, MediaRequests
from tpuctl.cloud.storage import Bucket, Object
from tpuctl.object_content import Content

ITEM = Object("a b/ü", Content(10, 0), 7, "")
PATH = b"/download/storage/v1/b/my-bucket/o/a%20b%2F%C3%BC?alt=media&generation=7"


@contextmanager
def answering(*answers: bytes, keeps: bool = False) -> Iterator[tuple[int, list[tuple[int, bytes]]]]:
    """Yield the port of a server with these answers, and the requests: number of connection, head.

    It ends the connection after each answer, or keeps it after all.
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
                    if not keeps:
                        break

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield int(listener.getsockname()[1]), requests
        thread.join(60)


def read_head(stream: BinaryIO) -> bytes:
    """Return the lines of a head, none at the end of the stream."""
    return b"".join(itertools.takewhile(lambda line: line not in (b"\r\n", b""), iter(stream.readline, None)))


class Tokens(Credentials):
    """Credentials whose token is another one after each refresh."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.token = "t0"
        self.refreshed = 0

    def refresh(self, request: object) -> None:
        self.refreshed += 1
        self.token = f"t{self.refreshed}"


def answer(status: str, body: bytes = b"", *fields: str) -> bytes:
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *fields, "", "")
    return "\r\n".join(lines).encode() + body


@contextmanager
def requesting(*answers: bytes) -> Iterator[tuple[MediaRequests, Callable[[], list[dict[str, str]]], Tokens]]:
    """Yield requests to a server with these answers, what was sent, and the credentials."""
    tokens = Tokens()
    with answering(*answers, keeps=True) as (port, heads):
        client = storage_client("p", tokens, f"http://127.0.0.1:{port}")

        def sent() -> list[dict[str, str]]:
            lines = (head.decode().splitlines() for _, head in heads)
            return [
                {"line": first, **dict(field.split(": ", 1) for field in fields)} for first, *fields in lines
            ]

        yield MediaRequests(client, "my-bucket"), sent, tokens
        client.close()


@pytest.mark.parametrize(
    ("start", "end", "selection"),
    [(0, 10, None), (0, 9, "bytes=0-8"), (1, 10, "bytes=1-9"), (3, 5, "bytes=3-4")],
)
@pytest.mark.parametrize("is_fetched", [True, False])
def test_one_generation_is_asked_for_all_or_in_part(
    start: int, end: int, selection: str | None, is_fetched: bool
) -> None:
    body = b"0123456789"[start:end]
    with requesting(answer("206 Partial" if selection else "200 OK", body)) as (requests, sent, _):
        if is_fetched:
            assert requests.fetch(ITEM, start, end) == body
        else:
            with requests.open(ITEM, start, end) as opened:
                assert (opened(1), opened(100), opened(1)) == (body[:1], body[1:], b"")
        (request,) = sent()
    assert request["line"] == f"GET {PATH.decode()} HTTP/1.1"
    assert request.get("Range") == selection
    assert request["Accept-Encoding"] == "gzip"
    assert request["authorization"] == "Bearer t0"


def refused_with(requests: MediaRequests, kind: type[Exception]) -> google.GoogleAPICallError:
    """Return the error of the service behind a request that ends in a kind of error."""
    with pytest.raises(kind) as refused, requests.open(ITEM, 1, 10):
        pass
    error = refused.value.__cause__ if kind is BrokenOffError else refused.value
    assert isinstance(error, google.GoogleAPICallError)
    return error


@pytest.mark.parametrize("is_fetched", [True, False])
def test_a_refused_token_is_renewed_once(is_fetched: bool) -> None:
    refused = answer("401 Unauthorized", b"no")
    with requesting(refused, answer("200 OK", b"0123456789")) as (requests, sent, tokens):
        if is_fetched:
            assert requests.fetch(ITEM, 0, 10) == b"0123456789"
        else:
            with requests.open(ITEM, 0, 10) as opened:
                assert opened(10) == b"0123456789"
        assert [request["authorization"] for request in sent()][-2:] == ["Bearer t0", "Bearer t1"]
        assert tokens.refreshed == 1
    with requesting(refused, refused) as (requests, _, tokens):
        assert refused_with(requests, google.Unauthorized).message == "no"
        assert tokens.refreshed == 1


def test_a_refusal_without_a_token_has_its_words() -> None:
    with answering(answer("401 Unauthorized", b"no"), keeps=True) as (port, _):
        client = storage_client("p", anonymous_credentials(), f"http://127.0.0.1:{port}")
        assert refused_with(MediaRequests(client, "my-bucket"), google.Unauthorized).message == "no"
        client.close()


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 200, 204, 304, 399])
def test_some_answers_are_worth_another_request(status: int) -> None:
    with requesting(answer(f"{status} Any", b"why" if status not in (204, 304) else b"")) as (requests, _, _):
        assert refused_with(requests, BrokenOffError).code == status


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, google.BadRequest), (403, google.Forbidden), (404, google.NotFound),
        (412, google.PreconditionFailed), (416, google.RequestRangeNotSatisfiable), (501, google.ServerError),
    ],
)  # fmt: skip
def test_other_answers_are_refusals_with_their_words(status: int, error: type[Exception]) -> None:
    for body, words in (
        (b'{"error": {"message": "the words"}}', "the words"),
        (b"plain words", "plain words"),
        (b'{"error": 5}', '{"error": 5}'),
        (b'{"other": 5}', '{"other": 5}'),
        (b"\xff", "\ufffd"),
    ):
        with requesting(answer(f"{status} Any", body)) as (requests, _, _):
            assert refused_with(requests, error).message == words


@pytest.mark.parametrize(
    "broken",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123", b"SSH-2.0-x\r\n\r\n"],
)
def test_an_answer_that_breaks_off_is_worth_another_request(broken: bytes) -> None:
    with answering(broken) as (port, _):
        client = storage_client("p", Tokens(), f"http://127.0.0.1:{port}")
        requests = MediaRequests(client, "my-bucket")
        with pytest.raises(BrokenOffError):
            requests.fetch(ITEM, 0, 10)
        client.close()


def test_more_or_fewer_bytes_than_were_asked_for_are_worth_another_request() -> None:
    for body in (b"012345678", b"0123456789x"):
        with requesting(answer("200 OK", body)) as (requests, sent, _):
            with pytest.raises(BrokenOffError):
                requests.fetch(ITEM, 0, 10)
            assert len(sent()) == 1


def test_an_answer_without_a_length_is_read_to_its_end() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n"
    with requesting(chunked) as (requests, sent, _):
        assert requests.fetch(ITEM, 0, 10) == b"0123456789"
        assert len(sent()) == 1


def test_what_is_stored_packed_comes_as_it_is_and_json_unpacked() -> None:
    packed = gzip.compress(b"0123456789" * 5)
    item = Object("x", Content(len(packed), 0), 1, "")
    with requesting(answer("200 OK", packed, "Content-Encoding: gzip")) as (requests, _, _):
        assert requests.fetch(item, 0, len(packed)) == packed
    unpacked = answer("200 OK", b"{}")
    with requesting(answer("200 OK", packed, "Content-Encoding: gzip"), unpacked) as (requests, sent, _):
        assert requests.read_json("/o?prefix=x") == b"0123456789" * 5
        assert requests.read_json("/iam") == b"{}"
        assert [request["line"] for request in sent()] == [
            "GET /storage/v1/b/my-bucket/o?prefix=x HTTP/1.1",
            "GET /storage/v1/b/my-bucket/iam HTTP/1.1",
        ]


def test_a_connection_is_used_again_once_its_answer_is_read_and_only_then() -> None:
    ten = answer("200 OK", b"0123456789")
    with answering(ten, ten, ten, ten, keeps=True) as (port, heads):
        client = storage_client("p", Tokens(), f"http://127.0.0.1:{port}")
        requests = MediaRequests(client, "my-bucket")
        assert [requests.fetch(ITEM, 0, 10), requests.fetch(ITEM, 0, 10)] == [b"0123456789"] * 2
        with requests.open(ITEM, 0, 10) as opened:
            assert opened(4) == b"0123"
        assert requests.fetch(ITEM, 0, 10) == b"0123456789"
        client.close()
    assert [number for number, _ in heads] == [0, 0, 0, 1]


def test_objects_come_by_the_users_proxy_from_a_server_with_a_certificate(
    simulator: RunningSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in simulator.simulator.endpoints["environment"].items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    clients = [storage_client("sim-project", anonymous_credentials()) for _ in range(2)]
    assert {client.api_endpoint for client in clients} == {"https://storage.googleapis.com"}
    one, without_connections = (Bucket(client, "sim-project-tpuctl") for client in clients)
    item = one.upload("x", [b"0123456789"], "application/octet-stream")
    without_connections.download(item, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"0123456789"
    for client in clients:
        client.close()
