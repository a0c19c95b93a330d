"""How long faults hold something up: by a bandwidth that transfers share, or until they are over."""

from __future__ import annotations

import asyncio
import socket
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sim.hosts.site import Clock
from tpuctl.sim import faults
from tpuctl.sim import faults as wait
from tpuctl.sim.faults import BandwidthLimits, FaultRegistry, reset, while_in_force


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> tuple[Clock, list[float]]:
    """The clock of transfers, and how long each of them slept."""
    clock, pauses = Clock(), []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(faults, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(faults, "asyncio", SimpleNamespace(sleep=sleep))
    return clock, pauses


def test_transfers_share_a_bandwidth_in_each_direction(slept: tuple[Clock, list[float]]) -> None:
    clock, pauses = slept
    faults, limits = FaultRegistry(), BandwidthLimits()
    slow, other = faults.add("gcs-slow", bandwidth=100), faults.add("gcs-slow", bandwidth=50)
    clock.now = 7.0

    async def send() -> None:
        await limits.send(slow, 50, up=True)
        await limits.send(slow, 50, up=True)
        await limits.send(slow, 50, up=False)
        await limits.send(other, 50, up=True)
        clock.now = 7.5
        await limits.send(slow, 25, up=True)
        clock.now = 20.0
        await limits.send(slow, 25, up=True)

    asyncio.run(send())
    assert pauses == [0.5, 1.0, 0.5, 1.0, 0.75, 0.25]


def test_without_a_bandwidth_nothing_waits(slept: tuple[Clock, list[float]]) -> None:
    fault = FaultRegistry().add("gcs-slow", latency=1)
    asyncio.run(BandwidthLimits().send(fault, 1 << 30, up=True))
    assert slept[1] == []


def waited(faults: FaultRegistry, identifier: str, *arguments: Any, **later: Any) -> None:
    """Wait while a fault is in force; `act` is called once it is waited for."""

    async def run() -> None:
        waiting = asyncio.create_task(while_in_force(faults, identifier, *arguments))
        while not faults._listeners and not waiting.done():
            await asyncio.sleep(0)
        for act in later.values():
            assert not waiting.done()
            act()
        await asyncio.wait_for(waiting, 60)

    asyncio.run(run())
    assert faults._listeners == []


def test_a_fault_that_is_not_in_force_holds_nothing_up() -> None:
    clock = Clock()
    faults = FaultRegistry(clock)
    faults.add("gcs-stall", after=5)
    waited(faults, "f1")
    waited(faults, "f2")


def test_a_fault_is_waited_for_until_it_is_removed() -> None:
    faults = FaultRegistry()
    faults.add("gcs-stall")
    waited(faults, "f1", act=lambda: faults.remove("f1"))


def test_another_fault_that_is_removed_ends_no_wait() -> None:
    faults = FaultRegistry()
    faults.add("gcs-stall")
    faults.add("stockout")
    waited(faults, "f1", first=lambda: faults.remove("f2"), then=lambda: faults.remove("f1"))


@pytest.mark.parametrize("seconds", [0.0, 0.001])
def test_a_wait_has_an_end_of_its_own(seconds: float) -> None:
    faults = FaultRegistry()
    faults.add("gcs-stall")
    waited(faults, "f1", seconds)


def test_a_fault_ends_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "POLL_INTERVAL", 0.001)
    clock = Clock()
    faults = FaultRegistry(clock)
    faults.add("gcs-stall", duration=100)

    def advance() -> None:
        clock.now = 100.0

    waited(faults, "f1", act=advance)


def test_a_connection_is_reset_and_not_closed_in_order() -> None:
    async def run() -> type[BaseException] | None:
        accepted: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

        def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.set_result(writer)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            transport = (await accepted).transport
            reset(transport)
            assert transport.is_closing()
            try:
                await reader.read()
            except ConnectionResetError as error:
                return type(error)
            finally:
                writer.close()
        return None

    assert asyncio.run(run()) is ConnectionResetError
    reset(None)


def test_a_reset_leaves_nothing_to_be_sent() -> None:
    """SO_LINGER with a timeout of zero: man 7 socket."""

    class Transport(asyncio.Transport):
        def __init__(self, connection: socket.socket) -> None:
            super().__init__({"socket": connection})
            self.aborted = False

        def abort(self) -> None:
            self.aborted = True

    with socket.socket() as connection:
        transport = Transport(connection)
        reset(transport)
        linger = connection.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
    assert (struct.unpack("ii", linger), transport.aborted) == ((1, 0), True)
