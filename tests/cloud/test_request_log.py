"""The line that each request leaves in the log, without a secret, and requests for the bytes of objects."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import BinaryIO

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.api_core import exceptions
from google.api_core import exceptions as google
from google.auth.credentials import Credentials

from tests.cloud.web_server import QuietServer, refusing, serving
from tests.isolation.ports import refusing_port
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud import google_clients
from tpuctl.cloud.error_mapping import Service
from tpuctl.cloud.google_clients import anonymous_credentials, storage_client
from tpuctl.cloud.request_log import (
    LOGGER,
    BrokenOffError,
    MediaRequests,
    logged,
    naming_host,
    showing,
    unanswered,
)
from tpuctl.cloud.rest import RestApi
from tpuctl.cloud.storage import Bucket, Object
from tpuctl.cloud.tpu import api_requests
from tpuctl.cloud.tpu.client import CloudTpu
from tpuctl.cloud.tpu.quotas import read_quotas
from tpuctl.errors import DeadlineError, HostError
from tpuctl.object_content import Content

Tpuctl = Callable[..., CommandResult]
LINE = re.compile(r"\[debug\] (gRPC|GET|POST|PUT|PATCH|DELETE|HEAD|SSH) (.+) -> (.+), \d+ ms, attempt (\d+)")
TOKEN = "ya29.a0" + "Bcdefghijklmnopqrstuvwxyz0123456789"
SCRIPT = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# accelerator = "v3-8"\n# ///\nprint("hello")\n'


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """The lines of the requests of a test."""
    shown: list[str] = []
    with showing(shown.append):
        yield shown


def requests_of(result: CommandResult) -> list[tuple[str, str, str, str]]:
    """Method, address, code and attempt of each line of --debug."""
    debug = [line for line in result.err.splitlines() if line.startswith("[debug] ")]
    matches = [LINE.fullmatch(line) for line in debug]
    assert all(matches), debug
    return [match.groups() for match in matches if match]  # type: ignore[misc]  # four groups


def test_debug_shows_each_request_of_grpc_rest_and_ssh(simulator: RunningSimulator, tpuctl: Tpuctl) -> None:
    Path("job.py").write_text(SCRIPT)
    created = tpuctl("up", "v3-8", "--name", "n1", "--yes", "--debug")
    assert created.code == 0, created.err
    of_up = requests_of(created)
    parent = "projects/sim-project/locations/europe-west4-a"
    assert ("gRPC", f"CreateNode {parent}", "OK", "1") in of_up
    assert ("gRPC", f"GetNode {parent}/nodes/n1", "OK", "1") in of_up
    assert any(address.startswith("worker 0 of 'n1': log in as ") for _, address, _, _ in of_up)
    logged_requests = simulator.events.find(kind="request")
    for method in ("CreateNode", "ListNodes", "GetGuestAttributes"):
        sent = [event for event in logged_requests if event.what == method]
        assert len(sent) >= len([1 for _, address, _, _ in of_up if address.startswith(f"{method} ")]) > 0
    submitted = tpuctl("submit", "job.py", "--name", "r1", "--debug")
    assert submitted.code == 0, submitted.err
    shown = requests_of(submitted)
    assert any(method == "POST" and "/upload/storage/v1/b/" in address for method, address, _, _ in shown)
    assert any(method == "SSH" and ": run " in address and code == "0" for method, address, code, _ in shown)
    assert tpuctl("wait", "r1").code == 0
    pulled = requests_of(tpuctl("pull", "r1", "--debug"))
    assert any(
        method == "GET" and "alt=media" in address and code == "200" for method, address, code, _ in pulled
    )
    lists = [address for _, address, _, _ in requests_of(tpuctl("ls", "--debug")) if "ListNodes" in address]
    everywhere = "projects/sim-project/locations/-"
    assert lists == [f"ListNodes {everywhere}", f"v2alpha1.ListNodes {everywhere}"], (
        "maintenance is in the other version"
    )


def test_the_variable_does_so_too_and_nothing_is_shown_without_it(
    simulator: RunningSimulator, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "[debug]" not in tpuctl("ls").err
    monkeypatch.setenv("TPUCTL_DEBUG", "1")
    shown = tpuctl("ls", "--json")
    assert requests_of(shown)
    assert shown.json["nodes"] == []
    monkeypatch.setenv("TPUCTL_DEBUG", "0")
    assert "[debug]" not in tpuctl("ls").err
    assert not LOGGER.handlers


def test_attempts_are_counted_until_one_succeeds(
    simulator: RunningSimulator, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator.faults.add("unavailable", method="ListQueuedResources", count=2)
    shown = [row for row in requests_of(tpuctl("ls", "--debug")) if row[1].startswith("ListQueued")]
    assert [(code, attempt) for _, _, code, attempt in shown] == [
        ("UNAVAILABLE", "1"), ("UNAVAILABLE", "2"), ("OK", "3"),
    ]  # fmt: skip


def test_no_value_of_a_url_is_shown_that_may_be_a_secret(lines: list[str]) -> None:
    url = (
        "https://ada:pass-of-ada@storage.example.com/upload/b/x?uploadType=resumable&name=a%2Fb"
        "&upload_id=ABPsecret"
        f"&access_token={TOKEN}&X-Goog-Signature=0a1b2c3d4e5f60718293&pageToken=page-secret&key=AIzaKey&flag"
    )
    logged("PUT", url, lambda: None)
    with pytest.raises(HostError):
        logged("SSH", "worker 0", lambda: raised(HostError(f"it said Bearer {TOKEN}")))
    assert "uploadType=resumable&name=a%2Fb&upload_id=***&" in lines[0]
    for secret in ("pass-of-ada", "ABPsecret", TOKEN, "0a1b2c3d", "page-secret", "AIzaKey"):
        assert secret not in "\n".join(lines), secret


def raised(error: Exception) -> None:
    raise error


class TokenServer(QuietServer):
    """Gives an access token, and then none."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses = [200, 503]


