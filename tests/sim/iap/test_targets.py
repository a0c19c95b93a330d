"""What the parameters of a request to the relay name, and who may have a tunnel there.

Who may have a tunnel when roles are enforced.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from tests.running_simulator import RunningSimulator
from tests.sim.iap.site import in_loop, tunnel
from tpuctl.sim.iam.callers import Access, Caller, set_caller
from tpuctl.sim.iam.conditions import Condition
from tpuctl.sim.iam.enforcement import DEFAULT_USER, Binding, Enforcement, Policies, enforcement
from tpuctl.sim.iap.targets import Closing, Streams, Target, Targets, target_of
from tpuctl.sim.records import Host
from tpuctl.sim.token_server import project_number

QUERY = {"project": "p", "zone": "z", "instance": "t1v-n-0000004d-w-0", "port": "22"}
TARGET = Target("p", "z", "t1v-n-0000004d-w-0", 22)
HOST = Host(
    node="projects/p/locations/z/nodes/n1",
    node_uid="77",
    worker=0,
    address="127.77.0.1",
    hostname="t1v-n-0000004d-w-0",
    accelerator_type="v3-8",
    runtime_version="tpu-ubuntu2204-base",
    peers=("127.77.0.1",),
    preemptible=False,
)
ADA = "user:ada@example.com"
NUMBER = project_number("p")


def test_a_target_is_in_the_query() -> None:
    assert target_of(QUERY) == target_of({**QUERY, "interface": "nic0", "other": "x"}) == TARGET
    assert TARGET.name == "projects/p/zones/z/instances/t1v-n-0000004d-w-0"
    assert [target_of({**QUERY, "port": port}).port for port in ("1", "65535")] == [1, 65535]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"project": ""}, "The request has no project."),
        ({"zone": ""}, "The request has no zone."),
        ({"instance": "", "port": ""}, "The request has no instance, port."),
        ({"interface": "nic1"}, "interface has to be nic0."),
        *(
            ({"port": port}, "port has to be a number from 1 to 65535.")
            for port in ("0", "65536", "-1", "x", "²", "٣")
        ),
    ],
)
def test_another_query_is_a_bad_request(changes: dict[str, str], text: str) -> None:
    with pytest.raises(web.HTTPBadRequest) as raised:
        target_of({**QUERY, **changes})
    assert raised.value.text == text


async def unreachable(host: Host, port: int) -> Streams:
    raise ConnectionRefusedError


def test_a_host_is_found_by_its_project_zone_and_name() -> None:
    targets = Targets(lambda: [replace(HOST, hostname="other"), HOST], unreachable)
    assert targets.find(TARGET) == HOST
    for other in ({"project": "q"}, {"zone": "y"}, {"instance": "t1v-n-0000004d-w-1"}):
        assert targets.find(replace(TARGET, **other)) is None


@pytest.mark.parametrize(("host", "code"), [(None, 4047), (HOST, 4003)])
def test_what_cannot_be_reached_closes_the_tunnel(host: Host | None, code: int) -> None:
    targets = Targets(list, unreachable)
    with pytest.raises(Closing) as raised:
        asyncio.run(targets.open(host, 22))
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("condition", "allowed"),
    [
        ("true", True),
        ("destination.port == 22", True),
        ("destination.port == 23", False),
        ('resource.type == "iap.googleapis.com/TunnelInstance"', True),
        (
            f'resource.name == "projects/{NUMBER}/iap_tunnel/zones/z/instances/t1v-n-0000004d-w-0"',
            True,
        ),
    ],
)
def test_a_role_may_hold_for_some_tunnels(condition: str, allowed: bool) -> None:
    policies = Policies()
    policies.projects["p"].append(
        Binding("roles/iap.tunnelResourceAccessor", (ADA,), Condition.parse(condition))
    )
    targets = Targets(list, unreachable)

    def code() -> int:
        set_caller(Caller(ADA, Access(policies, lambda _: None)))
        try:
            targets.authorize(TARGET)
        except Closing as closing:
            return closing.code
        return 0

    assert copy_context().run(code) == (0 if allowed else 4033)
    targets.authorize(TARGET)  # without roles


SIM_TARGET = Target("sim-project", "europe-west4-a", "t1v-n-0-w-0", 22)


def state_of(folder: Path, role: str, member: str) -> Path:
    values = {"project": "sim-project", "role": role, "member": member}
    resource = {"mode": "managed", "type": "google_iap_tunnel_iam_member", "values": values}
    file = folder / "state.json"
    file.write_text(json.dumps({"values": {"root_module": {"resources": [resource]}}}))
    return file


async def nobody(*_: object) -> object:
    raise AssertionError


@pytest.fixture
def ask(tmp_path: Path) -> Callable[[str], int]:
    """Returns the code with which the relay refuses a member, 0 if it does not."""
    given = state_of(tmp_path, "roles/iap.tunnelResourceAccessor", "user:ada@example.com")
    access = Access(enforcement(given, None).policies(["sim-project"]), lambda _: None)

    def code_of(member: str) -> int:
        def authorize() -> int:
            set_caller(Caller(member, access))
            try:
                Targets(list, nobody).authorize(SIM_TARGET)  # type: ignore[arg-type]
            except Closing as closing:
                return closing.code
            return 0

        return copy_context().run(authorize)

    return code_of


@pytest.mark.parametrize(
    ("member", "code"),
    [("user:ada@example.com", 0), (DEFAULT_USER, 0), ("user:bob@example.com", 4033), ("", 4033)],
)
def test_the_role_of_terraform_and_ownership_allow_tunnels(
    ask: Callable[[str], int], member: str, code: int
) -> None:
    assert ask(member) == code


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RunningSimulator]:
    running = RunningSimulator(tmp_path / "sim", iam=Enforcement(user="user:bob@example.com"))
    yield running
    running.close()


def test_a_user_without_the_role_learns_nothing_of_instances(guarded: RunningSimulator) -> None:
    parameters = {"project": SIM_TARGET.project, "zone": SIM_TARGET.zone, "instance": "none", "port": "22"}

    async def work() -> tuple[int | None, str]:
        async with tunnel(guarded.simulator.endpoints["iap_relay"], "connect", parameters) as opened:
            return await opened.closed()

    assert in_loop(work) == (4033, "not authorized")
