"""Hosts that hang, refuse or vanish at each step: a sentence that names the worker, and nothing open."""

from __future__ import annotations

import socket
import struct
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import paramiko
import pytest

from tests.flows.nodes.memory_provider import node
from tests.hostile.text import steers
from tests.sim.live_host import wait_until
from tpuctl.cloud.ssh import Ssh, SshSession, dial_address, dialing, make_key
from tpuctl.cloud.ssh.dialing import load_key, read_public_key
from tpuctl.errors import HostError
from tpuctl.nodes import Node


class BadHost(paramiko.ServerInterface):
    """Hangs at a step: greeting, key exchange, login, channel, command or output; or refuses: refusal.

    It hangs up at the end of the test.
    """

    def __init__(self, step: str, folder: Path) -> None:
        self._step = step
        make_key(folder / "host key")
        self._key = load_key(folder / "host key")
        self._published = self._key.get_base64()
        self.hangs_up = False
        """Whether it ends the connection at the step instead."""
        self._end = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._transport: paramiko.Transport | None = None
        self._stream: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.asked_alive = threading.Event()
        """Set once the client has sent a packet for its own sake."""
        self._dialed: list[socket.socket] = []

    @property
    def host_key(self) -> str:
        """Its public key, as a node publishes it."""
        return self._published

    def dial(self, node: Node, worker: int) -> socket.socket:
        """Connect to it, whatever the worker."""
        self._dialed.append(dial_address(*self._listener.getsockname()))
        return self._dialed[-1]

    @property
    def is_left(self) -> bool:
        """Whether the client has closed every connection."""
        return all(stream.fileno() == -1 for stream in self._dialed)

    @contextmanager
    def served(self) -> Iterator[BadHost]:
        """Serve one client within the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._end.set()
            if self._transport:
                self._transport.packetizer.complete_handshake()
                self._transport.close()
            self._listener.close()
            self._thread.join(60)

    def _serve(self) -> None:
        self._stream, _ = self._listener.accept()
        with self._stream:
            if self._step in ("greeting", "key exchange"):
                self._stream.sendall(b"SSH-2.0-bad\r\n" if self._step == "key exchange" else b"")
                while not self.hangs_up and self._stream.recv(4096):
                    pass
            else:
                self._transport = paramiko.Transport(self._stream)
                self._transport.add_server_key(self._key)
                self._transport.start_server(threading.Event(), self)
                self._transport.join()

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._hang("login")
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        self._hang("channel")
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self._hang("command")
        return self._step != "refusal"

    def present_another_type(self) -> None:
        """Have a host key of another type than the published one."""
        self._key = paramiko.ECDSAKey.generate()

    def check_global_request(self, kind: str, msg: paramiko.Message) -> bool:
        self.asked_alive.set()
        return False

    def reset(self) -> None:
        """End the connection as a router does that has forgotten it."""
        assert self._stream
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._stream.close()

    def _hang(self, step: str) -> None:
        if self._step == step:
            if self.hangs_up and self._stream:
                self._stream.shutdown(socket.SHUT_RDWR)
            self._end.wait(60)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_key(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture(autouse=True)
def ends_its_threads() -> Iterator[None]:
    """Neither a timer nor a connection's thread outlives a test."""
    yield
    for thread in threading.enumerate():
        if isinstance(thread, (threading.Timer, paramiko.Transport)):
            thread.join(60)
            assert not thread.is_alive(), thread


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has a step of a connection given up soon; a busy machine has its time for the steps before it."""

    def shorten(*_: object) -> None:
        monkeypatch.setattr(dialing, "CONNECT_TIMEOUT", 0.3)

    def at(step: str) -> None:
        if step in ("greeting", "key exchange"):
            shorten()
        elif step == "login":
            begin = paramiko.Transport.auth_publickey
            monkeypatch.setattr(
                paramiko.Transport, "auth_publickey", lambda *arguments: shorten() or begin(*arguments)
            )

    return at


def failure(host: BadHost, key: Path, timeout: float = 20.0) -> HostError:
    """The error of a command on the host, which has lost the client by then."""
    ssh = Ssh("ada", key, host.dial)
    with host.served():
        with (
            pytest.raises(HostError, match=r"^worker 0 of 'n1': ") as caught,
            ssh.connect(node(), 0, host.host_key) as session,
        ):
            session.run(["true"], timeout=timeout)
        wait_until(lambda: host.is_left)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ("greeting", "it did not answer in time, at the begin of the connection"),
        ("key exchange", "it did not answer in time, at the begin of the connection"),
        ("login", "it did not answer in time, at the login"),
        ("channel", "a command did not end in time"),
        ("command", "a command did not end in time"),
        ("output", "a command did not end in time"),
    ],
)
def test_a_host_that_hangs_is_given_up_and_named_with_the_step(
    step: str, text: str, key: Path, tmp_path: Path, hurry: Callable[[str], None]
) -> None:
    hurry(step)
    assert text in failure(BadHost(step, tmp_path), key, timeout=0.3).message


def test_a_host_that_refuses_to_run_commands_is_no_lost_host(key: Path, tmp_path: Path) -> None:
    """As when its user may start no more processes."""
    assert failure(BadHost("refusal", tmp_path), key).message.endswith("it refused to run a command.")


@pytest.mark.parametrize("step", ["greeting", "key exchange", "login", "command"])
def test_a_host_that_hangs_up_is_said_to_have_closed_the_connection(
    step: str, key: Path, tmp_path: Path
) -> None:
    host = BadHost(step, tmp_path)
    host.hangs_up = True
    assert failure(host, key).message.endswith("it closed the connection.")


def test_a_host_without_a_key_of_the_published_type_is_refused(key: Path, tmp_path: Path) -> None:
    """Not another type's key in its place: nobody has vouched for that."""
    host = BadHost("output", tmp_path)
    host.present_another_type()
    assert "it speaks another SSH: " in failure(host, key).message


