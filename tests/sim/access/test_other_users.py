"""Other users of the machine get nothing from a simulator: not by any door, and not from its files."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import paramiko
import pytest

from tests.isolation.ports import free_port, refusing_port
from tests.running_simulator import RunningSimulator
from tests.sim.access.other_user import CLOSED, DENIED, NOBODY, SENT, as_root, attack
from tests.sim.live_host import PARENT, User
from tpuctl.sim import access
from tpuctl.sim.access import (
    Address,
    Guard,
    OwnProcesses,
    Secret,
    SockDiag,
    Tables,
    plain,
    sockets,
    system_owner,
)

BUCKET = "sim-project-tpuctl"
OBJECT = "runs/one/run.json"
KEYS = json.dumps({"metadata": {"ssh-keys": "mallory:ssh-ed25519 AAAA mallory"}})
NODE = json.dumps(
    {
        "acceleratorType": "v3-8",
        "runtimeVersion": "tpu-ubuntu2204-base",
        "metadata": {"ssh-keys": "mallory:ssh-ed25519 AAAA mallory"},
    }
)
REFUSED = "HTTP/1.1 403 Forbidden"
BATCH = (
    "--b\r\nContent-Type: application/http\r\n\r\n"
    f"DELETE /storage/v1/b/{BUCKET}/o/runs%2Fone%2Frun.json HTTP/1.1\r\n\r\n--b--\r\n"
)


class Victim:
    """A simulator with a node and an object, and what an attack must not change."""

    def __init__(self, simulator: RunningSimulator, folder: Path) -> None:
        self.simulator = simulator
        self.endpoints = simulator.simulator.endpoints
        self.user = User(folder)
        node = self.user.create(self.endpoints["tpu_grpc"])
        self.host = node.network_endpoints[0].ip_address
        self.put(OBJECT, b"{}")
        self.state = self.look()

    def put(self, name: str, content: bytes) -> None:
        """Store an object, as the user."""
        url = f"{self.endpoints['storage']}/{BUCKET}/{name}"
        with urllib.request.urlopen(urllib.request.Request(url, content, method="PUT"), timeout=60):
            pass

    def look(self) -> list[str]:
        """Return the nodes, the objects, the project's metadata and the faults."""
        return [
            *(node.name for node in self.simulator.world.nodes.all()),
            self.read(f"{self.endpoints['storage']}/storage/v1/b/{BUCKET}/o?versions=true"),
            self.read(f"{self.endpoints['compute_rest']}/compute/v1/projects/sim-project"),
            *(fault.id for fault in self.simulator.faults.all()),
        ]

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Stop the simulator's loop for the block."""
        released = threading.Event()

        async def wait() -> None:
            released.wait()

        holding = threading.Thread(target=self.simulator.call, args=(wait(),), daemon=True)
        holding.start()
        try:
            yield
        finally:
            released.set()
            holding.join()

    def read(self, url: str) -> str:
        """Read as the user."""
        with urllib.request.urlopen(url, timeout=60) as response:
            return str(response.read().decode())

    def address(self, name: str) -> str:
        """Return HOST:PORT of one of the services."""
        return str(self.endpoints[name]).removeprefix("http://")  # type: ignore[literal-required]

    def ssh(self) -> str:
        """Return HOST:PORT of the host's SSH server."""
        host, port = json.loads(Path(self.endpoints["hosts_file"]).read_text())[self.host]
        return f"{host}:{port}"

    def metadata(self) -> str:
        """Return HOST:PORT of the host's metadata server."""
        return self.user.run(Path(self.endpoints["hosts_file"]), self.host, "printf $GCE_METADATA_HOST")


@pytest.fixture
def victim(simulator: RunningSimulator, tmp_path: Path) -> Victim:
    return Victim(simulator, tmp_path)


def request(method: str, path: str, body: str = "", *fields: str) -> str:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join([*lines, "", body])


STORAGE = {
    "list": request("GET", f"/storage/v1/b/{BUCKET}/o"),
    "read": request("GET", f"/storage/v1/b/{BUCKET}/o/runs%2Fone%2Frun.json?alt=media"),
    "read XML": request("GET", f"/{BUCKET}/{OBJECT}"),
    "delete": request("DELETE", f"/storage/v1/b/{BUCKET}/o/runs%2Fone%2Frun.json"),
    "write XML": request("PUT", f"/{BUCKET}/evil", "data"),
    "upload": request("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=evil", "data"),
    "batch": request("POST", "/batch/storage/v1", BATCH, "Content-Type: multipart/mixed; boundary=b"),
}


