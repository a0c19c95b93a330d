"""fabric and paramiko, which tpuctl uses, against a simulated host."""

from __future__ import annotations

import io
import os
import socket
from pathlib import Path

import fabric
import paramiko
import pytest

from tests.isolation.ports import free_port
from tests.sim.hosts.site import USER, KeyPair, Site, hosts_of, published_key, wait_until
from tpuctl.sim.hosts.network import has_aliases


@pytest.mark.contract("ssh.command", client="fabric")
def test_a_command_runs_in_the_hosts_home_as_the_user(either_site: Site) -> None:
    (host,) = either_site.up(hosts_of())
    with either_site.fabric(host) as connection:
        result = connection.run("pwd; echo $USER; echo oops >&2")
    assert result.stdout.splitlines() == [str(either_site.folder / host.node_uid / "w0" / "home"), USER]
    assert result.stderr == "oops\n"


@pytest.mark.parametrize("status", [0, 1, 42, 255])
@pytest.mark.contract("ssh.exit status", client="fabric")
def test_the_exit_status_arrives(connection: fabric.Connection, status: int) -> None:
    assert connection.run(f"exit {status}", warn=True).exited == status


def test_a_program_that_does_not_exist_is_127(connection: fabric.Connection) -> None:
    assert connection.run("no-such-program", warn=True).exited == 127


def test_output_of_many_megabytes_arrives_whole(connection: fabric.Connection) -> None:
    with client_channel(connection) as channel:
        channel.exec_command("head -c 8000000 /dev/zero | tr '\\0' x")
        assert channel.makefile("rb").read() == b"x" * 8_000_000


@pytest.mark.contract("ssh.standard input", client="fabric")
def test_input_reaches_the_program_and_ends_with_eof(connection: fabric.Connection) -> None:
    with client_channel(connection) as channel:
        channel.exec_command("wc -c; cat /dev/stdin")
        channel.sendall(b"x" * 3_000_000)
        channel.shutdown_write()
        assert channel.makefile("rb").read().strip() == b"3000000"
        assert channel.recv_exit_status() == 0


def test_a_program_may_end_without_reading_its_input(connection: fabric.Connection) -> None:
    with client_channel(connection) as channel:
        channel.exec_command("true")
        assert channel.recv_exit_status() == 0


