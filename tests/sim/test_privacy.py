"""The simulator is for its user alone: loopback, private files, secrets of its own."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running_simulator import RunningSimulator
from tests.sim.access.other_user import CLOSED, NOBODY, as_root, attack
from tests.sim.live_host import User
from tpuctl.cloud import simulator as simulator_process
from tpuctl.cloud.simulator import PublishedEndpoints
from tpuctl.errors import ConfigError
from tpuctl.sim.access import FOREIGN
from tpuctl.sim.hosts.network import has_aliases
from tpuctl.sim.network.tunnels import LOOPBACK

WRITTEN_BY_OTHERS = ("home", "tmp", "python", "simulator.log")
"""What programs on hosts and Python's venv write, and the log, which is the caller's."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sim"


@pytest.fixture
def served(folder: Path) -> Iterator[PublishedEndpoints]:
    """A simulator process."""
    yield simulator_process.ensure(folder, "--idle", "0")
    simulator_process.stop(folder)


def test_everything_listens_on_loopback_alone(served: PublishedEndpoints, tmp_path: Path) -> None:
    User(tmp_path).create(served.tpu_grpc, accelerator="v3-32")
    addresses = listening(served.pid)
    assert len(addresses) >= 4 * 2 + 6, "two servers a host, and the services"
    assert {address for address in addresses if not ipaddress.ip_address(address).is_loopback} == set()


def test_what_it_keeps_only_its_user_can_read(
    served: PublishedEndpoints, folder: Path, tmp_path: Path
) -> None:
    user = User(tmp_path)
    node = user.create(served.tpu_grpc)
    address = node.network_endpoints[0].ip_address
    ask = "curl -s -H Metadata-Flavor:Google http://$GCE_METADATA_HOST/computeMetadata/v1/instance"
    account = f"{ask}/service-accounts/default"
    put = "curl -s -T- $STORAGE_EMULATOR_HOST/sim-project-tpuctl/a"
    command = f"{account}/token; {account}/identity?audience=a; echo data | {put}; umask"
    assert user.run(Path(served.hosts_file), address, command).endswith("0022\n")
    open_files = [
        path
        for path in folder.rglob("*")
        if not set(path.relative_to(folder).parts) & set(WRITTEN_BY_OTHERS)
        and path.name != "etc-hosts"  # mounted as /etc/hosts; nobody else can enter its folder
        and not path.is_symlink()  # leads to a package of this machine
        and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]
    assert open_files == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {"access_token", "hosts-identity.pem", "authority.pem"} <= {p.name for p in folder.rglob("*")}


def test_a_folder_that_was_open_to_others_is_closed(folder: Path, tmp_path: Path, home: Path) -> None:
    """As a user's `mkdir` makes it, for a simulator in the process of a test."""
    umask = os.umask(0)
    try:
        folder.mkdir()
        running = RunningSimulator(folder)
        running.close()
    finally:
        os.umask(umask)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "gcs")} == {
        "sim": 0o700,
        "gcs": 0o700,
    }


@as_root
def test_the_folder_of_another_user_is_refused(folder: Path) -> None:
    """In /tmp anybody could make it first, with addresses of a server of theirs."""
    folder.mkdir(mode=0o755)
    os.chown(folder, NOBODY, NOBODY)
    for use in (simulator_process.running, simulator_process.ensure, RunningSimulator):
        with pytest.raises(ConfigError, match="belongs to another user"):
            use(folder)


def test_every_door_is_in_the_table_and_guarded(
    served: PublishedEndpoints, folder: Path, tmp_path: Path
) -> None:
    """A new listener fails here until it is behind the guard, and in `DOORS`."""
    User(tmp_path).create(served.tpu_grpc)
    doors = {door(folder, address): address for address in sockets(served.pid)}
    assert set(doors) == set(DOORS), "each listening socket has its row"
    if os.geteuid() == 0:
        steps = [(DOORS[name][0], f"{host}:{port}", *DOORS[name][1]) for name, (host, port) in doors.items()]
        refused = dict(zip(doors, attack(*steps), strict=True))
        assert refused == {name: DOORS[name][2] for name in doors}