@as_root
def test_an_attack_that_fails_by_itself_counts_as_no_refusal() -> None:
    with refusing_port() as port, pytest.raises(AssertionError, match="ConnectionRefusedError"):
        attack(("http", f"127.0.0.1:{port}", STORAGE["list"]))


@as_root
def test_another_user_creates_no_node_and_reaches_no_host(victim: Victim) -> None:
    """The attack: a node with a key of one's own, then ssh as the simulator's user."""
    create = request("POST", f"/v2/{PARENT}/nodes?nodeId=evil2", NODE, "Content-Type: application/json")
    over_rest, over_grpc, shell = attack(
        ("http", victim.address("tpu_rest"), create),
        ("create_node", victim.address("tpu_grpc"), f"{PARENT}/nodes/evil"),
        ("banner", victim.ssh()),
    )
    assert (over_rest, over_grpc, shell) == (REFUSED, "PermissionDenied", CLOSED)
    assert victim.look() == victim.state


@as_root
@pytest.mark.parametrize("step", ["http", "by_ipv6_socket"])
def test_another_user_reads_and_changes_no_object(victim: Victim, step: str) -> None:
    address = victim.address("storage")
    assert attack(*((step, address, text) for text in STORAGE.values())) == [REFUSED] * len(STORAGE)
    assert victim.look() == victim.state


@as_root
def test_another_user_gets_no_token_and_changes_no_metadata(victim: Victim) -> None:
    flavor = "Metadata-Flavor: Google"
    token = request("GET", "/computeMetadata/v1/instance/service-accounts/default/token", "", flavor)
    put = request("PUT", "/computeMetadata/v1/instance/guest-attributes/evil/key", "value", flavor)
    keys = request("POST", "/compute/v1/projects/sim-project/setCommonInstanceMetadata", KEYS)
    host = victim.metadata()
    assert attack(
        ("http", host, token),
        ("http", host, put),
        ("http", victim.address("metadata"), token),
        ("http", victim.address("compute_rest"), keys),
    ) == [CLOSED, CLOSED, REFUSED, REFUSED]
    assert victim.look() == victim.state


