"""Tests tunnels through a relay: nothing is lost or repeated, whatever happens to the connections."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cloud.iap.scripted_relay import ScriptedRelay, refusal, scripted_relay
from tests.isolation.ports import refusing_port
from tpuctl.cloud.iap import Instance, Patience, Relay, TunnelSocket, open_tunnel
from tpuctl.errors import ConfigError, HostError, TpuctlError
from tpuctl.polling import Backoff, poll
from tpuctl.sim.network.certificate_authority import CertificateAuthority

INSTANCE = Instance("a-project", "europe-west4-a", "t1v-n-0123-w-0")
CALM = Patience(pause=0.01, acknowledge=0.05)
"""A busy machine is not a silent relay."""
QUICK = replace(CALM, ping=0.1, silence=3.0)
MEGABYTES = random.Random(4).randbytes(10 << 20)


@contextmanager
def backend(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on loopback; yields its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with suppress(OSError):
            while True:
                stream, _ = listener.accept()
                threading.Thread(target=_serve, args=(serve, stream), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def _serve(serve: Callable[[socket.socket], None], stream: socket.socket) -> None:
    with stream, suppress(OSError):
        serve(stream)


def echo(stream: socket.socket) -> None:
    while data := stream.recv(65_536):
        stream.sendall(data)


@pytest.fixture(scope="module")
def echo_port() -> Iterator[int]:
    with backend(echo) as port:
        yield port


@pytest.fixture
def relay(echo_port: int) -> Iterator[ScriptedRelay]:
    with scripted_relay(echo_port) as scripted:
        yield scripted


def connect(relay: ScriptedRelay, patience: Patience = CALM, tokens: list[str] | None = None) -> TunnelSocket:
    def token(renew: bool) -> str:
        if tokens and renew:
            tokens.pop(0)
        return tokens[0] if tokens else "secret"

    stream = open_tunnel(
        Relay(token, relay.url, is_local=True, patience=patience), INSTANCE, "Worker 0 of 'n1'"
    )
    stream.settimeout(60)
    return stream


def exchange(stream: socket.socket, data: bytes) -> bytes:
    """Send everything while reading as much back."""

    def send() -> None:
        with suppress(OSError):  # the reader gets the reason
            stream.sendall(data)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    answer = bytearray()
    while len(answer) < len(data):
        part = stream.recv(65_536)
        assert part, f"the stream ended after {len(answer)} bytes"
        answer += part
    sender.join()
    return bytes(answer)


def test_a_tunnel_is_asked_for_as_gcloud_does_it(relay: ScriptedRelay) -> None:
    with connect(relay) as stream:
        assert exchange(stream, b"SSH-2.0-x\r\n") == b"SSH-2.0-x\r\n"
    request = relay.requests[0]
    assert request.path.startswith("/v4/connect?")
    assert relay.parameters() == {
        "project": "a-project",
        "zone": "europe-west4-a",
        "instance": "t1v-n-0123-w-0",
        "interface": "nic0",
        "port": "22",
        "newWebsocket": "True",
    }
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["Origin"] == "bot:iap-tunneler"
    assert request.headers["Sec-WebSocket-Protocol"] == "relay.tunnel.cloudproxy.app"


def test_ten_megabytes_each_way_at_once(relay: ScriptedRelay) -> None:
    with connect(relay) as stream:
        assert exchange(stream, MEGABYTES) == MEGABYTES
    (session,) = relay.sessions.values()
    poll(
        lambda: session.acknowledged > len(MEGABYTES) - 65_536 or None,
        awaiting="the last acknowledgement", timeout=60, backoff=Backoff(0.01, 0.1),
    )  # fmt: skip


def test_over_tls_and_cut(echo_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = CertificateAuthority(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.ca_file))
    with scripted_relay(echo_port, authority.server_context(["localhost"])) as relay:
        relay.cut_after = [1_000_000, 2_000_000]
        with connect(relay) as stream:
            assert exchange(stream, MEGABYTES) == MEGABYTES
        assert relay.cuts == 2


@pytest.mark.parametrize("code", [0, 4004, 1001, 1011])
def test_connections_that_are_cut_lose_and_repeat_no_byte(relay: ScriptedRelay, code: int) -> None:
    data = MEGABYTES if code == 0 else MEGABYTES[: 1 << 20]
    relay.cut_code = code
    relay.cut_after = [1, 3_000, len(data) // 7, len(data) // 5, 100, len(data) // 3]
    with connect(relay) as stream:
        assert exchange(stream, data) == data
    assert relay.cuts == 6
    assert len(relay.sessions) == 1
    assert relay.parameters()["sid"] == "session-0"
    assert int(relay.parameters()["ack"]) > 0


def test_a_session_whose_name_is_no_text_is_resumed_by_its_bytes(relay: ScriptedRelay) -> None:
    relay.session_name = "\xff&\x00="
    with connect(relay) as stream:
        assert exchange(stream, b"abc") == b"abc"
        relay.cut()
        assert exchange(stream, b"def") == b"def"
    assert len(relay.requests) == 2


@pytest.mark.parametrize("size", [1, 2, 5, 7, 1_000])
def test_a_frame_in_parts_and_several_in_a_message(relay: ScriptedRelay, size: int) -> None:
    data = MEGABYTES[:40_000]
    relay.pieces = lambda frames: [frames[at : at + size] for at in range(0, len(frames), size)]
    with connect(relay) as stream:
        assert exchange(stream, data) == data


def test_a_token_that_expires_is_renewed_when_the_tunnel_is_resumed(relay: ScriptedRelay) -> None:
    relay.cut_after, relay.cut_code = [3], 4004
    with connect(relay, tokens=["old", "new"]) as stream:
        assert exchange(stream, b"0123456789") == b"0123456789"
    assert [request.headers["Authorization"] for request in relay.requests] == ["Bearer old", "Bearer new"]


def test_a_token_that_the_relay_refuses_is_renewed_once(relay: ScriptedRelay) -> None:
    relay.answers = [refusal(401, "expired")]
    with connect(relay, tokens=["old", "new"]) as stream:
        assert exchange(stream, b"x") == b"x"
    relay.answers = [refusal(401, "no"), refusal(401, "Request had invalid authentication credentials.")]
    with pytest.raises(ConfigError, match="refused the Google Cloud credentials: Request had invalid"):
        connect(relay)


REFUSALS = [
    (4003, "failed to connect to backend", HostError, "IAP cannot reach its port 22", "35.235.240.0/20"),
    (4033, "not authorized", ConfigError, "may not use IAP's tunnels", "roles/iap.tunnelResourceAccessor"),
    (
        4047,
        "Failed to lookup instance",
        HostError,
        "no instance t1v-n-0123-w-0 in europe-west4-a",
        "tpuctl ls",
    ),
    (4000, "", HostError, r"ended the tunnel: it gave no reason \(code 4000\)", "tpuctl ls"),
    (4999, "a new code", HostError, r"ended the tunnel: a new code \(code 4999\)", "tpuctl ls"),
]


@pytest.mark.parametrize(
    ("code", "reason", "error", "message", "hint"), REFUSALS, ids=lambda value: str(value)[:9]
)
def test_a_refused_tunnel_says_why_and_what_to_do(
    relay: ScriptedRelay, code: int, reason: str, error: type[TpuctlError], message: str, hint: str
) -> None:
    relay.closes = [(code, reason)]
    with pytest.raises(error, match=message) as raised:
        connect(relay)
    assert raised.value.message.startswith("Worker 0 of 'n1': ")
    assert hint in raised.value.hint
    assert raised.value.facts == {"iap": code, "words": reason}


ANSWERS = [
    (403, "Permission denied", ConfigError, "may not use IAP's tunnels", "tunnelResourceAccessor"),
    (
        403,
        "Cloud Identity-Aware Proxy API has not been used in project 1 before or it is disabled.",
        ConfigError,
        "API is off in project a-project",
        "gcloud services enable iap.googleapis.com --project a-project",
    ),
    (404, "Not found", HostError, "no instance", "tpuctl ls"),
    (503, "", HostError, r"ended the tunnel: Refused \(code 503\)", "tpuctl ls"),
]


@pytest.mark.parametrize(("status", "body", "error", "message", "hint"), ANSWERS)
def test_an_http_answer_says_why_and_what_to_do(
    relay: ScriptedRelay, status: int, body: str, error: type[TpuctlError], message: str, hint: str
) -> None:
    relay.answers = [refusal(status, body)]
    with pytest.raises(error, match=message) as raised:
        connect(relay)
    assert hint in raised.value.hint


def test_a_session_that_the_relay_forgot_is_an_error_of_the_reader(relay: ScriptedRelay) -> None:
    stream = connect(relay)
    assert exchange(stream, b"abc") == b"abc"
    session = relay.sessions.pop("session-0")
    relay.cut()
    with stream, pytest.raises(HostError, match="lost and cannot be resumed: session not found"):
        stream.recv(1)
    session.stream.close()


def test_a_relay_that_greets_and_drops_at_once_is_called_with_pauses_until_the_deadline(
    echo_port: int,
) -> None:
    patience = Patience(resume=3.0, pause=0.3)
    with scripted_relay(echo_port) as relay, connect(relay, patience) as stream:
        assert exchange(stream, b"abc") == b"abc"
        relay.drops_greeted = True
        relay.cut()
        with pytest.raises(HostError, match="the connection was lost, and then: "):
            stream.recv(1)
        assert 3 <= len(relay.requests) <= 20  # the last acknowledgement may give it its time again


def test_a_relay_that_falls_silent_is_left_for_a_new_connection(relay: ScriptedRelay) -> None:
    with connect(relay, QUICK) as stream:
        assert exchange(stream, b"abc") == b"abc"
        with relay.silence():
            assert exchange(stream, b"def") == b"def"
    assert len(relay.requests) >= 2


@pytest.mark.parametrize("speaks", [False, True])
def test_what_is_no_relay_is_named_in_time(speaks: bool) -> None:
    def serve(stream: socket.socket) -> None:
        if speaks:
            stream.sendall(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        stream.recv(65_536)
        threading.Event().wait(5 if not speaks else 0)

    with backend(serve) as port:
        patience = Patience() if speaks else Patience(connect=0.3)
        relay = Relay(lambda renew: "", f"ws://127.0.0.1:{port}/v4", is_local=True, patience=patience)
        with pytest.raises(HostError, match="is not IAP's relay" if speaks else "did not answer in time"):
            open_tunnel(relay, INSTANCE, "Worker 0 of 'n1'")


def test_a_relay_that_is_not_there() -> None:
    with refusing_port() as port:
        relay = Relay(lambda renew: "", f"ws://127.0.0.1:{port}/v4", is_local=True)
        with pytest.raises(
            HostError, match="no connection through IAP: the relay cannot be reached: Connection refused"
        ):
            open_tunnel(relay, INSTANCE, "Worker 0 of 'n1'")


def test_a_host_that_closes_the_connection_is_the_end_of_the_stream() -> None:
    def serve(stream: socket.socket) -> None:
        stream.sendall(MEGABYTES[: 1 << 20])

    with backend(serve) as port, scripted_relay(port) as relay, connect(relay) as stream:
        received = bytearray()
        while part := stream.recv(65_536):
            received += part
        assert received == MEGABYTES[: 1 << 20]


def test_what_was_sent_before_a_close_arrives() -> None:
    received, ended = bytearray(), threading.Event()

    def serve(stream: socket.socket) -> None:
        while data := stream.recv(65_536):
            received.extend(data)
            if len(received) == 1 << 20:
                ended.set()

    with backend(serve) as port, scripted_relay(port) as relay:
        with connect(relay) as stream:
            stream.sendall(MEGABYTES[: 1 << 20])
        assert ended.wait(60)
    assert received == MEGABYTES[: 1 << 20]


def test_a_reader_who_waits_holds_up_the_host_and_nothing_else() -> None:
    sent = 0

    def serve(stream: socket.socket) -> None:
        nonlocal sent
        for at in range(0, len(MEGABYTES), 65_536):
            stream.sendall(MEGABYTES[at : at + 65_536])
            sent += 65_536

    with backend(serve) as port, scripted_relay(port) as relay, connect(relay, QUICK) as stream:
        received = bytearray()
        while part := stream.recv(65_536):
            if not received:
                threading.Event().wait(QUICK.silence + 1)  # longer than the relay may be silent
            received += part
    assert received == MEGABYTES
    assert len(relay.requests) == 1


def test_a_tunnel_ends_with_its_near_end(relay: ScriptedRelay) -> None:
    threads = {thread for thread in threading.enumerate() if thread.name.startswith("iap ")}
    stream = connect(relay)
    (thread,) = {thread for thread in threading.enumerate() if thread.name.startswith("iap ")} - threads
    stream.close()
    thread.join(60)
    assert not thread.is_alive()
