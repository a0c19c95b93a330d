"""What a simulator publishes of itself, and what it wrote of what happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tpuctl.cloud.simulator.event_log import Event, EventLog, SimulatorLog
from tpuctl.cloud.simulator.process import read_endpoints
from tpuctl.simulator_folder import SimulatorFolder, rotated

NAMES = "project bucket tpu_grpc tpu_rest storage proxy hosts_file ca_file"
LEAST = {"pid": 7, **{name: f"the {name}" for name in NAMES.split()}}


@pytest.fixture
def own_folder(tmp_path: Path) -> SimulatorFolder:
    return SimulatorFolder(tmp_path)


def test_a_simulator_that_has_not_started_completely_publishes_nothing(own_folder: SimulatorFolder) -> None:
    assert read_endpoints(own_folder) is None
    for content in (b"", b"{", b"[]", json.dumps({**LEAST, "pid": "7"}).encode()):
        own_folder.endpoints.write_bytes(content)
        assert read_endpoints(own_folder) is None


def test_what_an_earlier_version_does_not_publish_has_its_default(own_folder: SimulatorFolder) -> None:
    own_folder.endpoints.write_text(json.dumps({**LEAST, "unknown": 1}))
    endpoints = read_endpoints(own_folder)
    assert endpoints is not None
    assert {name: getattr(endpoints, name) for name in LEAST} == LEAST
    names = ("billing_rest", "quota_rest", "compute_rest", "iap_relay", "iam")
    assert [getattr(endpoints, name) for name in names] == [""] * 5
    assert (endpoints.egress, endpoints.external_ips, endpoints.environment) == ("pass", True, {})
    assert endpoints.schema == 1


def line(number: int) -> str:
    fields = {"kind": "k", "what": "w", "resource": "r", "detail": "d", "time": 1.5, "service": "tpu"}
    return json.dumps({**fields, "number": number}) + "\n"


def test_events_are_read_once_and_those_that_were_cut_are_left_out(own_folder: SimulatorFolder) -> None:
    log = EventLog(own_folder.events.parent)
    assert log.new() == []
    rotated(own_folder.events).write_text(line(1))
    own_folder.events.write_text(line(2) + "\n" + '{"kind": "k"}\n' + line(3)[:9] + "\n" + line(4))
    assert [event.number for event in log.new()] == [1, 2, 4]
    assert log.new() == []
    with own_folder.events.open("a") as stream:
        stream.write(line(5) + line(6)[:-1])
    (event,) = log.new()
    assert event == Event("k", "w", "r", "d", 1.5, "tpu", 5)
    assert event.body is None


def test_the_log_is_read_line_by_line(own_folder: SimulatorFolder) -> None:
    log = SimulatorLog(own_folder.log.parent)
    assert log.path == own_folder.log
    assert log.new() == []
    own_folder.log.write_bytes(b"first\nnot UTF-8 \xff\nwithout an end")
    assert log.new() == ["first", "not UTF-8 �"]
    with own_folder.log.open("ab") as stream:
        stream.write(b"\n")
    assert log.new() == ["without an end"]
