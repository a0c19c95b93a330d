"""The control door: who may use it, what it says, and what a restart keeps."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest
import requests
from aiohttp.test_utils import TestClient, TestServer
from google.api_core import exceptions

from tests.running_simulator import RunningSimulator
from tests.sim.live_host import PARENT, User, tpu_client, wait_until
from tpuctl.cloud import simulator as simulator_process
from tpuctl.cloud.simulator.process import ActiveFault, ControlClient
from tpuctl.errors import DeadlineError, NotFoundError, StateError, UsageError
from tpuctl.faults import Request, read_scenario, request
from tpuctl.sim.__main__ import serve
from tpuctl.sim.access import Secret
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.records import ControlApi


def test_the_door_opens_to_its_token_alone(simulator: RunningSimulator) -> None:
    file = simulator.folder / "control.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    door = json.loads(file.read_text())
    assert door["url"].startswith("http://127.0.0.1:")
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": door["token"][:-1]}):
        for method in ("GET", "POST", "DELETE"):
            answer = requests.request(method, f"{door['url']}/v1/faults", headers=headers, timeout=60)
            assert answer.status_code == 401
    assert simulator.faults.all() == []
    for name in ("endpoints.json", "events.jsonl", "simulator.log"):
        path = simulator.folder / name
        assert not path.exists() or door["token"] not in path.read_text()


def test_faults_go_in_and_out(simulator: RunningSimulator) -> None:
    control = ControlClient(simulator.folder)
    (added,) = control.add([request("stockout", {"zone": "us-*", "count": 2})])
    options = {"zone": "us-*", "count": 2}
    assert added == ActiveFault(
        id="f1", kind="stockout", options=options, state="in force", taken=0, left=2, origin="command"
    )
    (later,) = control.add([request("unavailable", {"after": 60})])
    assert later.state == "waiting"
    assert control.faults() == [added, later]
    control.remove("f1")
    with pytest.raises(NotFoundError, match="There is no fault 'f1'"):
        control.remove("f1")
    control.clear()
    assert control.faults() == simulator.faults.all() == []


def test_what_is_sent_is_checked_again(simulator: RunningSimulator) -> None:
    with pytest.raises(UsageError, match="no kind of fault 'stokout'"):
        ControlClient(simulator.folder).add([Request("stokout")])
    door = json.loads((simulator.folder / "control.json").read_text())
    answer = requests.post(
        f"{door['url']}/v1/faults",
        data=b'{"faults": 5}',
        headers={"Authorization": f"Bearer {door['token']}"},
        timeout=60,
    )
    assert (answer.status_code, answer.json()["message"][:13]) == (400, "The request i")


def test_a_scenario_takes_the_place_of_the_one_before(simulator: RunningSimulator) -> None:
    control = ControlClient(simulator.folder)
    control.add([request("unreachable", {"zone": "us-central1-b"})])
    for kind in ("stockout", "quota"):
        scenario = read_scenario(f'[[fault]]\nkind = "{kind}"\n', f"{kind}.toml")
        control.add(scenario.faults, scenario.name)
    assert [(fault.kind, fault.origin) for fault in control.faults()] == [
        ("unreachable", "command"),
        ("quota", "scenario quota.toml"),
    ]


def test_without_a_simulator_there_is_no_door(tmp_path: Path) -> None:
    with pytest.raises(StateError):
        ControlClient(tmp_path)
    (tmp_path / "control.json").write_text('{"url": "http://127.0.0.1:1", "token": "x"}')
    with pytest.raises(DeadlineError, match="does not answer"):
        ControlClient(tmp_path).faults()


def test_faults_and_events_outlive_a_kill(home: Path, tmp_path: Path, user: User) -> None:
    """Counted faults keep counting; a frozen host is thawed when its fault is removed after the restart."""
    folder = tmp_path / "sim"
    scenario = tmp_path / "scenario.toml"
    scenario.write_text('[[fault]]\nkind = "unavailable"\nmethod = "ListNodes"\ncount = 3\n')
    served = simulator_process.ensure(folder, "--idle", "0", "--scenario", str(scenario))
    try:
        control = ControlClient(folder)
        node = user.create(served.tpu_grpc)
        address = node.network_endpoints[0].ip_address
        user.run(Path(served.hosts_file), address, "nohup sleep 600 >out 2>&1 & echo $! >pid")
        program = (folder / "hosts" / str(node.id) / "w0" / "home" / "pid").read_text().strip()

        def state() -> str:
            return Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[0]

        with tpu_client(served.tpu_grpc) as tpu, pytest.raises(exceptions.ServiceUnavailable):
            tpu.list_nodes(parent=PARENT)
        control.add([request("host-hang", {"count": 1})])
        wait_until(lambda: state() == "T")
        os.kill(served.pid, signal.SIGKILL)
        wait_until(lambda: simulator_process.running(folder) is None)
        served = simulator_process.ensure(folder, "--idle", "0")
        control = ControlClient(folder)
        assert [(fault.kind, fault.left) for fault in control.faults()] == [
            ("unavailable", 2),
            ("host-hang", 0),
        ]
        wait_until(lambda: state() == "T")  # it was thawed, and is frozen again
        control.remove("f2")
        wait_until(lambda: state() == "S")
        events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
        assert [event["number"] for event in events] == list(range(1, len(events) + 1))
        assert [event["what"] for event in events if event["kind"] == "fault"] == ["unavailable", "host-hang"]
    finally:
        simulator_process.stop(folder)


def test_a_scenario_with_a_mistake_starts_nothing(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text('[[fault]]\nkind = "unavailabel"\n')
    with pytest.raises(UsageError, match=r"bad\.toml, line 2: There is no kind of fault 'unavailabel'"):
        asyncio.run(serve(tmp_path / "sim", speed="instant", idle=0, scenario=bad))
    assert not (tmp_path / "sim").exists()


class Door:
    """The control API alone, over HTTP, with a clock that stands still."""

    def __init__(self, folder: Path) -> None:
        self.faults = FaultRegistry(clock=lambda: 100.0)
        self.secret = Secret(folder / "secret")
        self._api = ControlApi(self.faults, self.secret)

    def __call__(self, method: str, path: str = "", body: object = None, token: str = "") -> tuple[int, Any]:
        """Send one request and return status and JSON of its answer."""

        async def call() -> tuple[int, Any]:
            headers = {"Authorization": f"Bearer {token or self.secret.text}"}
            async with (
                TestClient(TestServer(self._api.application())) as client,
                client.request(method, f"/v1/faults{path}", json=body, headers=headers) as answer,
            ):
                return answer.status, await answer.json()

        return asyncio.run(call())


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


def test_a_wrong_token_is_said_and_changes_nothing(door: Door) -> None:
    door.faults.add("stockout")
    for method, body in (("GET", None), ("POST", {"faults": [{"kind": "quota"}]}), ("DELETE", None)):
        assert door(method, body=body, token="wrong") == (401, {"message": "The token is wrong."})
    assert [fault.kind for fault in door.faults.all()] == ["stockout"]


def test_the_answer_shows_the_faults_that_were_added_alone(door: Door) -> None:
    door.faults.add("stockout")
    sent = [{"kind": "quota", "options": {"zone": "a"}}, {"kind": "unavailable", "options": {"count": 2}}]
    shown = {"state": "in force", "taken": 0, "origin": "command"}
    added = [
        {**shown, "id": "f2", "kind": "quota", "options": {"zone": "a"}, "left": None},
        {**shown, "id": "f3", "kind": "unavailable", "options": {"count": 2}, "left": 2},
    ]
    assert door("POST", body={"faults": sent}) == (200, {"faults": added})
    status, listed = door("GET")
    assert (status, [fault["id"] for fault in listed["faults"]]) == (200, ["f1", "f2", "f3"])
    assert listed["faults"][1:] == added


def test_the_faults_of_a_scenario_have_its_name_and_go_with_the_next(door: Door) -> None:
    for number, name in ((1, "a"), (2, "b")):
        status, answer = door("POST", body={"faults": [{"kind": "quota"}], "scenario": name})
        assert (status, [(fault["id"], fault["origin"]) for fault in answer["faults"]]) == (
            200,
            [(f"f{number}", f"scenario {name}")],
        )
    assert [fault.id for fault in door.faults.all()] == ["f2"]


def test_faults_are_removed_one_by_one_and_all_together(door: Door) -> None:
    for _ in range(3):
        door.faults.add("stockout")
    assert door("DELETE", "/f2") == (200, {})
    assert [fault.id for fault in door.faults.all()] == ["f1", "f3"]
    assert door("DELETE", "/other") == (
        404,
        {"message": "There is no fault 'other'.", "hint": "There are f1, f3."},
    )
    assert door("DELETE") == (200, {})
    assert door.faults.all() == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"faults": 5}, "The request is no list of faults: "),
        ({"faults": [{"options": {}}]}, "The request is no list of faults: "),
        ({"faults": [], "name": "a"}, "The request is no list of faults: "),
        ({}, "The request is no list of faults: "),
        ({"faults": [{"kind": "quota"}, {"kind": "stokout"}]}, "There is no kind of fault 'stokout'."),
    ],
)
def test_a_request_that_is_none_is_explained_and_adds_nothing(
    door: Door, body: dict[str, object], message: str
) -> None:
    status, answer = door("POST", body=body)
    assert (status, answer["message"].startswith(message), door.faults.all()) == (400, True, [])
    assert answer["hint"] == ("Did you mean stockout?" if "stokout" in message else "")
