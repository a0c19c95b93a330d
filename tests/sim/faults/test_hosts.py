"""Each fault of a host as real SSH clients and programs on the host meet it, and its end."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import paramiko
import pytest

from tests.running_simulator import RunningSimulator
from tests.sim.live_host import USER, User, wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads processes from /proc")

TICKS = """
import os, pathlib, sys, time, urllib.request
home = pathlib.Path(os.environ["HOME"])
(home / "pid").write_text(str(os.getpid()))
number = 0
while True:
    number += 1
    (home / "ticks").write_text(str(number))
    time.sleep(0.02)
"""
PUTS = """
import os, pathlib, time, urllib.request
home = pathlib.Path(os.environ["HOME"])
def ask(url, **how):
    urllib.request.urlopen(urllib.request.Request(url, **how), timeout=WAIT).read()
def say(name, text):
    (home / "new").write_text(text)
    (home / "new").rename(home / name)
def try_(name, url, **how):
    try:
        ask(url, **how)
    except OSError as error:
        say(name, repr(error))
    else:
        say(name, "ok")
number = 0
while True:
    number += 1
    WAIT = 0.5
    try_("proxied", "https://storage.googleapis.com/sim-project-tpuctl/a", data=b"1", method="PUT")
    try_("direct", os.environ["STORAGE_EMULATOR_HOST"] + "/storage/v1/b/sim-project-tpuctl/o")
    metadata = f"http://{os.environ['GCE_METADATA_HOST']}/computeMetadata/v1/instance/id"
    try_("metadata", metadata, headers={"Metadata-Flavor": "Google"})
    (home / "round").write_text(str(number))
"""


class Rig:
    """A node of one or more hosts, and the ways to them."""

    def __init__(self, simulator: RunningSimulator, user: User, accelerator: str) -> None:
        self.simulator = simulator
        self.user = user
        self.endpoints = simulator.simulator.endpoints
        self.node = user.create(self.endpoints["tpu_grpc"], "one", accelerator)

    def home(self, worker: int = 0) -> Path:
        return self.simulator.folder / "hosts" / str(self.node.id) / f"w{worker}" / "home"

    def dial(self, worker: int = 0) -> tuple[str, int]:
        table = json.loads(Path(self.endpoints["hosts_file"]).read_text())
        host, port = table[self.node.network_endpoints[worker].ip_address]
        return host, port

    def run(self, command: str, worker: int = 0) -> str:
        address = self.node.network_endpoints[worker].ip_address
        return self.user.run(Path(self.endpoints["hosts_file"]), address, command)

    def start(self, program: str) -> None:
        self.run(f"nohup python3 -c {shlex.quote(program)} >out 2>&1 & echo")

    def ssh(self, *command: str, options: tuple[str, ...] = (), worker: int = 0, patience: int = 20) -> Any:
        """OpenSSH, as a user calls it who waits `patience` seconds for the host."""
        host, port = self.dial(worker)
        options = [
            *options, "-F", "none", "-i", str(self.user.key), "-p", str(port),
            "-o", f"ConnectTimeout={patience}", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
            "-o", "UserKnownHostsFile=/dev/null",
        ]  # fmt: skip
        return subprocess.run(
            ["ssh", *options, f"{USER}@{host}", *command], capture_output=True, text=True, timeout=60
        )

    def until(self, kind: str) -> None:
        """Wait until the fault works."""
        wait_until(lambda: self.simulator.events.find(kind="fault", what=kind))

    def over(self, kind: str) -> None:
        wait_until(lambda: self.simulator.events.find(kind="notice", what=f"{kind} is over"))


@pytest.fixture
def rig(simulator: RunningSimulator, user: User) -> Rig:
    return Rig(simulator, user, "v3-8")


@pytest.fixture
def slice_of_four(simulator: RunningSimulator, user: User) -> Rig:
    return Rig(simulator, user, "v3-32")


def state_of(pid: str) -> str:
    """The letter that the kernel has for what a process does."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def has_ended(pid: str) -> bool:
    try:
        return state_of(pid) in "ZX"
    except OSError:
        return True


def settled(rig: Rig) -> None:
    """Wait until the pool has carried out the last change."""

    async def turn() -> None:
        for running in rig.simulator.simulator.hosts._running.values():
            async with running.faults._lock:
                pass

    rig.simulator.call(turn())


