"""Which faults fire on an operation of Cloud Storage: in its place, after it, or on bodies."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from tpuctl.sim.events import Events
from tpuctl.sim.faults import BandwidthLimits, FaultRegistry
from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.request_faults import begin_operation, current_faults, faults_of

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
