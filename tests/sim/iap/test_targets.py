"""What the parameters of a request to the relay name, and who may have a tunnel there."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from dataclasses import replace

import pytest
from aiohttp import web

from tpuctl.sim.iam.callers import Access, Caller, set_caller
from tpuctl.sim.iam.conditions import Condition
from tpuctl.sim.iam.enforcement import Binding, Policies
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