def test_a_host_that_hangs_keeps_clients_waiting_and_goes_on_afterwards(rig: Rig) -> None:
    rig.start(TICKS)
    ticks = rig.home() / "ticks"
    wait_until(ticks.exists)
    host, port = rig.dial()
    open_before = paramiko.SSHClient()
    open_before.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    open_before.connect(
        host, port, USER, key_filename=str(rig.user.key), allow_agent=False, look_for_keys=False
    )
    fault = rig.simulator.faults.add("host-hang", node="one")
    wait_until(lambda: state_of((rig.home() / "pid").read_text()) == "T")
    stood = ticks.read_text()
    refused = rig.ssh("true", patience=1)
    assert refused.returncode == 255
    assert "timed out" in refused.stderr
    with pytest.raises((TimeoutError, paramiko.SSHException)):
        open_before.exec_command("true", timeout=0.5)[1].read()
    assert ticks.read_text() == stood
    rig.simulator.faults.remove(fault.id)
    rig.over("host-hang")
    wait_until(lambda: ticks.read_text() != stood)
    assert rig.ssh("echo", "back").stdout == "back\n"
    _, out, _ = open_before.exec_command("echo still there", timeout=60)
    assert out.read() == b"still there\n"
    open_before.close()


def test_one_of_four_hosts_dies_and_comes_back_without_its_programs(slice_of_four: Rig) -> None:
    rig = slice_of_four
    rig.run(f"nohup python3 -c {shlex.quote(TICKS)} >out 2>&1 & echo", worker=2)
    pid = rig.home(2) / "pid"
    wait_until((rig.home(2) / "ticks").exists)
    waiting = subprocess.Popen(
        ["ssh", "-F", "none", "-i", rig.user.key, "-p", str(rig.dial(2)[1]), "-o", "BatchMode=yes",
         "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
         "-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=1", f"{USER}@{rig.dial(2)[0]}",
         "echo began; sleep 600"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert waiting.stdout
    assert waiting.stdout.readline() == "began\n"
    fault = rig.simulator.faults.add("host-death", worker="2", count=1)
    wait_until(lambda: has_ended(pid.read_text()))
    assert waiting.communicate(timeout=60)[1].strip().endswith("not responding.")
    assert waiting.returncode == 255
    assert rig.ssh("true", worker=2, patience=1).returncode == 255
    assert [rig.ssh("true", worker=worker).returncode for worker in (0, 1, 3)] == [0, 0, 0]
    assert rig.simulator.world.nodes.all()[0].state == "READY"
    rig.simulator.faults.remove(fault.id)
    rig.over("host-death")
    assert rig.run("ls", worker=2).split() == ["out", "pid", "ticks"]
    assert has_ended(pid.read_text())


def test_a_host_that_loses_its_network_works_on_alone(slice_of_four: Rig) -> None:
    rig = slice_of_four
    for worker in (0, 1):
        rig.run(f"nohup python3 -c {shlex.quote(PUTS)} >out 2>&1 & echo", worker=worker)
    places = [rig.home(worker) / name for worker in (0, 1) for name in ("proxied", "direct", "metadata")]

    def said(worker: int) -> list[str]:
        return [(rig.home(worker) / name).read_text()[:2] for name in ("proxied", "direct", "metadata")]

    wait_until(lambda: all(place.exists() for place in places) and said(1) == ["ok"] * 3)
    fault = rig.simulator.faults.add("network-loss", node="one", worker="1")
    direct = rig.home(1) / "direct"  # a request from just before the loss is cut instead
    wait_until(lambda: "ok" not in said(1) and "timed out" in direct.read_text())
    assert rig.ssh("true", worker=1, patience=1).returncode == 255
    wait_until(lambda: said(0) == ["ok"] * 3)
    assert rig.ssh("true", worker=0).returncode == 0
    rig.simulator.faults.remove(fault.id)
    wait_until(lambda: said(1) == ["ok"] * 3)
    assert rig.ssh("true", worker=1).returncode == 0


@pytest.mark.parametrize("kind", ["network-loss", "host-death"])
def test_connections_from_before_are_cut_when_the_host_is_back(rig: Rig, kind: str) -> None:
    host, port = rig.dial()
    with paramiko.SSHClient() as client:
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        client.connect(
            host, port, USER, key_filename=str(rig.user.key), allow_agent=False, look_for_keys=False
        )
        fault = rig.simulator.faults.add(kind, node="one")
        rig.until(kind)
        settled(rig)
        transport = client.get_transport()
        assert transport
        assert transport.is_active(), "the connection was not closed"
        rig.simulator.faults.remove(fault.id)
        rig.over(kind)
        wait_until(lambda: not transport.is_active())
    assert rig.ssh("echo", "back").stdout == "back\n"


def test_a_host_refuses_ssh_for_a_while(rig: Rig) -> None:
    rig.simulator.faults.add("ssh-refused", node="one", duration="1h")
    rig.until("ssh-refused")
    settled(rig)
    refused = rig.ssh("true")
    assert (refused.returncode, "Connection refused" in refused.stderr) == (255, True)
    rig.simulator.simulator.clock.advance(3600)
    rig.over("ssh-refused")
    settled(rig)
    assert rig.ssh("echo", "here").stdout == "here\n"
    assert rig.simulator.faults.all() == []


def test_a_wrong_host_key_is_noticed(rig: Rig, tmp_path: Path) -> None:
    known_hosts = tmp_path / "known_hosts"
    strict = ("-o", "StrictHostKeyChecking=accept-new", "-o", f"UserKnownHostsFile={known_hosts}")
    assert rig.ssh("true", options=strict).returncode == 0
    published = known_hosts.read_text().split()[2]
    options = ("-o", "StrictHostKeyChecking=yes", "-o", f"UserKnownHostsFile={known_hosts}")

    def strictly() -> Any:
        host, port = rig.dial()
        known_hosts.write_text(f"[{host}]:{port} ssh-ed25519 {published}\n")
        command = [
            "ssh",
            "-F",
            "none",
            "-i",
            str(rig.user.key),
            "-p",
            str(port),
            *options,
            f"{USER}@{host}",
            "true",
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    fault = rig.simulator.faults.add("wrong-host-key", node="one")
    rig.until("wrong-host-key")
    settled(rig)
    wrong = strictly()
    assert wrong.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in wrong.stderr
    rig.simulator.faults.remove(fault.id)
    rig.over("wrong-host-key")
    settled(rig)
    assert strictly().returncode == 0


WRITER = """
import errno, os, pathlib, sys, time
home = pathlib.Path(os.environ["HOME"])
log = open(home / "log", "wb", buffering=0)
log.write(b"x")
print("ready", flush=True)
while not (home.parent / "disk_full").exists():
    time.sleep(0.01)
sys.stdin.readline()
def try_(work):
    try:
        work()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"
def make(): (home / "new").write_bytes(b"1")
def grow(): log.write(b"y" * 4096)
def folder(): (home / "folder").mkdir()
def elsewhere(): open(os.devnull, "w").close()
print(try_(make), try_(grow), try_(folder), try_(elsewhere), flush=True)
sys.stdin.readline()
print(try_(make), try_(grow), flush=True)
"""


def test_a_full_disk_stops_programs_scp_and_sftp(rig: Rig, tmp_path: Path) -> None:
    host, port = rig.dial()
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect(host, port, USER, key_filename=str(rig.user.key), allow_agent=False, look_for_keys=False)
    stdin, stdout, _ = client.exec_command(f"python3 -c {shlex.quote(WRITER)}", timeout=60)
    assert stdout.readline() == "ready\n"
    fault = rig.simulator.faults.add("disk-full", node="one")
    rig.until("disk-full")
    settled(rig)
    stdin.write("go\n")
    stdin.flush()
    assert stdout.readline().split() == ["ENOSPC", "EFBIG", "ENOSPC", "ok"]
    shell = rig.ssh("head -c 100000 /dev/zero > zeros; echo ended with $?")
    assert shell.stdout.startswith("ended with ")
    assert shell.stdout != "ended with 0\n"
    assert (rig.home() / "zeros").stat().st_size == 0
    source = tmp_path / "source"
    source.write_bytes(b"1" * 100)
    copied = subprocess.run(
        ["scp", "-F", "none", "-i", rig.user.key, "-P", str(port), "-o", "StrictHostKeyChecking=no",
         "-o", "UserKnownHostsFile=/dev/null", source, f"{USER}@{host}:there"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert copied.returncode
    with client.open_sftp() as sftp, pytest.raises(OSError, match=r"Failure|space"):
        sftp.put(str(source), "there")
    rig.simulator.faults.remove(fault.id)
    rig.over("disk-full")
    settled(rig)
    stdin.write("go\n")
    stdin.flush()
    assert stdout.readline().split() == ["ok", "ok"]
    with client.open_sftp() as sftp:
        sftp.put(str(source), "there")
    client.close()