@as_root
def test_another_user_cannot_have_the_proxy_carry_its_requests(victim: Victim) -> None:
    proxy = victim.address("proxy")
    targets = ["storage.googleapis.com:443", "tpu.googleapis.com:443", "example.com:443", victim.ssh()]
    heads = [f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n" for target in targets]
    answers = attack(*(("http", proxy, head) for head in heads))
    assert [answer.split()[1] for answer in answers] == ["407"] * len(heads)


@as_root
def test_what_is_sent_by_a_connection_that_is_closed_at_once_is_refused(victim: Victim) -> None:
    """A closed socket has no owner: neither the user's, nor root's, whose number the kernel shows."""
    storage = victim.address("storage")
    create = request("POST", f"/v2/{PARENT}/nodes?nodeId=evil2", NODE, "Content-Type: application/json")
    with victim.held_up():  # so that the simulator sees them when they have gone
        sent = attack(
            ("send_and_leave", storage, STORAGE["delete"], "40"),
            ("send_and_leave", storage, STORAGE["write XML"], "40"),
            ("send_and_leave", victim.address("tpu_rest"), create, "40"),
        )
        assert sent == [SENT] * 3
    assert victim.look() == victim.state


@as_root
def test_a_forwarded_port_is_for_its_user_alone(victim: Victim) -> None:
    """ssh -R makes the simulator listen; a real host's users would be those of the node."""
    host, _, port = victim.ssh().rpartition(":")
    with paramiko.SSHClient() as client:
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        client.connect(host, int(port), "ada", key_filename=str(victim.user.key), look_for_keys=False)
        transport = client.get_transport()
        assert transport is not None
        forwarded = transport.request_port_forward("127.0.0.1", 0)
        assert attack(("banner", f"127.0.0.1:{forwarded}")) == [CLOSED]
        with closing(socket.create_connection(("127.0.0.1", forwarded), timeout=60)):
            channel = transport.accept(20)
            assert channel is not None, "its own user is let through"
            channel.close()


@as_root
def test_the_files_are_closed_to_other_users(victim: Victim) -> None:
    """Also where nothing else keeps them from the folder; pytest does."""
    folder = victim.simulator.folder
    place = folder.parent
    place.chmod(0o755)
    (place / "open").write_text("for all")
    (place / "open").chmod(0o644)
    paths = [folder, *folder.rglob("*")]
    steps = [("read", str(path.relative_to(place))) for path in paths]
    assert attack(("read", "open"), *steps, folder=place) == ["b'for all'", *[DENIED] * len(steps)]


class Connection:
    """Both ends of a connection in this process."""

    def __init__(self, family: socket.AddressFamily, address: str) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.client = socket.socket(family)
        self.client.bind(("", free_port()))  # no other program has a connection from it
        self.client.connect((address, self.listener.getsockname()[1]))
        self.server, _ = self.listener.accept()
        self.ends = plain(self.server.getpeername()), plain(self.server.getsockname())

    def close(self) -> None:
        for end in (self.client, self.server, self.listener):
            end.close()


@pytest.fixture(params=[(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")], ids=str)
def connection(request: pytest.FixtureRequest) -> Iterator[Connection]:
    with closing(Connection(*request.param)) as ends:
        yield ends


@pytest.mark.skipif(system_owner() is None, reason="this system does not tell who is at the other end")
@pytest.mark.parametrize("lookup", [SockDiag, Tables, OwnProcesses])
def test_the_owner_of_a_connection_is_looked_up(
    connection: Connection, lookup: type[SockDiag | Tables | OwnProcesses]
) -> None:
    owner = lookup()
    assert owner(*connection.ends) == os.geteuid()
    connection.client.shutdown(socket.SHUT_WR)
    assert owner(*connection.ends) == os.geteuid(), "it still has its end"
    connection.client.close()
    assert owner(*connection.ends) is None, "it has closed it"
    client = connection.ends[0]
    assert owner(connection.ends[1], client) is not None, "the other direction is the server's end"
    connection.server.close()
    assert owner(*connection.ends) is None, "nobody has an end"
    assert owner(("127.0.0.1", connection.ends[1][1]), client) is None, "a listener is no end of a connection"


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux lists the sockets of all")
@pytest.mark.parametrize("netlink", [4, 9999], ids=["netlink", "tables"])
def test_the_sockets_at_a_port_are_listed(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, netlink: int
) -> None:
    monkeypatch.setattr(access, "_NETLINK_SOCK_DIAG", netlink)  # there is no family 9999
    if netlink == 4:
        monkeypatch.setattr(access, "TABLES", ())  # the kernel's dump alone
    inode = str(os.fstat(connection.client.fileno()).st_ino)
    end = connection.ends[0]
    assert sockets(end[1]) == [(end, inode)]
    assert (end, inode) in sockets()
    listener = connection.listener.getsockname()
    inodes = {other for own_end, other in sockets() if own_end == listener}
    assert inodes == {str(os.fstat(connection.server.fileno()).st_ino)}, "a listener is no connection"
    connection.client.close()
    assert sockets(end[1]) == []


def test_a_guard_trusts_its_own_user_and_root(tmp_path: Path) -> None:
    owners: dict[int, int | None] = {1: 0, 2: 65534, 3: None}

    def owner(client: Address, server: Address) -> int | None:
        return owners[client[1]]

    guard = Guard(Secret(tmp_path / "secret"), owner)
    trusted = [guard.trusts_address(("127.0.0.1", port), ("127.0.0.1", 9)) for port in owners]
    assert trusted == [True, False, False]


@as_root
def test_the_own_processes_are_those_of_the_user(tmp_path: Path) -> None:
    """macOS shows no others; here root sees all, and still takes its own alone."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        command = [sys.executable, "-c", HOLD, str(listener.getsockname()[1])]
        with subprocess.Popen(command, stdin=subprocess.PIPE), closing(listener.accept()[0]) as server:
            ends = plain(server.getpeername()), plain(server.getsockname())
            assert server.recv(1) == b"."
            assert (SockDiag()(*ends), OwnProcesses()(*ends)) == (NOBODY, None)


HOLD = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
connection = socket.socket()
connection.connect(("127.0.0.1", int(sys.argv[1])))
connection.sendall(b".")
sys.stdin.read()
"""


@pytest.mark.skipif(
    not isinstance(system_owner(), (SockDiag, Tables)), reason="this system tells no user by number"
)
@pytest.mark.parametrize(
    ("overflow", "uid_map", "is_anonymous"),
    [
        (os.geteuid(), "0 1000 1\n", True),
        (os.geteuid(), "         0          0 4294967295\n", False),
        (os.geteuid() + 1, "0 1000 1\n", False),
        (os.geteuid(), None, False),
    ],
)
def test_who_looks_like_any_other_user_is_known_by_processes_not_by_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overflow: int, uid_map: str | None, is_anonymous: bool
) -> None:
    (tmp_path / "overflowuid").write_text(f"{overflow}\n")
    if uid_map is not None:
        (tmp_path / "uid_map").write_text(uid_map)
    monkeypatch.setattr(access, "OVERFLOW_UID", tmp_path / "overflowuid")
    monkeypatch.setattr(access, "UID_MAP", tmp_path / "uid_map")
    assert isinstance(system_owner(), OwnProcesses) == is_anonymous