class TestLaptopThatSlept:
    """A connection that was dead for minutes: its loss is noticed, and not waited for."""

    def test_a_quiet_connection_sends_a_packet_now_and_then(
        self, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """So that a lost one fails, and no router forgets one that lives."""
        monkeypatch.setattr(dialing, "KEEP_ALIVE", 0.05)
        host = BadHost("output", tmp_path)
        with host.served(), Ssh("ada", key, host.dial).connect(node(), 0, host.host_key):
            assert host.asked_alive.wait(60)

    @pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no such option")
    def test_packets_that_nobody_acknowledges_for_a_minute_end_a_connection(self) -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            dial_address(*server.getsockname()) as stream,
        ):
            assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000

    def test_a_command_on_a_connection_that_is_lost_says_so(self, key: Path, tmp_path: Path) -> None:
        host = BadHost("output", tmp_path)
        with host.served(), Ssh("ada", key, host.dial).connect(node(), 0, host.host_key) as session:
            host.reset()
            with pytest.raises(HostError, match="worker 0 of 'n1': it closed the connection"):
                session.run(["true"])
            wait_until(lambda: not session.is_open)


class TestCommandsThatFlood:
    def test_a_flood_ends_the_command_and_not_the_memory(self, session: SshSession) -> None:
        with pytest.raises(
            HostError, match=r"worker 0 of 'n1': a command printed more than 16,777,216 bytes"
        ):
            session.run(["cat", "/dev/zero"])
        assert session.run(["echo", "still here"]).stdout == "still here\n"

    def test_both_streams_and_the_input_may_be_large_at_once(self, session: SshSession) -> None:
        """None of them waits for another one that is full."""
        program = (
            "import sys; n = 3_000_000; sys.stderr.write('e' * n); sys.stdout.write('o' * n);"
            " sys.stdout.flush(); sys.stdout.write(str(len(sys.stdin.read())))"
        )
        result = session.run(["python3", "-c", program], stdin=b"i" * 5_000_000)
        assert (len(result.stderr), result.stdout) == (3_000_000, "o" * 3_000_000 + "5000000")

    def test_a_command_that_ends_before_its_input_has_its_result(self, session: SshSession) -> None:
        result = session.run(["sh", "-c", "echo enough; exit 3"], stdin=b"i" * 10_000_000)
        assert (result.exit_code, result.stdout) == (3, "enough\n")


def test_what_a_host_says_in_place_of_a_greeting_steers_no_terminal(key: Path) -> None:
    """Python shows what has caused an error, too: paramiko's has the bytes as they came."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        stream, _ = listener.accept()
        with stream:
            stream.sendall(b"HTTP/1.1 \x1b]0;owned\x07\r\n" * 200)
            stream.recv(100)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    ssh = Ssh("ada", key, lambda node, worker: dial_address(*listener.getsockname()))
    with pytest.raises(HostError) as caught, ssh.connect(node(), 0, read_public_key(key).split()[1]):
        pass
    thread.join(60)
    listener.close()
    assert "owned" in str(caught.value)
    text = "".join(traceback.format_exception(caught.value)).replace("\n", "")
    assert not steers(text), ascii(text)
