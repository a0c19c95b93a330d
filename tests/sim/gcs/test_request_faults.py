"""What faults do to operations of Cloud Storage: which fire, their errors, and what becomes of bodies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from tpuctl.faults.kinds import CODES
from tpuctl.sim.events import Events
from tpuctl.sim.faults import BandwidthLimits, Fault, FaultRegistry
from tpuctl.sim.gcs import request_faults
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.request_faults import BodyFaults, begin_operation, current_faults, fault_error, faults_of

STATUS: dict[str, int] = {
    "gcs-error": 503, "api-off": 403, "permission": 403, "unavailable": 503, "deadline-exceeded": 504,
    "error": 500, "gcs-reset": 499,
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "api-off": {"api": "storage"},
    "permission": {"method": "storage.*"},
    "unavailable": {"method": "storage.*"},
    "deadline-exceeded": {"method": "storage.*"},
    "error": {"method": "storage.*"},
    "gcs-cut": {"bytes": 5},
}


class Operation:
    """One operation, with the faults that are in force."""

    def __init__(self) -> None:
        self.events = Events(clock=lambda: 0.0)
        self.registry = FaultRegistry(clock=lambda: 0.0, events=self.events)

    def add(self, kind: str, **options: Any) -> None:
        self.registry.add(kind, **OPTIONS.get(kind, {}), **options)

    def run(self, method: str = "storage.objects.get", resource: str = "b/dir/o") -> tuple[int, int, bool]:
        """Return the status in place of the operation and of its response, and if bodies have a fault."""
        request = make_mocked_request("GET", "/")
        with faults_of(self.registry, BandwidthLimits(), request) as faults:
            assert faults is current_faults()
            status, after = 0, None
            try:
                begin_operation(self.registry, method, resource, {"name": "o", "gone": None})
            except GcsError as error:
                status = error.status
            if faults is not None:
                after = faults.response_error()
            bodies = faults is not None and bool(faults.body)
        assert current_faults() is None
        return status, after.status if after else 0, bodies


@pytest.fixture
def operation() -> Operation:
    return Operation()


def test_without_faults_nothing_happens(operation: Operation) -> None:
    assert operation.run() == (0, 0, False)
    operation.registry.add("stockout")
    assert operation.run() == (0, 0, False)


@pytest.mark.parametrize("kind", STATUS)
def test_a_fault_comes_in_place_of_the_operation(operation: Operation, kind: str) -> None:
    operation.add(kind)
    assert operation.run() == (STATUS[kind], 0, False)


@pytest.mark.parametrize("kind", ["gcs-error", "unavailable", "deadline-exceeded", "error", "gcs-reset"])
def test_a_fault_comes_in_place_of_the_response(operation: Operation, kind: str) -> None:
    operation.add(kind, when="after")
    assert operation.run() == (0, STATUS[kind], False)


@pytest.mark.parametrize("kind", ["gcs-cut", "gcs-corrupt", "gcs-stall", "gcs-slow"])
def test_a_fault_is_on_the_bodies(operation: Operation, kind: str) -> None:
    operation.add(kind)
    assert operation.run() == (0, 0, True)


@pytest.mark.parametrize(
    ("options", "fires"),
    [
        ({"bucket": "b"}, True),
        ({"bucket": "other"}, False),
        ({"object": "dir/*"}, True),
        ({"object": "o"}, False),
        ({"method": "storage.objects.*"}, True),
        ({"method": "storage.objects.list"}, False),
    ],
)
def test_a_fault_is_for_its_bucket_object_and_method(
    operation: Operation, options: dict[str, str], fires: bool
) -> None:
    operation.add("gcs-error", **options)
    assert operation.run() == (503 if fires else 0, 0, False)


def test_an_operation_is_an_event(operation: Operation) -> None:
    operation.run()
    operation.run("storage.buckets.list", "p")
    noted = [
        (event.kind, event.what, event.resource, event.service, event.body) for event in operation.events
    ]
    assert noted == [
        ("request", "objects.get", "b/dir/o", "storage", {"name": "o"}),
        ("request", "buckets.list", "p", "storage", {"name": "o"}),
    ]
    begin_operation(operation.registry, "storage.objects.get", "b/o", {"gone": None})
    begin_operation(operation.registry, "storage.objects.get", "b/o")
    assert [event.body for event in list(operation.events)[2:]] == [None, None]
    begin_operation(FaultRegistry(), "storage.objects.get", "b/o")


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


LIMIT = "The object exceeded the rate limit for object mutation operations (create, update, and delete)."
FAULT_STATUS = {
    "CANCELLED": 499, "UNKNOWN": 500, "INVALID_ARGUMENT": 400, "DEADLINE_EXCEEDED": 504, "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409, "PERMISSION_DENIED": 403, "RESOURCE_EXHAUSTED": 429, "FAILED_PRECONDITION": 412,
    "ABORTED": 409, "OUT_OF_RANGE": 416, "UNIMPLEMENTED": 501, "INTERNAL": 500, "UNAVAILABLE": 503,
    "DATA_LOSS": 500, "UNAUTHENTICATED": 401,
}  # fmt: skip


def document(kind: str, *operation: str, **options: object) -> Any:
    """Return the JSON of the error of a fault; `operation` is a method and its resource."""
    error = fault_error(FaultRegistry().add(kind, **options), *(operation or ("storage.objects.get", "b/o")))
    return json.loads(error.to_json())["error"]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("408", "Request Timeout"),
        ("429", LIMIT),
        ("500", "We encountered an internal error. Please try again."),
        ("502", "Bad Gateway"),
        ("503", "Service Unavailable. Please try again."),
        ("504", "Deadline Exceeded"),
        ("404", "The simulator was asked to fail."),
    ],
)
def test_a_status_has_the_text_of_cloud_storage(status: str, message: str) -> None:
    error = document("gcs-error", status=status)
    assert (error["code"], error["message"], "details" in error) == (int(status), message, False)


def test_every_code_of_grpc_has_a_status() -> None:
    assert {code: document("error", method="GetNode", code=code)["code"] for code in CODES} == FAULT_STATUS


def test_an_error_may_have_any_text_reason_and_details() -> None:
    error = document(
        "error", method="GetNode", code="ABORTED", message="no", reason="later", metadata={"a": "b"}
    )
    assert (error["code"], error["message"], error["errors"][0]["reason"]) == (409, "no", "later")
    assert error["details"] == [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "domain": "googleapis.com",
            "reason": "later",
            "metadata": {"a": "b"},
        }
    ]
    plain = document("error", method="GetNode", code="ABORTED")
    assert (plain["errors"][0]["reason"], "details" in plain) == ("conflict", False)


@pytest.mark.parametrize(("resource", "noun"), [("b/o", "object"), ("b", "bucket")])
def test_a_missing_permission_is_that_of_the_method(resource: str, noun: str) -> None:
    error = document("permission", "storage.objects.list", resource)
    assert (error["code"], error["message"]) == (
        403,
        f"The caller does not have storage.objects.list access to the Google Cloud Storage {noun}. "
        "Permission 'storage.objects.list' denied on resource (or it may not exist).",
    )


def test_an_api_that_is_off_says_so_for_programs_too() -> None:
    error = document("api-off", api="storage")
    assert (error["code"], error["errors"][0]["reason"]) == (403, "accessNotConfigured")
    assert error["details"] == [
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "domain": "googleapis.com",
            "reason": "SERVICE_DISABLED",
            "metadata": {"service": "storage.googleapis.com"},
        }
    ]


@pytest.mark.parametrize(("kind", "code"), [("unavailable", 503), ("deadline-exceeded", 504)])
def test_an_outage_has_its_status_and_text(kind: str, code: int) -> None:
    error, same = document(kind), document("gcs-error", status=str(code))
    assert (error["code"], error["message"]) == (code, same["message"])