GET = ("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",)
FORBIDDEN = "HTTP/1.1 403 Forbidden"
NO_TUNNEL = f"HTTP/1.1 407 {FOREIGN}"
NODE_NAME = ("projects/sim-project/locations/europe-west4-a/nodes/evil",)
DOORS: dict[str, tuple[str, tuple[str, ...], str]] = {
    # listener: how another user knocks, and the answer
    "storage": ("http", GET, FORBIDDEN),
    "compute_rest": ("http", GET, FORBIDDEN),
    "billing_rest": ("http", GET, FORBIDDEN),
    "quota_rest": ("http", GET, FORBIDDEN),
    "iap_relay": ("http", GET, FORBIDDEN),
    "tpu_rest": ("http", GET, FORBIDDEN),
    "tpu_grpc": ("create_node", NODE_NAME, "PermissionDenied"),
    "TLS": ("tls", GET, CLOSED),
    "proxy": ("http", GET, NO_TUNNEL),
    "metadata": ("http", GET, FORBIDDEN),
    "tokens": ("http", GET, FORBIDDEN),
    "control": ("http", GET, FORBIDDEN),
    "ssh of a host": ("banner", (), CLOSED),
    "metadata of a host": ("http", GET, CLOSED),
}


def door(folder: Path, address: tuple[str, int]) -> str:
    """Return the name of a listener, by the files of ports; the TLS port alone is in none."""
    services = {port: name for name, port in json.loads((folder / "ports.json").read_text()).items()}
    hosts = {
        port: f"{name.split()[0]} of a host"
        for name, port in json.loads((folder / "hosts-ports.json").read_text()).items()
    }
    if has_aliases():  # a host may have the number of a service's port, at its own address
        return str((services if address[0] == LOOPBACK else hosts).get(address[1], "TLS"))
    return str({**services, **hosts}.get(address[1], "TLS"))


def test_a_hosts_environment_names_no_other_hosts_files(simulator: RunningSimulator, tmp_path: Path) -> None:
    user, endpoints = User(tmp_path), simulator.simulator.endpoints
    node = user.create(endpoints["tpu_grpc"], accelerator="v3-32")
    hosts_file = Path(endpoints["hosts_file"])
    for worker, endpoint in enumerate(node.network_endpoints):
        environment = user.run(hosts_file, endpoint.ip_address, "env")
        named = set(re.findall(rf"{re.escape(str(simulator.folder))}/hosts/(\w+/w\d+)", environment))
        assert named == {f"{node.id}/w{worker}"}


def test_two_worlds_share_no_secret(tmp_path: Path, home: Path) -> None:
    script = "import asyncio, sys, pathlib; from tpuctl.sim.simulator import Simulator\n" + SECRETS
    worlds = [
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / name)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout.split("\0")
        for name in ("one", "two", "one")
    ]
    first, second, again = worlds
    assert not set(first) & set(second)
    assert first == again


SECRETS = """
async def main(folder):
    simulator = Simulator(folder)
    await simulator.start()
    identity = simulator._clients._identity
    token = identity.access_token()
    identity.token("a", "b", None)
    await simulator.close()
    pem = [path.read_text() for path in sorted(folder.rglob("*.pem")) if "bundle" not in path.name]
    print(token, *pem, sep="\\0", end="")
asyncio.run(main(pathlib.Path(sys.argv[1])))
"""


def listening(pid: int) -> list[str]:
    """Return the addresses on which a process listens for TCP."""
    return [address for address, _ in sockets(pid)]


def sockets(pid: int) -> list[tuple[str, int]]:
    """Return address and port of each socket on which a process listens for TCP."""
    if Path("/proc/net/tcp").exists():
        return _from_proc(pid)
    if not shutil.which("lsof"):
        pytest.skip("neither /proc nor lsof is here")
    command = ["lsof", "-nP", "-a", "-iTCP", "-sTCP:LISTEN", f"-p{pid}", "-Fn"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    names = [line[1:].rpartition(":") for line in lines if line.startswith("n")]
    return [(host.strip("[]"), int(port)) for host, _, port in names]


def _from_proc(pid: int) -> list[tuple[str, int]]:
    descriptors, addresses = set(), []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            descriptors.add(os.readlink(path))
        except FileNotFoundError:  # closed meanwhile
            pass
    for table in ("tcp", "tcp6"):
        rows = [line.split() for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
        for row in rows:
            if row[3] == "0A" and f"socket:[{row[9]}]" in descriptors:
                host, _, port = row[1].partition(":")
                addresses.append((_address(host), int(port, 16)))
    return addresses


def _address(hexadecimal: str) -> str:
    """Words of 32 bits, each in the machine's byte order; gRPC listens on ::ffff:127.0.0.1."""
    words = [hexadecimal[start : start + 8] for start in range(0, len(hexadecimal), 8)]
    packed = b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)
    address = ipaddress.ip_address(packed)
    return str(getattr(address, "ipv4_mapped", None) or address)