class Handler(BaseHTTPRequestHandler):
    server: TokenServer

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        data = json.dumps({"access_token": TOKEN, "expires_in": 3600}).encode()
        self.send_response_only(self.server.statuses.pop(0) if self.server.statuses else 400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def account_file(folder: Path, url: str) -> str:
    """Write the key file of a service account whose tokens come from a URL."""
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    content = {
        "type": "service_account", "project_id": "p", "private_key_id": "k", "private_key": pem,
        "client_email": "a@p.iam.gserviceaccount.com", "client_id": "1", "token_uri": url,
    }  # fmt: skip
    path = folder / "account.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_requests_for_tokens_are_shown_whoever_makes_them_and_never_a_token(
    home: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    with TokenServer() as tokens, serving({"/v1/projects/p/locations/global/services/tpu.googleapis.com/"
                                           "quotaInfos?pageSize=500": b"{}"}) as quotas:  # fmt: skip
        Thread(target=tokens.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{tokens.server_address[1]}/token"
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", account_file(home, url))
        credentials = google_clients.default_credentials()
        session = google_clients.rest_session(credentials, is_local=True)
        read_quotas(RestApi(session, quotas.url, Service("a", "b")), "p")
        assert google_clients.AccessToken(credentials)(renew=False) == TOKEN
        tokens.shutdown()
    assert [line.split(", ")[0] for line in lines] == [
        f"POST {url} -> 200",
        f"GET {quotas.url}/v1/projects/p/locations/global/services/tpu.googleapis.com/quotaInfos"
        "?pageSize=500 -> 200",
    ]
    assert TOKEN not in "".join(lines)


def test_credentials_are_googles_own_where_nobody_reads_the_log(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", account_file(home, "http://127.0.0.1:1/token"))
    assert type(google_clients.default_credentials()).__module__.startswith("google.")


def test_a_service_that_cannot_be_reached_is_named_with_the_cause(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_requests, "RETRY_TIMEOUT", 0.0)
    with refusing_port() as port, pytest.raises(DeadlineError) as failed:
        CloudTpu(google_clients.local_tpu_client(f"127.0.0.1:{port}"), "p").list_nodes()
    assert failed.value.facts["cause"] == f"127.0.0.1:{port}: Connection refused"
    assert failed.value.message.endswith(f"127.0.0.1:{port}: Connection refused.")


def test_rest_names_it_too() -> None:
    with refusing() as nobody:
        session = google_clients.rest_session(google_clients.anonymous_credentials(), is_local=True)
        with pytest.raises(DeadlineError) as failed:
            read_quotas(RestApi(session, nobody.url, Service("a", "b")), "p")
    assert failed.value.facts["cause"] == "127.0.0.1: Connection refused"


OAUTH = "HTTPSConnectionPool(host='oauth2.googleapis.com', port=443): Max retries exceeded with url: /token "
CAUSES = {
    # what libraries say -> what is told of it
    f"Getting metadata from plugin failed with error: {OAUTH}(Caused by NameResolutionError("
    "\"HTTPSConnection(host='oauth2.googleapis.com', port=443): Failed to resolve 'oauth2.googleapis.com' "
    "([Errno -2] "
    "Name or service not known)\"))": "oauth2.googleapis.com: Name or service not known",
    f"{OAUTH}(Caused by ProxyError('Unable to connect to proxy', OSError('Tunnel connection failed: 403 "
    "Forbidden')))": "oauth2.googleapis.com: Tunnel connection failed: 403 Forbidden",
    f"{OAUTH}(Caused by SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate "
    "verify failed: self-signed certificate in certificate chain (_ssl.c:1000)')))":
        "oauth2.googleapis.com: certificate verify failed: self-signed certificate in certificate chain",
    "HTTPSConnectionPool(host='storage.googleapis.com', port=443): Read timed out. (read timeout=60)":
        "storage.googleapis.com: timed out",
    "DNS resolution failed for tpu.googleapis.com:443: C-ares status is not ARES_SUCCESS qtype=A "
    "name=tpu.googleapis.com is_balancer=0: Could not contact DNS servers":
        "tpu.googleapis.com: Could not contact DNS servers",
    "failed to connect to all addresses; last error: UNKNOWN: ipv4:142.250.1.95:443: Failed to connect to "
    "remote host: connect: Network is unreachable (101)": "142.250.1.95:443: Network is unreachable",
    "The service is currently unavailable.": "",
    "Deadline Exceeded": "",
}  # fmt: skip


def test_host_and_cause_are_found_in_what_libraries_say() -> None:
    for text, told in CAUSES.items():
        assert unanswered(exceptions.ServiceUnavailable(text)).lower() == told.lower(), text
        with pytest.raises(DeadlineError) as failed, naming_host():
            raise DeadlineError("It cannot be reached.") from exceptions.ServiceUnavailable(text)
        assert failed.value.message.lower() == f"it cannot be reached. {told}.".lower() if told else True
        assert ("cause" in failed.value.facts) is bool(told)


def test_a_ring_of_causes_has_an_end() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert unanswered(first) == ""


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
