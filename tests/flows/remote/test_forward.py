"""A connection for forwarded ports that is lost: when it is opened again, and what ends it for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.flows.nodes.memory_provider import MemoryProvider, node
from tpuctl.errors import ConfigError, HostError, NotFoundError, PreemptedError, TpuctlError
from tpuctl.flows.remote import forwarding as flow
from tpuctl.flows.remote.forwarding import Link
from tpuctl.flows.remote.targets import Hosts
from tpuctl.nodes import Node, NodeState

if TYPE_CHECKING:
    from tpuctl.cloud.ssh.process import HostPorts


LOST = "the connection to worker 0 of 'n1' was lost"
SILENT = "worker 0 of 'n1' does not answer"


class PlayedPorts:
    """A connection that answers so many times, then is lost, or silent."""

    def __init__(self, transport: Any) -> None:
        self._answers, self._is_silent = transport

    def is_lost_within(self, seconds: float) -> bool:
        assert seconds == 15.0
        return not self._answers and not self._is_silent

    def answers(self, seconds: float) -> bool:
        assert seconds == 10.0
        self._answers -= 1
        return bool(self._answers >= 0)


class Site:
    """A node, connections to it one after the other, and what is said."""

    def __init__(self, *connections: tuple[int, bool] | TpuctlError) -> None:
        """Each connection has the number of its answers, and whether it is silent then; or fails."""
        self._connections = list(connections)
        self.provider = MemoryProvider(node())
        self.reports: list[str] = []
        self.pauses: list[float] = []
        self.readies = 0
        self.keys: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None
        """Called when no connection is left to be opened."""

    @contextmanager
    def connect(self, to: Node, worker: int, host_key: str) -> Iterator[Any]:
        self.keys.append(host_key)
        connection = self._connections.pop(0)
        if not self._connections:
            self.meanwhile()
        if isinstance(connection, TpuctlError):
            raise connection
        yield SimpleNamespace(transport=connection)

    def change(self, state: NodeState) -> None:
        before = self.provider.nodes["n1"]
        self.provider.nodes["n1"] = replace(before, state=state, provider_state=f"its {state}")

    def ready(self) -> None:
        self.readies += 1

    def end(self) -> TpuctlError:
        """Forward ports until that ends."""
        hosts = Hosts(node(), (0,), {0: "former host key"})
        with pytest.raises(TpuctlError) as caught:
            flow.forward(
                cast("Any", self.provider), cast("Any", self), hosts, [], self.reports.append, self.ready,
                self.pauses.append,
            )  # fmt: skip
        return caught.value


@pytest.fixture(autouse=True)
def played_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuctl.cloud.ssh.process.HostPorts", PlayedPorts)


def test_a_lost_connection_is_opened_again_until_the_node_has_ended() -> None:
    site = Site((2, False), (0, True), (1, False))
    site.meanwhile = lambda: site.change(NodeState.PREEMPTED)
    assert isinstance(site.end(), PreemptedError)
    assert site.reports == [
        f"{LOST}; connecting again", "connected again", f"{SILENT}; connecting again", "connected again",
        f"{LOST}; connecting again",
    ]  # fmt: skip
    assert (site.readies, site.pauses) == (1, [])
    assert site.keys == ["former host key", "host key 0", "host key 0"], "it may have others by then"


def test_the_error_of_the_first_connection_ends_it() -> None:
    error = HostError("worker 0 is down.")
    site = Site(error)
    assert site.end() is error
    assert (site.readies, site.reports) == (0, [])


def test_each_reason_is_said_once_while_the_pauses_grow() -> None:
    down, refused = HostError("worker 0 is down."), HostError("worker 0 refuses.")
    site = Site((0, False), down, down, refused, (0, False))
    site.meanwhile = lambda: site.provider.nodes.clear()
    assert isinstance(site.end(), NotFoundError)
    assert site.reports == [
        f"{LOST}; connecting again", down.message, refused.message, "connected again",
        f"{LOST}; connecting again",
    ]  # fmt: skip
    assert site.pauses == [0.5, 1.0, 2.0]


def test_a_host_that_is_down_for_long_is_asked_four_times_a_minute() -> None:
    site = Site((0, False), *[HostError("worker 0 is down.")] * 7)
    site.meanwhile = lambda: site.provider.nodes.clear()
    assert isinstance(site.end(), NotFoundError)
    assert site.pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]


def test_clients_have_each_connection_while_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    attached: list[bool] = []

    class Recorded(Link):
        def attach(self, ports: HostPorts | None) -> None:
            attached.append(ports is not None)
            super().attach(ports)

    monkeypatch.setattr(flow, "Link", Recorded)
    site = Site((1, False), (1, True))
    site.meanwhile = lambda: site.change(NodeState.PREEMPTED)
    assert isinstance(site.end(), PreemptedError)
    assert attached == [True, False, True, False]


def test_a_node_that_returns_is_waited_for() -> None:
    site = Site((0, False), (0, False))
    site.change(NodeState.REPAIRING)

    def sleep(seconds: float) -> None:
        site.pauses.append(seconds)
        site.change(NodeState.READY)

    site.meanwhile = lambda: site.change(NodeState.PREEMPTED)
    with pytest.raises(PreemptedError):
        flow.forward(
            cast("Any", site.provider), cast("Any", site), Hosts(node(), (0,), {0: "host key 0"}), [],
            site.reports.append, site.ready, sleep,
        )  # fmt: skip
    assert site.reports[:3] == [f"{LOST}; connecting again", "Node 'n1' is its REPAIRING.", "connected again"]
    assert len(site.pauses) == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (HostError("It is another host.", host_key="wrong"), HostError),
        (ConfigError("No key."), ConfigError),
        (NotFoundError("It is gone."), NotFoundError),
    ],
)
def test_what_another_connection_would_only_repeat_ends_it(
    error: TpuctlError, kind: type[TpuctlError]
) -> None:
    site = Site((0, False), error)
    assert site.end() is error
    assert isinstance(error, kind)
    assert site.pauses == []


def test_a_node_that_was_stopped_ends_it_with_the_command_that_starts_it() -> None:
    site = Site((0, False))
    site.change(NodeState.STOPPED)
    error = site.end()
    assert isinstance(error, NotFoundError)
    assert error.message == "Node 'n1' is its STOPPED."
    assert "tpuctl start n1" in error.hint
