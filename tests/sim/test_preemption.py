"""A preemption as a program on the host lives through it: the notice, SIGTERM, the end."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from tests.running_simulator import RunningSimulator
from tests.sim.live_host import PARENT, User, wait_until

PROGRAM = """
import os, pathlib, signal, time, urllib.request
home = pathlib.Path(os.environ["HOME"])
def note(text):
    with open(home / "diary", "a") as diary:
        diary.write(text + "\\n")
def told(*_):
    note("SIGTERM")
    raise SystemExit
signal.signal(signal.SIGTERM, told)
url = f"http://{os.environ['GCE_METADATA_HOST']}/computeMetadata/v1/instance/preempted"
def ask(query=""):
    return urllib.request.urlopen(urllib.request.Request(url + query, headers={"Metadata-Flavor": "Google"}))
tag = ask().headers["ETag"]
note("began")
note(f"preempted {ask(f'?wait_for_change=true&last_etag={tag}').read().decode()}")
while not (home / "go").exists():
    time.sleep(0.01)
bucket = "https://storage.googleapis.com/sim-project-tpuctl"
urllib.request.urlopen(urllib.request.Request(f"{bucket}/checkpoint", data=b"saved", method="PUT"))
note("saved")
time.sleep(600)
"""


def test_between_the_notice_and_the_end_a_program_can_save(
    simulator: RunningSimulator, tmp_path: Path
) -> None:
    user, endpoints = User(tmp_path), simulator.simulator.endpoints
    node = user.create(endpoints["tpu_grpc"])
    command = f"nohup python3 -c {shlex.quote(PROGRAM)} >out 2>&1 & echo $!"
    user.run(Path(endpoints["hosts_file"]), node.network_endpoints[0].ip_address, command)
    home = simulator.folder / "hosts" / str(node.id) / "w0" / "home"
    diary = home / "diary"

    async def preempt() -> asyncio.Task[None]:
        return asyncio.ensure_future(simulator.world.preempt(f"{PARENT}/nodes/one", notice=3600))

    wait_until(lambda: diary.exists() and diary.read_text())
    preemption = simulator.call(preempt())
    wait_until(lambda: "preempted TRUE\n" in diary.read_text())
    assert simulator.world.nodes.get(f"{PARENT}/nodes/one").state == "READY"
    (home / "go").touch()
    wait_until(lambda: "saved\n" in diary.read_text())
    simulator.simulator.clock.advance(3600)
    wait_until(preemption.done)
    assert diary.read_text().splitlines() == ["began", "preempted TRUE", "saved", "SIGTERM"]
    assert simulator.gcs.store.objects.get("sim-project-tpuctl", "checkpoint").size == 5
    assert simulator.world.nodes.get(f"{PARENT}/nodes/one").state == "PREEMPTED"
    with pytest.raises(KeyError):
        user.run(Path(endpoints["hosts_file"]), node.network_endpoints[0].ip_address, "true")


DEAF = "trap '' TERM; echo > deaf; sleep 600; true"
"""Its shell ignores SIGTERM, and so does what it starts."""


def start_deaf(simulator: RunningSimulator, user: User) -> None:
    """Create a node, and start a program there that goes on after SIGTERM."""
    node = user.create(simulator.simulator.endpoints["tpu_grpc"])
    command = f"nohup sh -c {shlex.quote(DEAF)} >out 2>&1 &"
    hosts = Path(simulator.simulator.endpoints["hosts_file"])
    user.run(hosts, node.network_endpoints[0].ip_address, command)
    wait_until((simulator.folder / "hosts" / str(node.id) / "w0" / "home" / "deaf").exists)


def test_a_program_that_goes_on_has_thirty_seconds_of_the_clock_at_every_speed(
    simulator: RunningSimulator, tmp_path: Path
) -> None:
    clock = simulator.simulator.clock
    start_deaf(simulator, User(tmp_path))
    began = clock.now()
    preemption = simulator.call(_begin(simulator.world.preempt(f"{PARENT}/nodes/one")))
    while not preemption.done():
        clock.advance(0.5)
        simulator.call(asyncio.sleep(0))
    assert clock.now() - began >= 30
    assert simulator.world.nodes.get(f"{PARENT}/nodes/one").state == "PREEMPTED"


def test_a_fault_shortens_the_time_that_programs_have(simulator: RunningSimulator, tmp_path: Path) -> None:
    start_deaf(simulator, User(tmp_path))
    simulator.call(_at_once(lambda: simulator.simulator.faults.add("preemption", grace="10ms")))
    wait_until(lambda: simulator.world.nodes.get(f"{PARENT}/nodes/one").state == "PREEMPTED")


async def _begin(work: Coroutine[object, None, None]) -> asyncio.Task[None]:
    return asyncio.ensure_future(work)


async def _at_once(work: Callable[[], object]) -> None:
    work()
