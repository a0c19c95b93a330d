"""Connections to simulated hosts: made, kept by a command, lost and opened again.

Commands and files over them.
"""

from __future__ import annotations

import io
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import fabric
import paramiko
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.cloud.ssh.keys import private_bytes
from tests.cloud.ssh.scripted_channel import LOST, ScriptedChannel, ScriptedTransport
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.ssh import Dial, Pool, Ssh, SshSession, dial_address, make_key, session
from tpuctl.cloud.ssh.session import WIDTH
from tpuctl.errors import ConfigError, HostError
from tpuctl.flows.hosts.way_in import install_key
from tpuctl.nodes import Node


class TestCommands:
    @pytest.mark.parametrize(
        "word",
        [
            "a b",
            "",
            "'",
            '"',
            'it\'s "quoted"',
            "line\nline",
            "$(touch evil)",
            "`id`",
            "$HOME",
            "*",
            "~",
            "\\",
            "!",
            "a;b",
            "|",
            "&",
            "ü☃",
            "--",
            "\t",
            "#",
        ],
    )
    def test_an_argument_arrives_as_it_is(self, session: SshSession, word: str) -> None:
        program = "import sys; sys.stdout.write(repr(sys.argv[1:]))"
        result = session.run(["python3", "-c", program, word, "last"])
        assert result.stdout == repr([word, "last"])
        assert session.run(["ls", "evil"]).exit_code != 0

    def test_a_failing_command_has_a_result(self, session: SshSession) -> None:
        result = session.run(["sh", "-c", "echo out; echo err >&2; exit 7"])
        assert (result.exit_code, result.stdout, result.stderr) == (7, "out\n", "err\n")

    def test_a_missing_program_is_a_failing_command(self, session: SshSession) -> None:
        assert session.run(["no-such-program"]).exit_code == 127

    def test_output_that_is_not_text_is_decoded_nevertheless(self, session: SshSession) -> None:
        assert session.run(["printf", r"\377x"]).stdout.endswith("x")

    def test_a_command_that_takes_too_long_is_a_lost_host(self, session: SshSession) -> None:
        with pytest.raises(HostError, match=r"worker 0 of 'n1': a command did not end in time"):
            session.run(["sleep", "60"], timeout=0.2)

    def test_a_timeout_is_reported_also_when_the_connection_ends_meanwhile(
        self, session: SshSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        close = paramiko.Channel.close

        def close_late(channel: paramiko.Channel) -> None:
            close(channel)
            raise EOFError

        monkeypatch.setattr(paramiko.Channel, "close", close_late)
        with pytest.raises(HostError, match=r"worker 0 of 'n1': a command did not end in time"):
            session.run(["sleep", "60"], timeout=0.2)

    def test_the_connection_serves_the_next_command_after_a_timeout(self, session: SshSession) -> None:
        with pytest.raises(HostError, match="did not end in time"):
            session.run(["sleep", "60"], timeout=0.2)
        assert session.run(["echo", "next"]).stdout == "next\n"

    def test_a_lost_connection_is_a_lost_host(self, session: SshSession, simulator) -> None:
        name = "projects/sim-project/locations/europe-west4-a/nodes/n1"
        timer = threading.Timer(0.2, lambda: simulator.call(simulator.world.preempt(name)))
        timer.start()
        try:
            with pytest.raises(HostError, match="worker 0 of 'n1': "):
                session.run(["sleep", "60"], timeout=20)
        finally:
            timer.join()

    def test_a_file_arrives_as_it_is(self, session: SshSession) -> None:
        session.put(b"\x00\xff\r\n" * 100_000, "data.bin")
        assert session.run(["wc", "-c", "data.bin"]).stdout.split()[0] == "400000"
        session.put(b"", "data.bin")
        assert session.run(["wc", "-c", "data.bin"]).stdout.split()[0] == "0"

    def test_a_file_is_private_from_its_first_byte_also_one_that_exists(self, session: SshSession) -> None:
        session.run(["sh", "-c", "umask 0 && touch old && ln old same"])
        for name in ("old", "new"):
            session.put(b"secret", name)
        modes = session.run(["stat", "-c", "%a", "old", "new", "same"]).stdout.split()
        assert modes == ["600", "600", "600"]

    def test_a_missing_folder_is_an_error_of_the_host(self, session: SshSession) -> None:
        with pytest.raises(HostError, match=r"worker 0 of 'n1': .*No such file"):
            session.put(b"", "nowhere/data.bin")


class TestConnectionsThatEnd:
    """At each step of a command: a lost connection is told from a host that refuses."""

    def session(self, channel: ScriptedChannel | Exception, *, is_lost: bool = False) -> SshSession:
        transport: Any = ScriptedTransport(channel, is_lost=is_lost, is_late=True)
        return SshSession(transport, "worker 1 of 'n1'", "ada")

    @pytest.mark.parametrize("code", [0, 1, 255])
    def test_a_command_has_its_code_and_its_output(self, code: int) -> None:
        channel = ScriptedChannel([b"o\xffut"], [b"e\xffrr"], code=code)
        result = self.session(channel, is_lost=True).run(["a b", "$c"], stdin=b"in")
        assert (result.exit_code, result.stdout, result.stderr) == (code, "o\ufffdut", "e\ufffdrr")
        assert (channel.commands, channel.sent) == (["'a b' '$c'"], [b"in"])
        assert channel.closed.is_set()

    @pytest.mark.parametrize(
        ("is_lost", "text"), [(True, "it closed the connection"), (False, r"Channel closed\.")]
    )
    def test_no_channel(self, is_lost: bool, text: str) -> None:
        with pytest.raises(HostError, match=f"^worker 1 of 'n1': {text}"):
            self.session(LOST, is_lost=is_lost).run(["true"])

    @pytest.mark.parametrize(
        ("is_lost", "text"), [(True, "it closed the connection"), (False, "it refused to run a command")]
    )
    def test_no_command(self, is_lost: bool, text: str) -> None:
        channel = ScriptedChannel()
        channel.refusal = LOST
        with pytest.raises(HostError, match=f"^worker 1 of 'n1': {text}"):
            self.session(channel, is_lost=is_lost).run(["true"])
        assert channel.closed.is_set()

    def test_no_exit_code_on_a_lost_connection(self) -> None:
        with pytest.raises(HostError, match=r"^worker 1 of 'n1': it closed the connection"):
            self.session(ScriptedChannel(code=-1), is_lost=True).run(["true"])

    def test_no_exit_code_of_a_command_that_a_signal_ended(self) -> None:
        assert self.session(ScriptedChannel(code=-1)).run(["true"]).exit_code == -1

    def test_a_command_that_goes_on_has_its_own_window(self) -> None:
        channel = ScriptedChannel([b"out"])
        session = self.session(channel)
        process = session.start(["tail", "a b"], window=99)
        assert (process.read(), channel.commands) == (b"out", ["tail 'a b'"])
        transport: Any = session.transport
        assert transport.opened == [{"window_size": 99}]

    def test_whether_it_is_open(self) -> None:
        session = self.session(LOST, is_lost=True)
        assert session.is_open  # as far as is known
        session.transport.join(1)
        assert not session.is_open


def test_threads_share_no_configuration_that_fabric_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It merges it anew for each connection that it makes: another thread would find it half empty."""
    configurations, both = [], threading.Barrier(2)
    make = fabric.Connection.__init__

    def init(self: fabric.Connection, *arguments: object, config: fabric.Config) -> None:
        configurations.append(id(config))
        both.wait(60)
        make(self, *arguments, config=config)

    monkeypatch.setattr(fabric.Connection, "__init__", init)
    session._pattern.cache_clear()
    threads = [threading.Thread(target=session._pattern, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(configurations)) == 2


def test_fabric_runs_commands_and_copies_files_over_a_copy(session: SshSession) -> None:
    copy = session._connection
    copy.put(io.BytesIO(b"data"), "fabric.txt")
    result = copy.run("cat fabric.txt; rm fabric.txt", hide=True, in_stream=False)
    assert (result.stdout, copy.is_connected) == ("data", True)


OTHER_KEY = Ed25519PrivateKey.generate().public_key().public_bytes(
    serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
).decode().split()[1]  # fmt: skip


@pytest.fixture
def host_key(cloud: Cloud, ready: Node) -> str:
    return cloud.provider.host_keys(ready.id)[0]


def dials(server: socket.socket) -> Dial:
    """A dial that reaches a server of the test, whatever the worker."""
    return lambda node, worker: dial_address(*server.getsockname())


class TestConnecting:
    def refused(self, ssh: Ssh, node: Node, key: str) -> HostError:
        with pytest.raises(HostError, match=r"^worker 0 of 'n1': ") as caught, ssh.connect(node, 0, key):
            pass
        assert caught.value.hint
        return caught.value

    def test_another_host_key_is_refused(self, cloud: Cloud, ready: Node) -> None:
        error = self.refused(cloud.ssh, ready, OTHER_KEY)
        assert "its host key is not the one it published" in error.message
        assert error.hint.startswith("Do not trust this address.")
        assert error.facts == {"host_key": "wrong"}

    @pytest.mark.parametrize(
        "key",
        ["", "AAAA", "not base64!", "ü", OTHER_KEY[:-8]],
        ids=["empty", "short", "not base64", "not ASCII", "cut off"],
    )
    def test_a_host_key_that_is_not_valid_is_refused(self, cloud: Cloud, ready: Node, key: str) -> None:
        assert "host key" in self.refused(cloud.ssh, ready, key).message

    def test_a_key_that_the_node_does_not_accept_is_refused(
        self, cloud: Cloud, ready: Node, host_key: str, tmp_path: Path
    ) -> None:
        make_key(tmp_path / "other")
        ssh = Ssh(cloud.ssh.user, tmp_path / "other", cloud._dial)
        error = self.refused(ssh, ready, host_key)
        assert "it refused the SSH key" in error.message
        assert "tpuctl wait" in error.hint
        assert error.facts == {"login": "refused"}

    def test_a_key_that_may_come_yet_is_tried_again_and_given_up(
        self, cloud: Cloud, ready: Node, host_key: str, tmp_path: Path
    ) -> None:
        """Another client has overwritten it, or the host has not heard of it."""
        make_key(tmp_path / "other")
        ssh = Ssh(cloud.ssh.user, tmp_path / "other", cloud._dial)
        answers = [False, True, True]
        assert "it refused the SSH key" in self.refused(ssh.patient(answers.pop), ready, host_key).message
        assert answers == []

        def add() -> bool:
            change = cloud.provider.ssh_key_change(cloud.provider.get_node(ready.id), ssh.login_key())
            assert change
            cloud.provider.begin(change).wait("to have the key", 60)
            return True

        with ssh.patient(add).connect(ready, 0, host_key) as session:
            assert session.run(["true"]).exit_code == 0

    def test_a_user_that_the_node_does_not_have_is_refused(
        self, cloud: Cloud, ready: Node, host_key: str
    ) -> None:
        ssh = Ssh("mallory", cloud.ssh.key, cloud._dial)
        assert "it refused the SSH key" in self.refused(ssh, ready, host_key).message

    def test_a_key_with_a_passphrase_is_named_and_no_host_is_blamed(
        self, cloud: Cloud, ready: Node, host_key: str, tmp_path: Path
    ) -> None:
        (tmp_path / "locked").write_bytes(private_bytes(Ed25519PrivateKey.generate(), b"hunter2"))
        ssh = Ssh(cloud.ssh.user, tmp_path / "locked", cloud._dial)
        with pytest.raises(ConfigError, match=f"The SSH key {ssh.key} cannot be used: .*password"), \
                ssh.connect(ready, 0, host_key):  # fmt: skip
            pass

    def test_a_port_without_a_server_is_a_refused_connection(
        self, cloud: Cloud, ready: Node, host_key: str
    ) -> None:
        with socket.socket() as silent:  # has a port, and does not listen on it
            silent.bind(("127.0.0.1", 0))
            ssh = Ssh("ada", cloud.ssh.key, dials(silent))
            assert "it refused the connection" in self.refused(ssh, ready, host_key).message

    def test_a_server_that_hangs_up_is_a_lost_host(self, cloud: Cloud, ready: Node, host_key: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=lambda: server.accept()[0].close(), daemon=True)
            thread.start()
            self.refused(Ssh("ada", cloud.ssh.key, dials(server)), ready, host_key)
            thread.join()

    def test_an_address_without_a_host_is_named(self, cloud: Cloud, ready: Node, host_key: str) -> None:
        node = replace(ready, addresses=("192.0.2.1",))
        with pytest.raises(HostError, match=r"No host answers at 192\.0\.2\.1"), \
                cloud.ssh.connect(node, 0, host_key):  # fmt: skip
            pass

    def test_a_path_that_looks_like_an_option_or_shell_code_is_a_path(
        self, cloud: Cloud, ready: Node, host_key: str, tmp_path: Path
    ) -> None:
        key = tmp_path / "-oProxyCommand=touch owned; touch owned"
        key.write_bytes(cloud.ssh.key.read_bytes())
        ssh = Ssh(cloud.ssh.user, key, cloud.ssh._dial)
        with ssh.connect(ready, 0, host_key) as session:
            assert session.run(["printf", "%s", "$(touch owned); -oX"]).stdout == "$(touch owned); -oX"
            assert session.run(["ls", "owned"]).exit_code != 0
        assert not Path("owned").exists()

    def test_the_users_ssh_configuration_is_not_read(
        self, cloud: Cloud, ready: Node, host_key: str, home: Path
    ) -> None:
        (home / ".ssh").mkdir(exist_ok=True)
        (home / ".ssh/config").write_text("Host *\n  User mallory\n  Port 9\n  ProxyCommand false\n")
        with cloud.ssh.connect(ready, 0, host_key) as session:
            assert session.run(["id"]).exit_code == 0
        assert not (home / ".ssh/known_hosts").exists()

    def test_the_users_known_hosts_vouch_for_nobody(
        self, cloud: Cloud, ready: Node, host_key: str, home: Path
    ) -> None:
        """Only the key that the node published does, whatever a file says of this address."""
        host, port = cloud._endpoint(ready, 0)
        (home / ".ssh").mkdir(exist_ok=True)
        (home / ".ssh/known_hosts").write_text(f"[{host}]:{port} ssh-ed25519 {host_key}\n")
        with pytest.raises(HostError, match="host key is not the one it published"), \
                cloud.ssh.connect(ready, 0, OTHER_KEY):  # fmt: skip
            pass

    def test_two_users_of_one_node_log_in_side_by_side(
        self, cloud: Cloud, ready: Node, host_key: str, tmp_path: Path
    ) -> None:
        other = Ssh("bob", tmp_path / "bobs_key", cloud._dial)
        shared = install_key(cloud.provider, ready, other.login_key(), lambda line: None)
        with cloud.ssh.connect(shared, 0, host_key) as own, other.connect(shared, 0, host_key) as bobs:
            users = [session.run(["printenv", "USER"]).stdout.strip() for session in (own, bobs)]
        assert users == [cloud.ssh.user, "bob"]


def test_a_process_may_open_a_connection_to_each_of_very_many_hosts(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        Ssh("ada", tmp_path / "key", lambda node, worker: pytest.fail("nothing is dialed"))
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 3 * 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Session:
    """A connection that may be lost."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.is_open = True


class Hosts:
    """Workers that can be connected to; those in `down` cannot."""

    def __init__(self, *down: int) -> None:
        self.down = set(down)
        self.opened: list[int] = []
        self.closed: list[int] = []
        self.pool = Pool(self.connect)  # type: ignore[arg-type]  # no real connections

    @contextmanager
    def connect(self, worker: int) -> Iterator[Session]:
        if worker in self.down:
            raise HostError(f"worker {worker}: it is down.")
        self.opened.append(worker)
        try:
            yield Session(worker)
        finally:
            self.closed.append(worker)


def test_a_connection_is_opened_once_for_all_rounds_and_closed_at_the_end() -> None:
    hosts = Hosts()
    with hosts.pool as pool:
        for _ in range(3):
            results = pool.run_all(lambda session, worker: (session.worker, worker), range(4))  # type: ignore[attr-defined]
        assert [result.value for result in results] == [(0, 0), (1, 1), (2, 2), (3, 3)]
        assert sorted(hosts.opened) == [0, 1, 2, 3]
        assert hosts.closed == []
    assert sorted(hosts.closed) == [0, 1, 2, 3]


def test_of_very_many_workers_few_connections_are_open_at_once() -> None:
    hosts, most = Hosts(), 0

    def work(session: object, worker: int) -> None:
        nonlocal most
        most = max(most, len(hosts.opened) - len(hosts.closed))

    with hosts.pool as pool:
        for _ in range(2):
            pool.run_all(work, range(4 * WIDTH))
        assert 0 < most <= WIDTH
        assert len(hosts.opened) == len(hosts.closed) == 8 * WIDTH


def test_connections_are_opened_side_by_side() -> None:
    hosts, together = Hosts(), threading.Barrier(8, timeout=60)
    with hosts.pool as pool:
        pool.run_all(lambda session, worker: together.wait(), range(8))


def test_a_worker_that_fails_is_named_and_changes_nothing_for_the_others() -> None:
    hosts = Hosts(1)
    with hosts.pool as pool:
        results = pool.run_all(lambda session, worker: worker, range(3))
    assert [(result.item, result.value) for result in results] == [(0, 0), (1, None), (2, 2)]
    assert str(results[1].error) == "worker 1: it is down."
    assert sorted(hosts.closed) == [0, 2]


def test_a_lost_connection_is_opened_again() -> None:
    hosts = Hosts()
    with hosts.pool as pool:
        session = pool.session(0)
        assert pool.session(0) is session
        session.is_open = False  # type: ignore[misc]  # a double's
        assert pool.session(0) is not session
    assert (hosts.opened, hosts.closed) == ([0, 0], [0, 0])


def test_ctrl_c_closes_every_connection() -> None:
    hosts = Hosts()

    def interrupted(session: object, worker: int) -> None:
        if worker == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), hosts.pool as pool:
        pool.run_all(interrupted, [0, 1])
    assert sorted(hosts.closed) == sorted(hosts.opened) == [0, 1]


def test_a_connection_that_is_opened_after_the_end_is_closed_at_once() -> None:
    """As one that a thread was opening when Ctrl-C ended the command."""
    hosts = Hosts()
    with hosts.pool as pool:
        pass
    with pytest.raises(HostError, match="the command ended before it was reached"):
        pool.session(0)
    assert hosts.closed == [0]
