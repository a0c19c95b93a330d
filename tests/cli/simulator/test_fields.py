"""What the commands of the simulator show, and their fields in JSON, on which programs of users rely."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable

import msgspec

from tests.running_simulator import CommandResult, RunningSimulator

Tpuctl = Callable[..., CommandResult]
ZONE = "europe-west4-a"


def cells(text: str) -> list[list[str]]:
    """Return the cells of each line."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def test_the_state_of_a_simulator(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    status = tpuctl("sim", "status", "--json").json
    fields = "schema running pid project bucket tpu_grpc tpu_rest storage egress external_ips iam "
    fields += "default_account firewall python folder"
    assert " ".join(status) == fields
    assert (status["running"], status["project"], status["bucket"]) == (
        True,
        "sim-project",
        "sim-project-tpuctl",
    )
    assert (status["iam"], status["folder"]) == (None, str(simulator.folder))
    shown = dict(line for line in cells(tpuctl("sim", "status").out) if len(line) == 2)
    assert shown == {
        "running": "True",
        "pid": str(status["pid"]),
        "project": "sim-project",
        "bucket": "sim-project-tpuctl",
        "Cloud TPU API (gRPC)": status["tpu_grpc"],
        "Cloud TPU API (REST)": status["tpu_rest"],
        "Cloud Storage": status["storage"],
        "egress": status["egress"],
        "external_ips": str(status["external_ips"]),
        "iam": "not enforced",
        "default_account": "editor",
        "firewall": "open",
        "python": f"{platform.python_version()}, this machine's; that of images is 3.10: "
        "tpuctl sim start --python image",
        "folder": status["folder"],
    }


def test_without_a_simulator_each_command_says_so(tpuctl: Tpuctl) -> None:
    assert tpuctl("sim", "status", "--json").json == {"schema": 1, "running": False}
    said = tpuctl("sim", "status")
    assert (said.code, said.out) == (0, "")
    assert said.err.splitlines() == ["The simulator is not running.", "Next: tpuctl sim start"]
    for command in (("ls",), ("rm", "f1"), ("rm", "--all")):
        refused = tpuctl("sim", "fault", *command)
        assert refused.code == 4
        assert refused.err.splitlines() == [
            "Error: The simulator is not running.",
            "Hint: Start it: tpuctl sim start",
        ]


def test_faults_are_added_listed_and_removed(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    none = tpuctl("sim", "fault", "ls")
    assert (none.out, none.err) == ("", "There are no faults.\n")
    added = tpuctl("sim", "fault", "add", "stockout", "--zone", ZONE, "--count", "3", "--json").json
    assert " ".join(added) == "schema faults"
    (first,) = added["faults"]
    assert " ".join(first) == "id kind options state taken left origin"
    assert first == {
        "id": first["id"], "kind": "stockout", "options": first["options"], "state": "in force", "taken": 0,
        "left": 3, "origin": first["origin"],
    }  # fmt: skip
    assert first["options"]["zone"] == ZONE
    shown = tpuctl("sim", "fault", "add", "zone-denied", "--zone", "us-east1-d")
    header, row = cells(shown.out)
    assert header == ["ID", "KIND", "OPTIONS", "STATE", "FIRED", "LEFT", "FROM"]
    assert row[1:4] == ["zone-denied", "zone=us-east1-d", "in force"]
    assert row[4:6] == ["0", "-"]
    assert shown.err.splitlines()[-1] == f"Next: tpuctl sim fault rm {row[0]}"
    listed = tpuctl("sim", "fault", "ls", "--json").json["faults"]
    assert [fault["id"] for fault in listed] == [first["id"], row[0]]
    assert [line[0] for line in cells(tpuctl("sim", "fault", "ls").out)] == ["ID", first["id"], row[0]]
    assert tpuctl("sim", "fault", "rm", first["id"]).err == f"Removed {first['id']}.\n"
    assert tpuctl("sim", "fault", "rm", "--all").err == "Removed every fault.\n"
    assert tpuctl("sim", "fault", "ls", "--json").json["faults"] == []
    for wrong in ((), ("f1", "--all")):
        refused = tpuctl("sim", "fault", "rm", *wrong)
        assert refused.code == 2
        assert "Name faults by their ids, or all of them with --all." in refused.err


def test_the_kind_of_a_fault_comes_first(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    refused = tpuctl("sim", "fault", "add", "--zone", ZONE, "stockout")
    assert (refused.code, "The kind of fault comes first." in refused.err) == (2, True)
    assert tpuctl("sim", "fault", "add").out == tpuctl("sim", "fault", "add", "--help").out
    assert "stockout" in tpuctl("sim", "fault", "add", "-h").out


def test_events_are_lines_and_objects(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    tpuctl("sim", "fault", "add", "stockout", "--zone", ZONE)
    tpuctl("ls")
    objects = [msgspec.json.decode(line) for line in tpuctl("sim", "events", "--json").out.splitlines()]
    fields = "schema kind what resource detail time service number body"
    assert {" ".join(event) for event in objects} == {fields}
    assert {event["kind"] for event in objects} >= {"request"}
    lines = tpuctl("sim", "events").out.splitlines()
    assert len(lines) >= len(objects)
    for line, event in zip(lines, objects, strict=False):
        assert re.match(r"\d\d:\d\d:\d\d\.\d{3}  ", line)
        assert line[14:].split()[:3] == [event["service"], event["kind"], event["what"].split()[0]]
    assert len(tpuctl("sim", "events", "--tail", "2").out.splitlines()) == 2
    assert tpuctl("sim", "events", "--tail", "0").out == ""
    requests = tpuctl("sim", "events", "--kind", "request", "--json").out.splitlines()
    assert {msgspec.json.decode(line)["kind"] for line in requests} == {"request"}
    assert len(requests) >= sum(event["kind"] == "request" for event in objects) > 0
