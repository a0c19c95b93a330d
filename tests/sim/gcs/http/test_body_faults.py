"""What faults do to the bytes of an upload and of a download: where they cut, change, hold up and slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tpuctl.sim.faults import BandwidthLimits, Fault, FaultRegistry
from tpuctl.sim.gcs import request_faults
from tpuctl.sim.gcs.request_faults import BodyFaults

DATA = bytes(range(10))


class RecordedLimits(BandwidthLimits):
    """Bandwidths that take no time, and what was sent through them."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, int, bool]] = []

    async def send(self, fault: Fault, size: int, *, up: bool) -> None:
        self.sent.append((fault.id, size, up))


class Transfer:
    """The bodies of one request whose connection only records what happens to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.registry = FaultRegistry(clock=lambda: 0.0)
        self.limits = RecordedLimits()
        self.done: list[str] = []
        self.transport: Any = SimpleNamespace(close=lambda: self.done.append("closed"))
        request: Any = SimpleNamespace(transport=self.transport)
        self.request = request
        self.faults = BodyFaults(self.registry, self.limits, request)
        self.pieces: list[bytes] = []
        monkeypatch.setattr(request_faults, "reset", self._reset)
        monkeypatch.setattr(request_faults, "while_in_force", self._wait)
        monkeypatch.setattr(request_faults, "asyncio", SimpleNamespace(sleep=self._sleep))

    def add(self, kind: str, **options: Any) -> Fault:
        fault = self.registry.add(kind, **options)
        self.faults.add(fault)
        return fault

    def carry(self, *chunks: bytes, up: bool = False) -> bytes:
        """Carry a body; return the bytes that arrive, and keep the pieces in which they do."""

        async def collect() -> None:
            async for piece in self.faults.apply(_async(chunks), up=up):
                self.pieces.append(piece)

        asyncio.run(collect())
        return b"".join(self.pieces)

    def _reset(self, transport: Any) -> None:
        assert transport is self.request.transport
        self.done.append("reset")

    async def _wait(self, registry: FaultRegistry, identifier: str, seconds: float | None) -> None:
        assert registry is self.registry
        self.done.append(f"{identifier} stalls for {seconds} after {sum(map(len, self.pieces))}")

    async def _sleep(self, seconds: float) -> None:
        self.done.append(f"sleeps for {seconds}")


async def _async(chunks: Sequence[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@pytest.fixture
def transfer(monkeypatch: pytest.MonkeyPatch) -> Transfer:
    return Transfer(monkeypatch)


def test_without_faults_a_body_is_as_it_was(transfer: Transfer) -> None:
    assert not transfer.faults
    assert transfer.carry(DATA[:4], b"", DATA[4:]) == DATA
    assert transfer.pieces == [DATA[:4], DATA[4:]]
    assert transfer.done == []


def test_a_fault_is_on_a_body_once(transfer: Transfer) -> None:
    fault = transfer.add("gcs-corrupt", at=1)
    transfer.faults.add(fault)
    assert transfer.faults
    assert transfer.carry(DATA) == bytes([0, 0xFE, *range(2, 10)]), "two changes would undo one another"


@pytest.mark.parametrize("at", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("chunks", [(DATA,), (DATA[:4], DATA[4:])])
def test_one_byte_of_a_body_is_changed_in_all_its_bits(
    transfer: Transfer, at: int, chunks: tuple[bytes, ...]
) -> None:
    transfer.add("gcs-corrupt", at=at)
    assert transfer.carry(*chunks) == DATA[:at] + bytes([DATA[at] ^ 0xFF]) + DATA[at + 1 :]


def test_a_byte_behind_the_end_of_a_body_cannot_be_changed(transfer: Transfer) -> None:
    transfer.add("gcs-corrupt", at=10)
    assert transfer.carry(DATA) == DATA


@pytest.mark.parametrize(("up", "end"), [(True, "reset"), (False, "closed")])
@pytest.mark.parametrize("chunks", [(DATA,), (DATA[:4], DATA[4:])])
@pytest.mark.parametrize("size", [1, 3, 4, 5, 10])
def test_a_connection_is_cut_after_just_its_bytes(
    transfer: Transfer, size: int, chunks: tuple[bytes, ...], up: bool, end: str
) -> None:
    transfer.add("gcs-cut", bytes=size)
    with pytest.raises(ConnectionResetError, match="the connection was cut"):
        transfer.carry(*chunks, up=up)
    assert b"".join(transfer.pieces) == DATA[:size]
    assert transfer.done == [end]


def test_a_body_that_ends_before_the_cut_arrives(transfer: Transfer) -> None:
    transfer.add("gcs-cut", bytes=11)
    assert transfer.carry(DATA) == DATA
    assert transfer.done == []


def test_a_connection_that_is_closed_already_is_cut_without_a_word(transfer: Transfer) -> None:
    transfer.request.transport = None
    transfer.add("gcs-cut", bytes=2)
    with pytest.raises(ConnectionResetError):
        transfer.carry(DATA)
    assert (transfer.pieces, transfer.done) == ([DATA[:2]], [])


@pytest.mark.parametrize(
    ("options", "stall"),
    [
        ({"at": 0}, "f1 stalls for None after 0"),
        ({"at": 0, "seconds": 20}, "f1 stalls for 20.0 after 0"),
        ({"at": 3}, "f1 stalls for None after 3"),
        ({"at": 4, "seconds": 1}, "f1 stalls for 1.0 after 4"),
    ],
)
def test_a_body_is_held_up_once_at_its_place(
    transfer: Transfer, options: dict[str, float], stall: str
) -> None:
    transfer.add("gcs-stall", **options)
    assert transfer.carry(DATA[:4], DATA[4:]) == DATA
    assert transfer.done == [stall]


def test_a_body_that_ends_where_it_would_be_held_up_is_not(transfer: Transfer) -> None:
    transfer.add("gcs-stall", at=10)
    assert transfer.carry(DATA) == DATA
    assert transfer.done == []


def test_a_response_waits_for_the_latency_and_for_a_stall_at_its_first_byte(transfer: Transfer) -> None:
    transfer.add("gcs-slow", latency=0.08)
    transfer.add("gcs-slow", bandwidth=100)
    transfer.add("gcs-stall", seconds=2)
    transfer.add("gcs-cut", bytes=5)
    asyncio.run(transfer.faults.delay_response())
    assert transfer.done == ["sleeps for 0.08", "f3 stalls for 2.0 after 0"]
    assert transfer.limits.sent == []


def test_a_response_is_not_held_up_by_a_stall_behind_its_first_byte(transfer: Transfer) -> None:
    transfer.add("gcs-stall", at=1)
    asyncio.run(transfer.faults.delay_response())
    assert transfer.done == []


@pytest.mark.parametrize("up", [True, False])
def test_a_slow_body_goes_through_its_bandwidth_in_small_pieces(transfer: Transfer, up: bool) -> None:
    transfer.add("gcs-slow", bandwidth=80)  # pieces of a twentieth of a second
    assert transfer.carry(DATA, up=up) == DATA
    assert [len(piece) for piece in transfer.pieces] == [4, 4, 2]
    assert transfer.limits.sent == [("f1", size, up) for size in (4, 4, 2)]


def test_the_slowest_of_several_decides_on_the_pieces_and_each_takes_them(transfer: Transfer) -> None:
    transfer.add("gcs-slow", bandwidth=200)
    transfer.add("gcs-slow", bandwidth=100)
    transfer.add("gcs-corrupt", at=7)
    assert transfer.carry(DATA) == bytes([*range(7), 0xF8, 8, 9])
    assert [len(piece) for piece in transfer.pieces] == [5, 2, 3]
    assert transfer.limits.sent == [(fault, size, False) for size in (5, 2, 3) for fault in ("f1", "f2")]
