"""Programs on two hosts listen on the same port, and each is reached by the address of its host."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import AF_UNIX, SOCK_SEQPACKET, socketpair

import fabric
import pytest

from tests.isolation.ports import free_port
from tests.sim.hosts.site import Site, hosts_of, wait_until
from tpuctl.sim.hosts.programs import own_ports
from tpuctl.sim.hosts.programs.own_ports import OwnPorts
from tpuctl.sim.records import Host

SERVER = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
address, both = (sys.argv[1], int(sys.argv[2])), ":" in sys.argv[1]
server = socket.create_server(address, family=family, dualstack_ipv6=both)
print("up", flush=True)
while True:
    server.accept()[0].sendall(sys.argv[3].encode())
"""
CLIENT = """
import socket, sys
for address in sys.argv[2:]:
    try:
        print(socket.create_connection((address, int(sys.argv[1])), 60).recv(9).decode())
    except OSError as error:
        print(type(error).__name__)
"""


@pytest.fixture
def hosts(site: Site) -> list[Host]:
    """Two hosts with ports of their own, or a skip."""
    ports = OwnPorts()
    made = ports.host("127.64.0.1")
    ports.close()
    if made is None:
        pytest.skip("this system refuses filters of system calls")
    made.close()
    return site.up(hosts_of(2, "v4-16"))


@contextmanager
def listening(site: Site, host: Host, address: str, port: int, name: str) -> Iterator[fabric.Connection]:
    """Run a server on a host."""
    home = site.folder / host.node_uid / f"w{host.worker}" / "home"
    (home / "server.py").write_text(SERVER)
    (home / "client.py").write_text(CLIENT)
    with site.fabric(host) as connection:
        connection.run(f"python3 -I -S server.py {address} {port} {name} >{name} 2>&1 & echo $! >pid")
        wait_until(lambda: (home / name).exists() and (home / name).read_text())
        assert (home / name).read_text() == "up\n"
        yield connection
        connection.run("kill $(cat pid)")


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("0.0.0.0", ["one", "one", "two"]),
        ("::", ["one", "one", "two"]),
        ("127.0.0.1", ["one", "ConnectionRefusedError", "ConnectionRefusedError"]),
    ],
)
def test_both_listen_on_a_port(site: Site, hosts: list[Host], address: str, reached: list[str]) -> None:
    port = free_port("0.0.0.0")
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(listening(site, host, address, port, name))
            for host, name in zip(hosts, ("one", "two"), strict=True)
        )
        asked = f"python3 -I -S client.py {port} 127.0.0.1 {hosts[0].address} {hosts[1].address}"
        assert first.run(asked).stdout.split() == reached
        assert second.run(asked).stdout.split()[0] == "two"
        first_transport, second_transport = first.client.get_transport(), second.client.get_transport()
        for transport, name in ((first_transport, "one"), (second_transport, "two")):
            channel = transport.open_channel(
                "direct-tcpip", ("localhost", port), ("127.0.0.1", 1), timeout=60
            )
            assert channel.recv(9).decode() == name
            channel.close()


def test_hosts_share_the_ports_of_the_machine_where_the_system_refuses(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise PermissionError

    monkeypatch.setattr(own_ports, "_install", refuse)
    first, second = site.up(hosts_of(2, "v4-16"))
    port = free_port("0.0.0.0")
    with listening(site, first, "0.0.0.0", port, "one"), site.fabric(second) as other:
        asked = other.run(f"python3 -c '{SERVER}' 0.0.0.0 {port} two", warn=True)
        assert "Address already in use" in asked.stderr


def test_its_process_ends_with_the_last_program(tmp_path: Path) -> None:
    ours, its = socketpair(AF_UNIX, SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", own_ports.__file__, str(its.fileno())], pass_fds=[its.fileno()]
        )
    ports = OwnPorts()
    ports._control = ours
    host = ports.host("127.64.0.1")
    if host is None:
        pytest.skip("this system refuses filters of system calls")
    program = host.call(
        lambda: subprocess.Popen(
            [sys.executable, "-c", CLIENT.replace("for", "input()\nfor"), str(free_port()), "127.0.0.1"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
    )  # fmt: skip
    ports.close()
    host.close()
    assert process.poll() is None
    assert program.communicate("\n")[0] == "ConnectionRefusedError\n", "it is answered still"
    assert process.wait(60) == 0