@pytest.mark.contract("ssh.sftp", client="fabric")
def test_files_go_there_and_back(connection: fabric.Connection, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    connection.put(io.BytesIO(content), "up.bin")
    assert connection.run("wc -c < up.bin").stdout.strip() == "300000"
    connection.run("mkdir -p deep && mv up.bin deep/")
    connection.get("deep/up.bin", str(tmp_path / "down.bin"))
    assert (tmp_path / "down.bin").read_bytes() == content


def test_sftp_starts_in_the_home(connection: fabric.Connection) -> None:
    home = connection.run("pwd").stdout.strip()
    sftp = connection.sftp()
    assert sftp.normalize(".") == home
    sftp.mkdir("runs")
    assert sftp.stat(f"{home}/runs").st_mode == sftp.stat("runs").st_mode
    with pytest.raises(FileNotFoundError):
        sftp.stat("nothing")


def test_the_environment_is_what_sshd_would_give_and_no_more(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/home/ada/secret.json")
    (host,) = site.up(hosts_of())
    with site.fabric(host) as connection:
        lines = connection.run("env -0", env={}).stdout.split("\0")
    variables = dict(line.split("=", 1) for line in lines if line)
    assert set(variables) - {"_", "SHLVL", "PWD", "OLDPWD"} == {
        *("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TMPDIR", "HOSTNAME"),
        *("SSH_CLIENT", "SSH_CONNECTION", "GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT"),
        *("ASSEMBLY", "TPUCTL_SIM_DISK", "TPUCTL_SIM_HOST", "TPUCTL_HOST_ROOT"),
        *("TPUCTL_SIM_PACKAGES", "TPUCTL_SIM_PYTHON", "TPUCTL_SIM_RUNTIME"),
    }
    assert variables["HOSTNAME"] == variables["ASSEMBLY"] == host.hostname
    assert Path(variables["TMPDIR"]).is_dir()


@pytest.mark.contract("ssh.locale variables", client="fabric")
def test_only_locale_variables_are_taken_from_the_client(connection: fabric.Connection) -> None:
    with client_channel(connection) as channel:
        channel.update_environment({"LC_ALL": "C", "SECRET": "x"})
        channel.exec_command("echo $LC_ALL-$SECRET")
        assert channel.makefile("rb").read() == b"C-\n"


@pytest.mark.parametrize("shell", ["", "bash -lc "])
def test_python3_has_the_packages_of_the_image_alone(connection: fabric.Connection, shell: str) -> None:
    program = 'python3 -c "import sys, yaml; print(sys.prefix); import asyncssh"'
    ended = connection.run(f"{shell}'{program}'" if shell else program, warn=True)
    assert Path(ended.stdout.strip()).parts[-2:] == ("w0", "python")
    assert ended.stderr.endswith("ModuleNotFoundError: No module named 'asyncssh'\n")


@pytest.mark.contract("ssh.public key", client="fabric")
def test_a_key_that_is_not_in_the_metadata_is_refused(site: Site, stranger: KeyPair) -> None:
    (host,) = site.up(hosts_of())
    with site.fabric(host, key=stranger) as connection, pytest.raises(paramiko.AuthenticationException):
        connection.open()


def test_a_key_is_for_its_user_alone(site: Site) -> None:
    (host,) = site.up(hosts_of())
    with site.fabric(host, user="eve") as connection, pytest.raises(paramiko.AuthenticationException):
        connection.open()


def test_a_password_is_no_way_in(site: Site) -> None:
    (host,) = site.up(hosts_of())
    with (
        paramiko.Transport(site.dial(host)) as transport,
        pytest.raises(paramiko.BadAuthenticationType) as refused,
    ):
        transport.connect(username=USER, password="password")
    assert refused.value.allowed_types == ["publickey"]


def test_the_host_key_is_the_published_one_also_after_a_restart(site: Site) -> None:
    (host,) = site.up(hosts_of())
    key = published_key(site, host)
    assert shown_key(site, host) == key
    site.loop.run(site.pool.close())
    site.pool = site.new_pool()
    site.up([host])
    assert shown_key(site, host) == key


def test_each_host_has_its_own_key(site: Site) -> None:
    first, second = site.up(hosts_of(2, "v4-16"))
    assert shown_key(site, first) != shown_key(site, second)


@pytest.mark.contract("ssh.published host key", client="fabric")
def test_a_strict_client_connects_by_the_published_key(site: Site) -> None:
    (host,) = site.up(hosts_of())
    address, port = site.dial(host)
    with paramiko.SSHClient() as client:
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        client.get_host_keys().add(f"[{address}]:{port}", "ssh-ed25519", published_key(site, host))
        client.connect(
            address, port, USER, key_filename=str(site.key.private), allow_agent=False, look_for_keys=False
        )


def test_a_key_added_to_a_running_node_counts_after_the_delay(site: Site, stranger: KeyPair) -> None:
    hosts = site.up(hosts_of())
    keys = f"{site.key.line()}\n{stranger.line('eve')}"
    site.loop.run(site.pool.update_metadata(hosts, {"ssh-keys": keys}))
    with site.fabric(hosts[0], "eve", stranger) as early, pytest.raises(paramiko.AuthenticationException):
        early.open()
    site.clock.now += 5.0
    with site.fabric(hosts[0], "eve", stranger) as later:
        later.open()


def test_a_key_taken_away_counts_no_more(site: Site) -> None:
    hosts = site.up(hosts_of())
    site.loop.run(site.pool.update_metadata(hosts, {}))
    site.clock.now += 5.0
    with site.fabric(hosts[0]) as connection, pytest.raises(paramiko.AuthenticationException):
        connection.open()


@pytest.mark.contract("ssh.terminal size", "ssh.terminal", client="fabric")
def test_a_terminal_has_the_size_asked_for_and_follows_it(connection: fabric.Connection) -> None:
    with client_channel(connection) as channel:
        channel.get_pty("xterm", width=91, height=17)
        channel.exec_command("tty >/dev/null && echo $TERM && stty size; read line; stty size")
        output = channel.makefile("rb")
        assert [output.readline() for _ in range(2)] == [b"xterm\r\n", b"17 91\r\n"]
        channel.resize_pty(width=132, height=50)
        channel.sendall(b"\n")
        assert output.read().split() == [b"50", b"132"]


def test_a_terminal_is_the_controlling_one(connection: fabric.Connection) -> None:
    with client_channel(connection) as channel:
        channel.get_pty()
        channel.exec_command("echo ready > /dev/tty; exec cat")
        output = channel.makefile("rb")
        assert output.readline() == b"ready\r\n"
        channel.sendall(b"hello\n")
        assert [output.readline() for _ in ("echo", "cat")] == 2 * [b"hello\r\n"], "cat is what runs now"
        channel.sendall(b"\x03")
        assert output.read().strip() == b"^C"
        assert channel.recv_exit_status() == -1, "ended by a signal, SIGINT"


def test_a_program_on_a_terminal_has_the_usual_signals(connection: fabric.Connection) -> None:
    assert connection.run("yes | head -1", pty=True).stdout == "y\r\n"


@pytest.mark.contract("ssh.login shell", client="fabric")
def test_a_login_shell_takes_commands(connection: fabric.Connection) -> None:
    with client_channel(connection) as channel:
        channel.get_pty()
        channel.invoke_shell()
        channel.sendall(b"echo shell is $0; exit 7\n")
        assert b"shell is -" in channel.makefile("rb").read()
        assert channel.recv_exit_status() == 7


@pytest.mark.contract("ssh.exit signal", client="fabric")
def test_a_program_that_dies_of_a_signal_says_so(connection: fabric.Connection) -> None:
    with client_channel(connection) as channel:
        channel.exec_command("kill -KILL $$")
        assert channel.recv_exit_status() == -1, "no exit status: an exit signal came"


@pytest.mark.contract("ssh.commands that outlive their connection", client="fabric")
def test_without_a_terminal_a_command_outlives_its_connection(site: Site) -> None:
    (host,) = site.up(hosts_of())
    home = site.folder / host.node_uid / "w0" / "home"
    with site.fabric(host) as connection, client_channel(connection) as channel:
        channel.exec_command("trap 'touch hung-up' HUP; touch begun; cat; touch survived")
        wait_until((home / "begun").exists)
    wait_until((home / "survived").exists)
    assert not (home / "hung-up").exists()


def test_with_a_terminal_a_command_is_hung_up_with_its_connection(site: Site) -> None:
    (host,) = site.up(hosts_of())
    home = site.folder / host.node_uid / "w0" / "home"
    with site.fabric(host) as connection, client_channel(connection) as channel:
        channel.get_pty()
        channel.exec_command("trap 'touch hung-up; exit' HUP; touch begun; while :; do read line; done")
        wait_until((home / "begun").exists)
    wait_until((home / "hung-up").exists)


def test_nohup_outlives_the_terminal_it_was_typed_on(site: Site) -> None:
    (host,) = site.up(hosts_of())
    home = site.folder / host.node_uid / "w0" / "home"
    with site.fabric(host) as connection, client_channel(connection) as channel:
        channel.get_pty()
        channel.invoke_shell()
        channel.sendall(
            b"nohup sh -c 'touch begun; while [ ! -e go ]; do sleep 0.01; done; touch survived' &\n"
        )
        wait_until((home / "begun").exists)
    (home / "go").touch()
    wait_until((home / "survived").exists)


def test_a_program_that_talks_on_to_a_lost_connection_gets_a_broken_pipe(site: Site) -> None:
    (host,) = site.up(hosts_of())
    home = site.folder / host.node_uid / "w0" / "home"
    with site.fabric(host) as connection, client_channel(connection) as channel:
        channel.exec_command("echo $$ > pid; trap '' HUP; yes; kill -l $? > end")
        channel.recv(1)
    wait_until(lambda: (home / "end").exists() and (home / "end").read_text())
    assert (home / "end").read_text() == "PIPE\n"


@pytest.mark.contract("ssh.many sessions on a connection", client="fabric")
def test_many_sessions_share_a_connection(connection: fabric.Connection) -> None:
    channels = [client_channel(connection) for _ in range(8)]
    for number, channel in enumerate(channels):
        channel.exec_command(f"echo {number}")
    assert [channel.makefile("rb").read() for channel in channels] == [b"%d\n" % n for n in range(8)]
    for channel in channels:
        channel.close()


@pytest.mark.contract("ssh.forward to the host (-L)", client="fabric")
def test_a_port_of_the_host_is_reached_through_it(connection: fabric.Connection) -> None:
    connection.open()
    with socket.create_server(("127.0.0.1", 0)) as board:
        target = ("localhost", board.getsockname()[1])
        with connection.transport.open_channel("direct-tcpip", target, ("127.0.0.1", 0)) as user:
            user.sendall(b"GET")
            on_host, _ = board.accept()
            with on_host:
                assert on_host.recv(3) == b"GET"


@pytest.mark.contract("ssh.forward to the user (-R)", client="fabric")
def test_fabric_forwards_ports_both_ways(connection: fabric.Connection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as board:
        remote_port = board.getsockname()[1]
        local_port = free_port()
        with connection.forward_local(local_port, remote_port), arrived(local_port) as user:
            on_host, _ = board.accept()
            with on_host:
                user.sendall(b"GET")
                assert on_host.recv(3) == b"GET"
        local_port = free_port()
        with connection.forward_remote(local_port, remote_port), arrived(local_port) as host:
            on_laptop, _ = board.accept()
            with on_laptop:
                host.sendall(b"up")
                assert on_laptop.recv(2) == b"up"


def test_a_port_of_another_worker_is_reached_through_the_first(site: Site) -> None:
    if not has_aliases():
        pytest.skip("hosts have no addresses of their own here")
    first, second = site.up(hosts_of(2, "v4-16"))
    with site.fabric(first) as connection, socket.create_server((second.address, 0)) as service:
        connection.open()
        target = service.getsockname()[:2]
        with connection.transport.open_channel("direct-tcpip", target, ("127.0.0.1", 0)) as user:
            user.sendall(b"GET")
            on_two, _ = service.accept()
            with on_two:
                assert on_two.recv(3) == b"GET"


def test_nothing_outside_the_simulated_network_is_reached_through_a_host(
    connection: fabric.Connection,
) -> None:
    connection.open()
    with pytest.raises(paramiko.ChannelException) as refused:
        connection.transport.open_channel("direct-tcpip", ("192.0.2.1", 80), ("127.0.0.1", 0), timeout=60)
    assert refused.value.code == 1, "administratively prohibited"


def arrived(port: int) -> socket.socket:
    """Connect to a port that fabric listens on in a moment."""
    connections = []

    def connected() -> bool:
        try:
            connections.append(socket.create_connection(("127.0.0.1", port)))
        except ConnectionRefusedError:
            return False
        return True

    wait_until(connected)
    return connections[0]


def client_channel(connection: fabric.Connection) -> paramiko.Channel:
    """Return a new session channel of fabric's connection, to speak SSH by hand."""
    connection.open()
    return connection.transport.open_session(timeout=60)


def shown_key(site: Site, host: object) -> paramiko.PKey:
    with paramiko.Transport(site.dial(host)) as transport:
        transport.start_client(timeout=60)
        return transport.get_remote_server_key()
