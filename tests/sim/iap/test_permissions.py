"""Who may have a tunnel when roles are enforced."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextvars import copy_context
from pathlib import Path

import pytest

from tests.running_simulator import RunningSimulator
from tests.sim.iap.site import in_loop, tunnel
from tpuctl.sim.iam.callers import Access, Caller, set_caller
from tpuctl.sim.iam.enforcement import DEFAULT_USER, Enforcement, enforcement
from tpuctl.sim.iap.targets import Closing, Target, Targets

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
