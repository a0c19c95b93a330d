"""One fault by itself: when it is in force, what it matches, how often it fires, and how it is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sim.hosts.site import Clock
from tpuctl.errors import NotFoundError
from tpuctl.faults import Scenario, request
from tpuctl.sim.events import Events
from tpuctl.sim.faults import BandwidthLimits, Fault, FaultRegistry

NODE = "projects/p/locations/europe-west4-a/nodes/n1"


def added(kind: str, **options: object) -> Fault:
    """Return a fault that was added at 100."""
    return FaultRegistry(clock=lambda: 100.0).add(kind, **options)


@pytest.mark.parametrize(
    ("options", "states"),
    [
        ({}, {99.0: "waiting", 100.0: "in force", 1e9: "in force"}),
        ({"after": 10}, {109.9: "waiting", 110.0: "in force"}),
        ({"duration": 5}, {100.0: "in force", 104.9: "in force", 105.0: "over"}),
        ({"after": 10, "duration": 5}, {109.9: "waiting", 110.0: "in force", 115.0: "over"}),
    ],
)
def test_a_fault_is_in_force_from_its_begin_to_its_end(
    options: dict[str, Any], states: dict[float, str]
) -> None:
    fault = added("stockout", **options)
    assert {now: fault.as_json(now)["state"] for now in states} == states
    assert {now: fault.in_force(now) for now in states} == {
        now: state == "in force" for now, state in states.items()
    }


def test_a_fault_is_shown_with_the_options_that_were_given() -> None:
    faults = FaultRegistry(clock=lambda: 100.0)
    fault = faults.add("error", method="GetNode", code="ABORTED", count=2, metadata={})
    shown = {
        "id": "f1",
        "kind": "error",
        "options": {"method": "GetNode", "code": "ABORTED", "count": 2},
        "state": "in force",
        "taken": 0,
        "left": 2,
        "origin": "code",
    }
    assert fault.as_json(100.0) == shown
    fired = faults.fire("error", method="tpu.GetNode")
    assert fired is not None
    assert fired.as_json(100.0) == shown | {"taken": 1, "left": 1}


def test_a_fault_that_has_been_used_up_is_spent_if_its_effect_stays() -> None:
    faults = FaultRegistry(clock=lambda: 100.0)
    fault = faults.add("host-hang", node="n1", count=1)
    assert faults.fire_on(fault, NODE, target="uid/0")
    (held,) = faults.all()
    assert (held.as_json(100.0)["state"], held.targets, held.remaining) == ("spent", ("uid/0",), 0)
    assert not faults.fire_on(fault, NODE, target="uid/1")


def test_an_option_has_the_default_of_its_kind() -> None:
    assert (added("stockout")["count"], added("preemption")["count"]) == (None, 1)
    assert added("preemption", count=3)["count"] == 3
    assert (added("preemption")["grace"], added("stockout")["reserved"]) == (30.0, False)
    with pytest.raises(KeyError):
        added("stockout")["bandwidth"]
    assert added("stockout").get("bandwidth") is None
    assert added("stockout").get("bandwidth", 7) == 7
    assert added("gcs-slow", bandwidth=9).get("bandwidth", 7) == 9


@pytest.mark.parametrize(
    ("kind", "options", "facts", "expected"),
    [
        ("stockout", {}, {}, True),
        ("stockout", {"zone": "europe-*"}, {"zone": "europe-west4-a"}, True),
        ("stockout", {"zone": "europe-*"}, {"zone": "us-central1-a"}, False),
        ("stockout", {"zone": "europe-*"}, {}, False),
        ("stockout", {"zone": "europe-*", "type": "v3-8"}, {"zone": "europe-west4-a", "type": "v2-8"}, False),
        ("stockout", {"resource": "n1"}, {"resource": NODE}, True),
        ("stockout", {"resource": NODE}, {"resource": NODE}, True),
        ("stockout", {"resource": "n"}, {"resource": NODE}, False),
        ("preemption", {"node": "n?"}, {"node": NODE}, True),
        ("host-hang", {"worker": "1"}, {"worker": "11"}, False),
        ("unavailable", {"method": "CreateNode"}, {"method": "tpu.CreateNode"}, True),
        ("unavailable", {"method": "CreateNode"}, {"method": "tpu.CreateNodes"}, False),
        ("unavailable", {}, {"method": "storage.objects.get"}, False),
        ("unavailable", {}, {"method": "tpu.GetNode", "when": "before"}, True),
        ("unavailable", {}, {"method": "tpu.GetNode", "when": "after"}, False),
        ("unavailable", {"when": "after"}, {"method": "tpu.GetNode"}, False),
        ("unavailable", {"when": "after"}, {"method": "tpu.GetNode", "when": "after"}, True),
    ],
)
def test_a_fault_matches_if_all_its_patterns_do(
    kind: str, options: dict[str, Any], facts: dict[str, str], expected: bool
) -> None:
    assert added(kind, **options).matches(facts) is expected


def test_a_pattern_can_be_left_out() -> None:
    fault = added("quota", zone="europe-west4-a", type="v3-8")
    facts = {"zone": "europe-west4-a", "project": "p", "quota": "TPUV3sPerProjectPerZoneForTPUAPI"}
    assert not fault.matches(facts)
    assert fault.matches(facts, ignoring="type")
    assert not fault.matches(facts, ignoring="zone")


def test_the_first_matches_can_be_skipped() -> None:
    faults = FaultRegistry(clock=lambda: 100.0)
    faults.add("unavailable", skip=2, count=2)
    fired = [faults.fire("unavailable", method="tpu.GetNode") is not None for _ in range(6)]
    assert fired == [False, False, True, True, False, False]
    assert faults.all() == [], "a fault that is used up is gone"


def test_a_fault_without_probability_never_fires() -> None:
    faults = FaultRegistry(clock=lambda: 100.0)
    fault = faults.add("unavailable", probability=0)
    assert [faults.fire("unavailable", method="tpu.GetNode") for _ in range(20)] == [None] * 20
    (counted,) = faults.all()
    assert (counted.matched, counted.fired, counted.id) == (20, 0, fault.id)


def test_faults_end_by_themselves_and_in_order() -> None:
    clock = Clock()
    faults = FaultRegistry(clock)
    assert faults.next_moment() is None
    faults.add("stockout", duration=20)
    faults.add("stockout", after=5, duration=10)
    moments = []
    while (moment := faults.next_moment()) is not None:
        moments.append(moment)
        clock.now = moment
    assert moments == [5, 15, 20]
    assert faults.all() == []
    assert faults.find("f1") is None


def test_listeners_hear_of_what_is_added_and_removed() -> None:
    faults = FaultRegistry()
    heard: list[int] = []

    def listen() -> None:
        heard.append(len(faults.all()))

    faults.add_listener(listen)
    fault = faults.add("stockout")
    faults.add("stockout")
    faults.remove(fault.id)
    faults.clear()
    faults.remove_listener(listen)
    faults.add("stockout")
    assert heard == [1, 2, 1, 0]


def test_a_bandwidth_is_sent_in_pieces_of_a_twentieth_of_a_second_or_of_64_kib() -> None:
    limits = BandwidthLimits()
    sizes = {
        0: 1 << 30,
        1: 1,
        20: 1,
        40: 2,
        2000: 100,
        20 << 16: 1 << 16,
        21 << 16: 1 << 16,
        1 << 30: 1 << 16,
    }
    assert {
        bandwidth: limits.piece_size(added("gcs-slow", bandwidth=bandwidth)) for bandwidth in sizes
    } == sizes
    assert limits.piece_size(added("gcs-cut", bytes=1)) == 1 << 30


@pytest.mark.parametrize(
    ("options", "counted"), [({"count": 5}, 2), ({"skip": 3}, 2), ({"probability": 0.5}, 2), ({}, 0)]
)
def test_counters_that_matter_outlive_a_restart(
    tmp_path: Path, options: dict[str, Any], counted: int
) -> None:
    path = tmp_path / "faults.json"
    faults = FaultRegistry(path=path)
    faults.add("unavailable", **options)
    for _ in range(2):
        faults.fire("unavailable", method="tpu.GetNode")
    again = FaultRegistry(path=path)
    (fault,) = again.all()
    assert (fault.id, fault.options, fault.matched) == ("f1", options, counted)
    assert again.add("stockout").id == "f2"
    again.clear()
    assert FaultRegistry(path=path).add("stockout").id == "f3", "an id is never used again"


def test_a_file_of_another_version_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    path.write_text('{"last": 7, "faults": [{"id": "f7"}]}')
    assert FaultRegistry(path=path).all() == []
    old = {"id": "f7", "kind": "older", "options": {}, "added": 0}
    path.write_text(json.dumps({"last": 7, "faults": [old, {**old, "id": "f6", "kind": "stockout"}]}))
    faults = FaultRegistry(path=path)
    assert [fault.id for fault in faults.all()] == ["f6"]
    assert faults.add("quota").id == "f8"


def test_a_scenario_takes_the_place_of_the_one_before() -> None:
    faults = FaultRegistry(clock=lambda: 100.0)
    faults.add("unreachable", zone="z")
    faults.load(Scenario("first", (request("stockout", {}),)))
    loaded = faults.load(Scenario("second", (request("quota", {}), request("stockout", {"zone": "a"}))))
    shown = [(fault.id, fault.kind, fault.origin, fault.place) for fault in faults.all()]
    assert shown == [
        ("f1", "unreachable", "code", 0),
        ("f3", "quota", "scenario second", 1),
        ("f4", "stockout", "scenario second", 2),
    ]
    assert [fault.id for fault in loaded] == ["f3", "f4"]


@pytest.mark.parametrize(
    ("identifiers", "hint"),
    [(0, "There are none."), (1, "Did you mean f1?"), (2, "There are f1, f2.")],
)
def test_a_fault_that_is_not_there_cannot_be_removed(identifiers: int, hint: str) -> None:
    faults = FaultRegistry()
    for _ in range(identifiers):
        faults.add("stockout")
    with pytest.raises(NotFoundError) as raised:
        faults.remove("f11" if identifiers == 1 else "other")
    assert raised.value.hint == hint
    assert raised.value.message == f"There is no fault '{'f11' if identifiers == 1 else 'other'}'."


def test_a_firing_is_an_event_of_its_service() -> None:
    events = Events(clock=lambda: 0.0)
    faults = FaultRegistry(clock=lambda: 0.0, events=events)
    faults.add("unavailable", method="*", count=1)
    faults.add("gcs-error", count=1)
    faults.add("api-off", count=1)
    preemption = faults.add("preemption")
    faults.fire("unavailable", method="tpu.GetNode", resource=NODE)
    faults.fire("gcs-error", method="storage.objects.get", resource="b/o")
    faults.fire("api-off", api="tpu", method="tpu")
    assert faults.fire_on(preemption, NODE)
    assert not faults.fire_on(preemption, NODE), "it was used up"
    assert [(event.what, event.resource, event.detail, event.service) for event in events] == [
        ("unavailable", NODE, "f1 tpu.GetNode", "tpu"),
        ("gcs-error", "b/o", "f2 storage.objects.get", "storage"),
        ("api-off", "", "f3 tpu", "tpu"),
        ("preemption", NODE, "f4", "tpu"),
    ]
    assert {event.kind for event in events} == {"fault"}
