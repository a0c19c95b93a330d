"""Connecting to a simulated host: our key, its published key, and what can go wrong."""

from __future__ import annotations

import resource
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.cloud.ssh.keys import private_bytes
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.ssh import Dial, Ssh, dial_address, make_key
from tpuctl.errors import ConfigError, HostError
from tpuctl.flows.hosts.way_in import install_key
from tpuctl.nodes import Node

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
