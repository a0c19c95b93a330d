"""A kill -9 of the simulator: programs on hosts do not notice where it starts again; else they end."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.isolation.ports import APART
from tests.sim.live_host import User, wait_until
from tpuctl.cloud import simulator as simulator_process
from tpuctl.cloud.simulator import PublishedEndpoints
from tpuctl.sim.hosts.programs.processes import MARK, belonging, snapshot, world_mark
from tpuctl.sim.state import Database
from tpuctl.simulator_folder import SimulatorFolder

JOB = """
import json, os, pathlib, time, urllib.request
def ask(url, **how):
    with urllib.request.urlopen(urllib.request.Request(url, **how), timeout=60) as answer:
        return answer.read()
def step(number):
    where = f"http://{os.environ['GCE_METADATA_HOST']}/computeMetadata/v1/instance/service-accounts/default/token"
    token = json.loads(ask(where, headers={"Metadata-Flavor": "Google"}))["access_token"]
    address = f"https://storage.googleapis.com/sim-project-tpuctl/job/{number}"
    ask(address, method="PUT", data=token.encode(), headers={"Authorization": f"Bearer {token}"})
pathlib.Path("pid").write_text(str(os.getpid()))
number = 0
while True:
    try:
        step(number)
        number += 1
        pathlib.Path("next").write_text(str(number))
        os.replace("next", "steps")
    except OSError as error:
        pathlib.Path("lost").write_text(repr(error))
    time.sleep(0.05)
"""


PORTS = {
    "ports.json": (
        "storage", "compute_rest", "billing_rest", "quota_rest", "iap_relay", "proxy", "metadata", "tokens",
        "tpu_rest", "tpu_grpc", "control",
    ),
    "hosts-ports.json": ("ssh", "metadata"),
}  # fmt: skip
"""File -> the servers whose ports it keeps."""


class Rig:
    """A simulator process in a folder, a node, and a job on it.

    Its ports are such that no other simulator takes one between a kill and the restart.
    """

    def __init__(self, folder: Path, user: User) -> None:
        self.folder = folder
        self.user = user
        folder.mkdir(mode=0o700)
        for file, servers in PORTS.items():
            ports = random.sample(APART, len(servers))
            (folder / file).write_text(json.dumps(dict(zip(servers, ports, strict=True))))
        self.served = simulator_process.ensure(folder, "--idle", "0")

    def start_job(self, node_id: str = "one") -> tuple[str, Path, int]:
        """Create a node and start a detached job on it: address, home, process id."""
        node = self.user.create(self.served.tpu_grpc, node_id)
        address = node.network_endpoints[0].ip_address
        self.run(address, f"nohup python3 -c {shlex.quote(JOB)} >job.log 2>&1 & echo started")
        home = self.folder / "hosts" / str(node.id) / "w0" / "home"
        wait_until(lambda: (home / "steps").exists())
        return address, home, int((home / "pid").read_text())

    def run(self, address: str, command: str) -> str:
        return self.user.run(Path(self.served.hosts_file), address, command)

    def kill(self) -> None:
        """End the simulator as the kernel does when memory runs out."""
        os.kill(self.served.pid, signal.SIGKILL)
        wait_until(lambda: simulator_process.running(self.folder) is None)

    def restart(self) -> PublishedEndpoints:
        self.served = simulator_process.ensure(self.folder, "--idle", "0")
        return self.served


KILLED = 20.0
"""Seconds in which the kernel ends a killed process: fewer than a program has that is only told to end."""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    folder = tmp_path / "sim"
    yield Rig(folder, User(tmp_path))
    simulator_process.stop(folder)


def test_a_program_on_a_host_goes_on_over_a_kill_of_the_simulator(rig: Rig) -> None:
    address, home, pid = rig.start_job()
    before = json.loads((rig.folder / "endpoints.json").read_text())
    dial = Path(rig.served.hosts_file).read_text()
    rig.kill()
    wait_until((home / "lost").exists)
    assert runs(pid)
    rig.restart()
    after = json.loads((rig.folder / "endpoints.json").read_text())
    changed = {name for name, value in before.items() if after[name] != value}
    assert changed == {"pid", "instance"}, "all services are where they were"
    assert Path(rig.served.hosts_file).read_text() == dial, "the hosts, too"
    assert set(json.loads((rig.folder / "ports.json").read_text())) == set(PORTS["ports.json"])
    steps = int((home / "steps").read_text())
    wait_until(lambda: int((home / "steps").read_text()) > steps + 2)
    assert rig.run(address, "cat pid").strip() == str(pid)
    first, last = (read_object(after["storage"], f"job/{number}") for number in (0, steps + 1))
    assert first == last, "the host's access token is the same"


def test_what_outlived_a_killed_simulator_ends_when_the_next_one_stops(rig: Rig) -> None:
    _, _, pid = rig.start_job()
    rig.kill()
    rig.restart()
    assert runs(pid)
    simulator_process.stop(rig.folder)
    wait_until(lambda: not runs(pid), seconds=KILLED)


def test_what_outlived_a_killed_simulator_ends_with_its_node(rig: Rig) -> None:
    _, home, pid = rig.start_job()
    _, _, other = rig.start_job("two")
    rig.kill()
    rig.restart()
    rig.user.delete(rig.served.tpu_grpc, "one")
    wait_until(lambda: not runs(pid), seconds=KILLED)
    assert not home.exists()
    assert runs(other)


@pytest.mark.parametrize("state", ["PREEMPTED", "STOPPED"])
def test_what_should_have_ended_when_the_simulator_was_killed_ends_with_its_restart(
    rig: Rig, state: str
) -> None:
    _, _, pid = rig.start_job()
    rig.kill()
    database = Database(rig.folder / "world.db")
    (body,) = database.load("node")
    node = {**json.loads(body), "state": state}  # committed before the hosts are ended
    database.put("node", node["name"], json.dumps(node).encode())
    database.close()
    assert runs(pid)
    rig.restart()
    wait_until(lambda: not runs(pid), seconds=KILLED)


def test_a_port_that_was_taken_meanwhile_is_left_to_its_owner(rig: Rig) -> None:
    rig.kill()
    host, port = rig.served.storage.removeprefix("http://").split(":")
    with socket.create_server((host, int(port))):
        served = rig.restart()
        assert served.storage != f"http://{host}:{port}"
        assert served.tpu_grpc.startswith("127.0.0.1:")


RUN = """
import os, sys
from pathlib import Path
from tpuctl.cli.main import run
from tpuctl.testing import Simulator
with Simulator(Path("sim")) as simulator:
    os.environ.update(simulator.environment)
    Path("job.py").write_text("import time; time.sleep(3600)")
    assert run(["up", "v3-8", "--name", "n1", "--yes"]) == 0
    assert run(["submit", "job.py"]) == 0
    sys.stdin.read()
