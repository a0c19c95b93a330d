"""Which faults fire on a connection to the relay, when they take effect on it, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from tpuctl.sim.events import Events
from tpuctl.sim.faults import Fault, FaultRegistry
from tpuctl.sim.iap import targets as module
from tpuctl.sim.iap.targets import Closing, TunnelFaults
from tpuctl.sim.records import Host

HOST = Host(
    node="projects/p/locations/europe-west4-a/nodes/n1",
    node_uid="1",
    worker=3,
    address="127.77.0.1",
    hostname="t1v-n-00000001-w-3",
    accelerator_type="v3-32",
    runtime_version="tf-2.17",
    peers=("127.77.0.1",),
    preemptible=False,
)


@pytest.fixture(autouse=True)
def _no_faults() -> None:
    """In place of that of the folder, which starts a simulator."""


class Transport(asyncio.Transport):
    """A connection that records what is done with it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.closing = False

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def is_closing(self) -> bool:
        return self.closing


class Relay:
    """A registry of faults and the connections of a relay; waits take no time and are recorded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events = Events(clock=lambda: 0.0)
        self.registry = FaultRegistry(clock=lambda: 0.0, events=self.events)
        self.transport = Transport()
        self.waits: list[object] = []
        self.silence = asyncio.Event()
        monkeypatch.setattr(module, "while_in_force", self._while_in_force)
        monkeypatch.setattr(module, "reset", lambda transport: self.transport.calls.append("reset"))

    def connection(self, path: str = "/v4/connect", host: Host | None = HOST, **query: str) -> TunnelFaults:
        request: Any = SimpleNamespace(path=path, query=query, transport=self.transport)
        limits: Any = SimpleNamespace(send=self._send)
        return TunnelFaults(self.registry, limits, request, host)

    async def _while_in_force(self, registry: FaultRegistry, identifier: str, seconds: float | None) -> None:
        assert registry is self.registry
        self.waits.append((identifier, seconds))
        await self.silence.wait()

    async def _send(self, fault: Fault, size: int, *, up: bool) -> None:
        self.waits.append((fault.id, size, up))


@pytest.fixture
def relay(monkeypatch: pytest.MonkeyPatch) -> Relay:
    return Relay(monkeypatch)


def in_loop(work: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await work()

    asyncio.run(asyncio.wait_for(run(), 60))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def closing_of(connection: TunnelFaults) -> tuple[int, str, bool] | None:
    """Return how a connection is closed when it is to open; None if it opens."""
    try:
        connection.refuse()
        asyncio.run(connection.open())
    except Closing as closing:
        return closing.code, closing.reason, closing.resumable
    return None


@pytest.mark.parametrize(
    ("code", "closing"),
    [
        ("4003", (4003, "failed to connect to backend", False)),
        ("4004", (4004, "reauthentication required", True)),
        ("4033", (4033, "not authorized", False)),
    ],
)
def test_a_refused_connection_is_closed_with_the_code_of_the_fault(
    relay: Relay, code: str, closing: tuple[int, str, bool]
) -> None:
    relay.registry.add("iap-refused", code=code, count=1)
    assert closing_of(relay.connection()) == closing
    assert closing_of(relay.connection()) is None, "the fault is used up"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("401", web.HTTPUnauthorized),
        ("403", web.HTTPForbidden),
        ("503", web.HTTPServiceUnavailable),
    ],
)
def test_a_refusal_can_be_an_http_status(relay: Relay, code: str, error: type[web.HTTPError]) -> None:
    relay.registry.add("iap-refused", code=code)
    with pytest.raises(error):
        relay.connection().refuse()


def test_of_several_refusals_the_first_that_fires_counts(relay: Relay) -> None:
    relay.registry.add("iap-refused", code="4047", node="other")
    relay.registry.add("iap-refused", code="4033", skip=1)
    relay.registry.add("iap-refused", code="4001")
    assert closing_of(relay.connection()) == (4001, "session not found", False)
    assert closing_of(relay.connection()) == (4033, "not authorized", False)


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ({}, True),
        ({"project": "p"}, True),
        ({"project": "q"}, False),
        ({"zone": "europe-*"}, True),
        ({"zone": "us-*"}, False),
        ({"node": "n1"}, True),
        ({"node": "n2"}, False),
        ({"type": "v3-32"}, True),
        ({"type": "v3-8"}, False),
        ({"worker": "3"}, True),
        ({"worker": "0"}, False),
        ({"request": "connect"}, True),
        ({"request": "reconnect"}, False),
    ],
)
def test_a_fault_matches_the_host_and_the_request(
    relay: Relay, pattern: dict[str, Any], matches: bool
) -> None:
    relay.registry.add("iap-refused", **pattern)
    assert (closing_of(relay.connection()) is not None) is matches


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ({}, True),
        ({"project": "p"}, True),
        ({"project": "q"}, False),
        ({"zone": "z"}, True),
        ({"request": "reconnect"}, True),
        ({"node": "n1"}, False),
        ({"worker": "0"}, False),
    ],
)
def test_a_connection_to_no_host_is_known_by_what_it_asks_for(
    relay: Relay, pattern: dict[str, Any], matches: bool
) -> None:
    relay.registry.add("iap-refused", **pattern)
    connection = relay.connection("/v4/reconnect", None, project="p", zone="z", port="22")
    assert (closing_of(connection) is not None) is matches


def test_a_firing_is_an_event_of_the_relay_on_the_worker(relay: Relay) -> None:
    relay.registry.add("iap-refused")
    relay.registry.add("iap-cut", bytes=9)
    closing_of(relay.connection())
    closing_of(relay.connection("/v4/connect", None))
    noted = [(event.what, event.resource, event.detail, event.service) for event in relay.events]
    assert noted == [
        ("iap-refused", f"{HOST.node}/workers/3", "f1 connect", "iap"),
        ("iap-refused", "", "f1 connect", "iap"),
    ]


def test_a_slow_relay_opens_late(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(seconds: float) -> None:
        relay.waits.append(seconds)

    monkeypatch.setattr(module, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    relay.registry.add("iap-slow", latency=2)
    relay.registry.add("iap-cut", bytes=5)
    assert closing_of(relay.connection()) is None
    assert relay.waits == [2.0]


def test_a_slow_relay_sends_through_its_bandwidth(relay: Relay) -> None:
    async def work() -> None:
        relay.registry.add("iap-slow", bandwidth=100)
        relay.registry.add("iap-slow", bandwidth=50, count=1)
        first, second = relay.connection(), relay.connection()
        await first.carry(10, up=True)
        await first.carry(20, up=False)
        await second.carry(30, up=True)
        assert relay.waits == [
            ("f1", 10, True), ("f2", 10, True), ("f1", 20, False), ("f2", 20, False), ("f1", 30, True),
        ]  # fmt: skip

    in_loop(work)


@pytest.mark.parametrize(
    ("limit", "carried"), [(1, [True, False]), (10, [True, False]), (11, [True, True, False])]
)
def test_a_connection_carries_nothing_more_once_it_is_to_be_cut(
    relay: Relay, limit: int, carried: list[bool]
) -> None:
    async def work() -> None:
        relay.registry.add("iap-cut", bytes=limit)
        connection = relay.connection()
        watching = asyncio.ensure_future(connection.watch())
        for passes in carried:
            carrying = asyncio.ensure_future(connection.carry(10, up=True))
            await settle()
            assert carrying.done() is passes
            assert watching.done() is not passes
        assert watching.result() is False
        assert relay.transport.calls == ["reset"]
        carrying.cancel()

    in_loop(work)


@pytest.mark.parametrize(
    ("options", "closing"),
    [
        ({"code": "4004"}, (4004, True)),
        ({"code": "1011"}, (1011, True)),
        ({"lost": True}, (0, False)),
        ({"code": "4004", "lost": True}, (4004, False)),
    ],
)
def test_a_cut_may_have_a_code_and_may_lose_the_tunnel(
    relay: Relay, options: dict[str, Any], closing: tuple[int, bool]
) -> None:
    async def work() -> None:
        relay.registry.add("iap-cut", **options)
        with pytest.raises(Closing) as raised:
            await relay.connection().watch()
        assert (raised.value.code, raised.value.resumable) == closing
        assert relay.transport.calls == []

    in_loop(work)


def test_a_cut_that_is_added_later_cuts_what_is_open_and_only_what_it_matches(relay: Relay) -> None:
    async def work() -> None:
        connection = relay.connection()
        watching = asyncio.ensure_future(connection.watch())
        await settle()
        relay.registry.add("iap-cut", worker="0")
        await settle()
        assert not watching.done()
        relay.registry.add("iap-cut", worker="3")
        await settle()
        assert watching.result() is False

    in_loop(work)


def test_a_fault_is_tried_once_on_each_connection(relay: Relay) -> None:
    async def work() -> None:
        relay.registry.add("iap-cut", bytes=0, skip=2)
        connections = [relay.connection() for _ in range(3)]
        for connection in connections:
            for _ in range(2):
                carrying = asyncio.ensure_future(connection.carry(1, up=True))
                await settle()
                assert carrying.done() is (connection is not connections[2])
                carrying.cancel()

    in_loop(work)


@pytest.mark.parametrize(("options", "seconds"), [({}, None), ({"seconds": 20}, 20.0)])
def test_a_silent_connection_reads_and_carries_nothing_until_the_silence_is_over(
    relay: Relay, options: dict[str, Any], seconds: float | None
) -> None:
    async def work() -> None:
        relay.registry.add("iap-stall", **options)
        connection = relay.connection()
        await connection.open()
        await settle()
        assert (relay.transport.calls, relay.waits) == (["pause"], [("f1", seconds)])
        carrying = asyncio.ensure_future(connection.carry(1, up=True))
        await settle()
        assert not carrying.done()
        relay.silence.set()
        await carrying
        assert relay.transport.calls == ["pause", "resume"]
        await connection.carry(1, up=True)
        assert relay.waits == [("f1", seconds)], "it falls silent once"

    in_loop(work)


def test_a_silence_begins_after_its_bytes(relay: Relay) -> None:
    async def work() -> None:
        relay.registry.add("iap-stall", at=10)
        connection = relay.connection()
        await connection.open()
        await connection.carry(9, up=True)
        await connection.carry(1, up=False)
        assert relay.transport.calls == []
        carrying = asyncio.ensure_future(connection.carry(1, up=True))
        await settle()
        assert (carrying.done(), relay.transport.calls) == (False, ["pause"])
        carrying.cancel()
        relay.silence.set()

    in_loop(work)


def test_a_connection_that_was_closed_in_its_silence_reads_no_more(relay: Relay) -> None:
    async def work() -> None:
        relay.registry.add("iap-stall")
        connection = relay.connection()
        await connection.open()
        await settle()
        relay.transport.closing = True
        relay.silence.set()
        await settle()
        assert relay.transport.calls == ["pause"]

    in_loop(work)


def test_a_silence_ends_with_its_connection(relay: Relay) -> None:
    async def work() -> None:
        before = asyncio.all_tasks()
        relay.registry.add("iap-stall")
        connection = relay.connection()
        watching = asyncio.ensure_future(connection.watch())
        await settle()
        watching.cancel()
        await settle()
        assert relay.transport.calls == ["pause"]
        assert asyncio.all_tasks() == before, "the silence is over, too"
        relay.registry.add("iap-cut")  # and the connection hears of no fault any more

    in_loop(work)
