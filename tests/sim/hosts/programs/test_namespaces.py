"""Programs on a host see names of its own where the system allows it, and those of this machine elsewhere.

Programs on two hosts listen on the same port, and each is reached by the address of its host.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import AF_UNIX, SOCK_SEQPACKET, socketpair

import fabric
import pytest

from tests.isolation.ports import free_port
from tests.sim.hosts.site import Site, hosts_of, program, wait_until
from tpuctl.sim.hosts import host as host_module
from tpuctl.sim.hosts.programs import namespaces, own_ports
from tpuctl.sim.hosts.programs.own_ports import OwnPorts
from tpuctl.sim.records import Host

NAMES = "cat /proc/sys/kernel/hostname; env -i python3 -c {}"
ASK = "'import socket; name = socket.gethostname(); print(name, socket.gethostbyname(name))'"
CURL = "env -i curl -sS -H Metadata-Flavor:Google http://metadata.google.internal/computeMetadata/v1/instance/name"
OF_ANOTHER_USER = """
import os, subprocess
from pathlib import Path
from tpuctl.sim.hosts.programs import namespaces
from tpuctl.sim.hosts.programs.programs import Command
def within(made, text):
    command = made.enter(Command("/bin/sh", ["sh", "-c", text], {}, Path("/tmp")))
    return subprocess.Popen(command.argv, env={"PATH": os.environ["PATH"]}, stdout=subprocess.PIPE, text=True)
Path("hosts").write_text("127.0.0.9 elsewhere\\n")
made = namespaces.make("alpha", Path("hosts").absolute(), set)
with within(made, "hostname; cat /etc/hosts; pwd; id -u; exec sleep 600") as first:
    print(*(first.stdout.readline() for _ in range(4)), sep="", end="")
    made.close()
    again = namespaces.make("beta", Path("hosts").absolute(), lambda: {first.pid})
    seen = f"tr '\\\\0' '\\\\n' < /proc/{first.pid}/environ | grep -q PATH="  # empty until the exec is over
    print(within(again, f"hostname; until {seen}; do sleep 0.1; done; echo seen").communicate()[0], end="")
    first.kill()
"""


@pytest.fixture
def named(site: Site) -> Site:
    """Hosts with names of their own, or a skip."""
    made = namespaces.make("probe", Path("/etc/hosts"), set)
    possible = bool(made._descriptors)
    made.close()
    if not possible:
        pytest.skip("this system gives this user no namespaces")
    return site


def test_each_host_has_a_name_that_answers_also_without_an_environment(named: Site) -> None:
    machine = socket.gethostname()
    hosts = named.up(hosts_of(4, "v3-32"))
    with named.fabric(hosts[1]) as connection:
        lines = connection.run(NAMES.format(ASK)).stdout.splitlines()
        assert lines == [hosts[1].hostname, f"{hosts[1].hostname} {hosts[1].address}"]
        other = connection.run(f"getent hosts {hosts[3].hostname}").stdout.split()
        assert other[0] == hosts[3].address
        assert connection.run("pwd").stdout.strip() == connection.run("echo $HOME").stdout.strip()
    assert socket.gethostname() == machine


def test_a_startup_script_sees_the_name_and_a_terminal_too(named: Site) -> None:
    (host,) = named.up(hosts_of(), {"startup-script": "#!/bin/sh\nhostname > new && mv new name"})
    with named.fabric(host) as connection:
        home = Path(connection.run("pwd").stdout.strip())
        wait_until((home / "name").exists)
        assert (home / "name").read_text().strip() == host.hostname
        assert connection.run("hostname", pty=True).stdout.strip() == host.hostname


def test_the_metadata_server_answers_by_its_name(named: Site) -> None:
    program("curl")
    listener = named.pool._network.listen_as_metadata_server()
    if listener is None:
        pytest.skip("this user may not listen on port 80")
    listener.close()
    hosts = named.up(hosts_of(4, "v3-32"))
    for host in hosts[:2]:
        with named.fabric(host) as connection:
            assert connection.run(CURL).stdout == host.hostname
    named.stop(hosts, keep_disk=True)
    named.up(hosts)
    with named.fabric(hosts[0]) as connection:
        assert connection.run(CURL).stdout == hosts[0].hostname


def test_another_user_than_root_has_names_too_and_joins_what_outlived_the_simulator(tmp_path: Path) -> None:
    if not shutil.which("unshare") or os.geteuid():
        pytest.skip("only root can become another user, by unshare")
    as_user = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    if subprocess.run([*as_user, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system has no user namespaces")
    output = subprocess.run(
        [*as_user, sys.executable, "-c", OF_ANOTHER_USER],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert output.splitlines() == ["alpha", "127.0.0.9 elsewhere", "/tmp", "1000", "alpha", "seen"]


def test_without_namespaces_programs_run_under_the_name_of_this_machine(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "enterer", lambda: None)
    with site.fabric(site.up(hosts_of())[0]) as connection:
        assert connection.run("hostname").stdout.strip() == socket.gethostname()


def test_namespaces_that_no_program_may_enter_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "_WORKING", set())
    monkeypatch.setattr(namespaces, "enterer", lambda: "/bin/false")
    (tmp_path / "hosts").touch()
    command = namespaces.Command("/bin/sh", ["sh"], {}, tmp_path)
    assert namespaces.make("alpha", tmp_path / "hosts", set).enter(command) == command


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