"""
"""A test run with a job on a host of its simulator."""


@pytest.fixture
def folder(home: Path) -> Iterator[Path]:
    """Where the simulator of a test run is to be."""
    place = Path("sim").absolute()
    yield place
    simulator_process.end_orphans(place)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_ends_with_the_test_run_whose_simulator_it_is_on(folder: Path, number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", RUN], stdin=subprocess.PIPE) as run:
        wait_until(lambda: any(map(is_script, programs(folder))))
        assert len(programs(folder)) >= 3, "a guard, a supervisor and the script"
        run.send_signal(number)
    wait_until(lambda: not programs(folder))


def test_a_watch_leaves_the_programs_of_a_later_simulator_alone(folder: Path) -> None:
    """That one was killed, too, and may yet be started again."""
    files = SimulatorFolder(folder)
    files.path.mkdir()
    files.lock.write_text("2")
    environment = {**os.environ, MARK: f"{world_mark(files.hosts)}one-0"}
    with subprocess.Popen(["cat"], env=environment, stdin=subprocess.PIPE) as program:
        assert clean_up(folder, "1") == "0\n"
        assert program.poll() is None
        assert clean_up(folder, "2") == "1\n"
        assert program.wait(60) == -signal.SIGKILL


def read_object(storage: str, name: str) -> bytes:
    with urllib.request.urlopen(f"{storage}/sim-project-tpuctl/{name}") as answer:
        return bytes(answer.read())


def runs(pid: int) -> bool:
    """Return whether the process exists and has not ended (in a container nobody may wait for orphans)."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return bool(state.strip()) and not state.startswith("Z")


def programs(folder: Path) -> set[int]:
    """Return the processes of its hosts."""
    mark = world_mark(SimulatorFolder(folder).hosts)
    return belonging(snapshot(), lambda other: other.startswith(mark), set())


def is_script(pid: int) -> bool:
    shown = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True)
    return "job.py" in shown.stdout


def clean_up(folder: Path, pid: str) -> str:
    command = [sys.executable, "-m", "tpuctl.sim.orphan_cleanup", str(folder), pid]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout
