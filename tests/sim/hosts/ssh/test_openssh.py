"""OpenSSH's own programs against a simulated host: what a user has in a terminal."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sim.hosts.site import USER, KeyPair, Site, hosts_of, program, wait_until
from tpuctl.sim.records import Host

TABLE = Path("/proc/net/tcp")
"""Every IPv4 socket of the machine, with its inode; Linux alone has it."""


class OpenSsh:
    """Runs ssh, scp and sftp with the published host key and nothing of this user's configuration."""

    def __init__(self, site: Site, host: Host, folder: Path) -> None:
        self.address, self.port = site.dial(host)
        attributes = {item.key: item.value for item in site.pool.guest_attributes(host)}
        (folder / "known_hosts").write_text(f"node-0 ssh-ed25519 {attributes['ssh-ed25519']}\n")
        options = {
            "BatchMode": "yes",
            "HostKeyAlias": "node-0",
            "IdentitiesOnly": "yes",
            "IdentityFile": site.key.private,
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": folder / "known_hosts",
            "GlobalKnownHostsFile": os.devnull,
            "LogLevel": "ERROR",
        }
        self.options = ["-F", os.devnull, *(f"-o{name}={value}" for name, value in options.items())]
        self.target = f"{USER}@{self.address}"

    def ssh(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(self.command(*words), input=stdin, capture_output=True, timeout=60)

    def command(self, *words: str) -> list[str]:
        """Return the command line of ssh; words before `--` are options."""
        split = words.index("--") if "--" in words else 0
        options, rest = words[:split], words[split:] if split == 0 else words[split + 1 :]
        return [program("ssh"), *self.options, "-p", str(self.port), *options, self.target, *rest]

    def copy(self, tool: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        command = [program(tool), *self.options, "-P", str(self.port), *words]
        return subprocess.run(command, capture_output=True, timeout=60)


@pytest.fixture
def openssh(site: Site, tmp_path: Path) -> OpenSsh:
    program("ssh")
    return OpenSsh(site, site.up(hosts_of())[0], tmp_path)


@pytest.mark.contract("ssh.command", "ssh.public key", client="OpenSSH")
def test_ssh_runs_a_command(openssh: OpenSsh) -> None:
    completed = openssh.ssh("cat; echo oops >&2; exit 5", stdin=b"hello")
    assert (completed.returncode, completed.stdout, completed.stderr) == (5, b"hello", b"oops\n")


@pytest.mark.contract("ssh.exit signal", client="OpenSSH")
def test_ssh_says_255_for_a_signal(openssh: OpenSsh) -> None:
    assert openssh.ssh("kill -TERM $$").returncode == 255


@pytest.mark.contract("ssh.terminal", client="OpenSSH")
def test_ssh_with_a_terminal(openssh: OpenSsh) -> None:
    assert openssh.ssh("-tt", "--", "tty").stdout.startswith(b"/dev/")


@pytest.mark.contract("ssh.locale variables", client="OpenSSH")
def test_ssh_passes_the_locale_on(openssh: OpenSsh) -> None:
    assert openssh.ssh("-oSetEnv=LC_TIME=C OTHER=x", "--", "echo $LC_TIME-$OTHER").stdout == b"C-\n"


@pytest.mark.parametrize("protocol", ["-s", "-O"])
@pytest.mark.contract("ssh.scp", client="OpenSSH")
def test_scp_copies_both_ways_by_sftp_and_by_its_old_protocol(
    openssh: OpenSsh, tmp_path: Path, protocol: str
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print('hi')\n")
    sent = openssh.copy("scp", protocol, "-r", str(folder), f"{openssh.target}:")
    assert sent.returncode == 0, sent.stderr
    assert openssh.ssh("python3 code/train.py").stdout == b"hi\n"
    back = openssh.copy("scp", protocol, f"{openssh.target}:code/train.py", str(tmp_path / "back.py"))
    assert back.returncode == 0, back.stderr
    assert (tmp_path / "back.py").read_text() == "print('hi')\n"


@pytest.mark.contract("ssh.sftp", client="OpenSSH")
def test_sftp_takes_a_batch(openssh: OpenSsh, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    (tmp_path / "batch").write_text(f"mkdir d\ncd d\nput {tmp_path}/file\nrename file other\nls -l\n")
    completed = openssh.copy("sftp", "-b", str(tmp_path / "batch"), openssh.target)
    assert completed.returncode == 0, completed.stderr
    assert openssh.ssh("cat d/other").stdout == b"content"


def test_rsync_sends_what_has_changed_and_fetches_it(openssh: OpenSsh, tmp_path: Path) -> None:
    rsync = program("rsync")
    shell = shlex.join([program("ssh"), *openssh.options, "-p", str(openssh.port)])
    folder = tmp_path / "code"
    (folder / "deep").mkdir(parents=True)
    for name in ("train.py", "deep/model.py", "old.py"):
        (folder / name).write_text(f"# {name}\n")

    def copy(*words: str) -> str:
        command = [rsync, "-a", "--itemize-changes", f"--rsync-path={rsync}", "-e", shell, *words]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    assert "deep/model.py" in copy(f"{folder}/", f"{openssh.target}:code/")
    (folder / "old.py").unlink()
    (folder / "train.py").write_text("print('changed')\n")
    changes = copy("--delete", f"{folder}/", f"{openssh.target}:code/")
    assert "train.py" in changes
    assert "*deleting   old.py" in changes
    assert "model.py" not in changes
    copy(f"{openssh.target}:code/", f"{tmp_path}/back")
    assert (tmp_path / "back" / "train.py").read_text() == "print('changed')\n"
    assert not (tmp_path / "back" / "old.py").exists()


def test_the_simulators_ssh_config_knows_every_hosts_port(
    either_site: Site, key: KeyPair, tmp_path: Path
) -> None:
    hosts = either_site.up(hosts_of(2, "v4-16"))
    options = [
        *("-F", str(either_site.pool.ssh_config), "-i", str(key.private)),
        *("-oStrictHostKeyChecking=no", f"-oUserKnownHostsFile={tmp_path / 'known'}", "-oLogLevel=ERROR"),
    ]
    for host in hosts:
        command = [program("ssh"), *options, f"{USER}@{host.address}", "echo $HOSTNAME"]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert completed.stdout == f"{host.hostname}\n", completed.stderr


@pytest.mark.contract("ssh.forward to the host (-L)", client="OpenSSH")
def test_a_port_of_the_host_is_forwarded_to_the_user(openssh: OpenSsh, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as board:
        port, path = board.getsockname()[1], tmp_path / "s"
        tunnel = subprocess.Popen(openssh.command("-N", f"-L{path}:localhost:{port}", "--"))
        with socket.socket(socket.AF_UNIX) as user:
            wait_until(lambda: user.connect_ex(str(path)) == 0)
            user.sendall(b"GET")
            on_host, _ = board.accept()
            with on_host:
                assert on_host.recv(3) == b"GET"
        tunnel.terminate()
        tunnel.wait(60)


@pytest.mark.parametrize("bind", ["", "localhost:", "0.0.0.0:", "*:"])
@pytest.mark.contract("ssh.forward to the user (-R)", client="OpenSSH")
def test_a_port_of_the_user_is_forwarded_to_the_host_on_loopback_alone(openssh: OpenSsh, bind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as laptop:
        port = laptop.getsockname()[1]
        command = openssh.command("-v", "-N", f"-R{bind}0:localhost:{port}", "--")
        with subprocess.Popen(command, stderr=subprocess.PIPE) as tunnel:
            assert tunnel.stderr is not None
            line = next(line for line in tunnel.stderr if b"Allocated port" in line)
            remote = int(line.split()[2])
            assert listening_addresses(remote) == ({"127.0.0.1"} if TABLE.exists() else set())
            with socket.create_connection(("127.0.0.1", remote)) as on_host:
                on_host.sendall(b"up")
                connection, _ = laptop.accept()
                with connection:
                    assert connection.recv(2) == b"up"
            tunnel.terminate()
            tunnel.stderr.read()


def listening_addresses(port: int) -> set[str]:
    """Return the IPv4 addresses on which this process listens at `port`, on Linux."""
    if not TABLE.exists():
        return set()
    ours = set(own_sockets())
    rows = [line.split() for line in TABLE.read_text().splitlines()[1:]]
    listening = [row[1].split(":") for row in rows if row[3] == "0A" and row[9] in ours]
    return {
        socket.inet_ntoa(bytes.fromhex(address)[::-1])
        for address, hexport in listening
        if int(hexport, 16) == port
    }


def own_sockets() -> Iterator[str]:
    """Yield the inodes of the sockets of this process, in which the simulated hosts' servers are."""
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except FileNotFoundError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]
