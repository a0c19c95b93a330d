"""`tpuctl forward`: a port of a host, through lost connections, until Ctrl-C or the end of the node."""

from __future__ import annotations

import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import msgspec
import pytest

from tests.forks import commands
from tests.isolation.ports import free_port, listens
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud, connect
from tpuctl.config import load
from tpuctl.errors import PreemptedError, TpuctlError
from tpuctl.flows.remote import forwarding as flow
from tpuctl.flows.remote.forwarding import PortPair, listen
from tpuctl.flows.remote.targets import find_hosts, only_worker

Call = Callable[..., CommandResult]


@pytest.fixture
def board() -> Iterator[int]:
    """The port of a program that a host runs, and that says `hello` to everybody."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                client.sendall(b"hello")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def read(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        return b"".join(iter(lambda: client.recv(100), b""))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_port_is_forwarded_until_ctrl_c(remote: RunningSimulator, board: int, number: int) -> None:
    port = free_port()
    command = ("forward", "n1", f"{port}:{board}", *(["--json"] if number == signal.SIGTERM else []))
    process = commands.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stderr
    shown = process.stdout.readline()
    if number == signal.SIGTERM:
        assert msgspec.json.decode(shown) == {
            "schema": 1, "node": "n1", "worker": 0, "address": "127.0.0.1",
            "ports": [{"local": port, "remote": board}],
        }  # fmt: skip
    else:
        assert shown == f"localhost:{port} is port {board} of worker 0 of n1\n"
        assert [process.stderr.readline() for _ in range(2)][1] == "Press Ctrl-C to end.\n"
    assert [read(port) for _ in range(3)] == [b"hello"] * 3
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors


def test_a_port_on_which_only_the_forward_itself_listens_is_said(remote: RunningSimulator) -> None:
    """Simulated hosts have the ports of this machine: each connection would open the next one."""
    port = free_port()
    command = ("forward", "n1", str(port), str(port), "--json")
    process = commands.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    assert len(msgspec.json.decode(process.stdout.readline())["ports"]) == 1
    assert [read(port) for _ in range(3)] == [b""] * 3
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert f"nothing listens on port {port} of the host yet" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ((), 2, "Which port?"),
        (("n1",), 2, "Such as: tpuctl forward n1 6006\n"),
        (("n1:6006",), 2, "'n1:6006' names no port."),
        (("n1", "x"), 2, "'x' names no port."),
        (("6006", "n1"), 2, "'n1' names no port."),
        ((":1",), 4, "You have 2 TPUs: n1, pair."),
        (("n9", ":1"), 4, "There is no node 'n9'."),
        (("pair", ":1", "--worker", "2"), 4, "'pair' has no worker 2"),
    ],
)
def test_what_cannot_be_forwarded_is_a_sentence(
    command: Call, words: tuple[str, ...], code: int, sentence: str
) -> None:
    result = command("forward", *words)
    assert (result.code, sentence in result.err) == (code, True), result.err


def test_a_port_that_is_taken_is_said_before_anything_is_opened(command: Call, board: int) -> None:
    result = command("forward", "n1", f"{board}:6006")
    assert (result.code, f"Port {board} of this machine is used by another program" in result.err) == (
        4,
        True,
    )


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("ssh-refused", "worker 0 of 'n1': it refused the connection."),
        ("wrong-host-key", "worker 0 of 'n1': its host key is not the one it published."),
    ],
)
def test_a_host_that_cannot_be_reached_at_first_ends_the_command(
    command: Call, faults: Callable[..., object], fault: str, sentence: str
) -> None:
    faults(fault, node="n1")
    result = command("forward", "n1", ":1")
    assert (result.code, sentence in result.err) == (8, True), result.err


class Forwarding:
    """The flow in a thread, which ends with the node; `reports` are what it says."""

    def __init__(self, cloud: Cloud, name: str, remote_port: int) -> None:
        self.reports: queue.Queue[str] = queue.Queue()
        self.error: TpuctlError | None = None
        (self._listener,) = listen([PortPair(0, remote_port)])
        self.port = self._listener.ports.local
        self._cloud = cloud
        self._hosts = find_hosts(cloud.provider, name, only_worker(0), "", None)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            flow.forward(
                self._cloud.provider, self._cloud.ssh, self._hosts, [self._listener], self.reports.put,
                lambda: self.reports.put("ready"),
            )  # fmt: skip
        except TpuctlError as error:
            self.error = error

    def await_report(self, *words: str) -> None:
        """Read reports until one has one of the words."""
        while not any(word in (report := self.reports.get(timeout=60)) for word in words):
            assert report

    def join(self) -> TpuctlError | None:
        """Wait for its end, and return the error that it ended with."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.error


def test_a_dead_connection_is_opened_again_until_the_node_ends(
    command: Call, remote: RunningSimulator, board: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that says nothing is how a connection looks after the laptop has slept."""
    up = ("up", "v3-8", "--spot", "--zone", "europe-west4-a", "--name", "brief", "--yes")
    assert command(*up).code == 0
    monkeypatch.setattr(flow, "PULSE", 0.05)
    with closing(connect(load({}))) as cloud:
        forwarding = Forwarding(cloud, "brief", board)
        forwarding.await_report("ready")
        assert read(forwarding.port) == b"hello"
        remote.break_hosts("host-hang", node="brief")
        monkeypatch.setattr(flow, "SILENCE", 0.5)  # for the host that hangs: a busy machine is not silent
        forwarding.await_report("does not answer; connecting again")
        monkeypatch.setattr(flow, "SILENCE", 60)
        remote.heal_hosts()
        assert read(forwarding.port) == b"hello"  # this client waits for the connection
        forwarding.await_report("connected again")
        remote.faults.add("preemption", node="brief")
        error = forwarding.join()
    assert isinstance(error, PreemptedError)
    assert "tpuctl down brief" in error.hint
    assert not listens(("127.0.0.1", forwarding.port))
    remote.faults.clear()
    assert command("down", "brief", "--yes").code == 0
