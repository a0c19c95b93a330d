"""SSH to a simulated host: our key, its published key, quoting, and what can go wrong."""

from __future__ import annotations

import os
import socket
import stat
import threading
from dataclasses import replace
from pathlib import Path

import fabric
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.ssh import Ssh, SshSession, make_key, read_public_key
from tpuctl.errors import ConfigError, HostError
from tpuctl.nodes import Node, SshKey

OTHER_KEY = Ed25519PrivateKey.generate().public_key().public_bytes(
    serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
).decode().split()[1]  # fmt: skip


@pytest.fixture
def host_key(cloud: Cloud, ready: Node) -> str:
    return cloud.provider.host_keys(ready.id)[0]


class TestKey:
    def test_it_is_created_for_its_owner_alone_and_used_again(self, tmp_path: Path) -> None:
        ssh = Ssh("ada", tmp_path / "deep/er/key", lambda address: (address, 22))
        first = ssh.login_key().public_key
        assert first.startswith("ssh-ed25519 AAAA")
        assert stat.S_IMODE(ssh.key.stat().st_mode) == 0o600
        assert stat.S_IMODE(ssh.key.parent.stat().st_mode) == 0o700
        assert ssh.key.with_name("key.pub").read_text() == f"{first} tpuctl\n"
        before = ssh.key.read_bytes()
        assert ssh.login_key() == SshKey("ada", first)
        assert ssh.key.read_bytes() == before
        assert sorted(file.name for file in ssh.key.parent.iterdir()) == ["key", "key.pub"]

    def test_of_two_commands_at_once_the_first_ones_key_is_kept(self, tmp_path: Path) -> None:
        """As when the second looked for it just before the first had created it."""
        make_key(tmp_path / "key")
        first = read_public_key(tmp_path / "key")
        make_key(tmp_path / "key")
        assert read_public_key(tmp_path / "key") == first
        assert (tmp_path / "key.pub").read_text() == f"{first} tpuctl\n"

    def test_key_and_folders_are_private_under_any_umask(self, tmp_path: Path) -> None:
        earlier = os.umask(0)
        try:
            make_key(tmp_path / "state/ssh/key")
        finally:
            os.umask(earlier)
        names = ("state", "state/ssh", "state/ssh/key", "state/ssh/key.pub")
        modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in names]
        assert modes == [0o700, 0o700, 0o600, 0o644]

    @pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o620])
    def test_a_key_that_other_users_can_read_is_refused_as_by_openssh(
        self, tmp_path: Path, mode: int
    ) -> None:
        """As is one that came with a repository: others have it, and could log in."""
        make_key(tmp_path / "key")
        (tmp_path / "key").chmod(mode)
        ssh = Ssh("ada", tmp_path / "key", lambda address: (address, 22))
        with pytest.raises(
            ConfigError, match=rf"key can be read by other users .* \(mode {mode:04o}\)"
        ) as refused:
            ssh.login_key()
        assert f"chmod 600 {tmp_path}/key" in refused.value.hint

    def test_a_key_of_another_type_is_accepted(self, tmp_path: Path) -> None:
        path = tmp_path / "rsa"
        path.write_bytes(private_bytes(rsa.generate_private_key(65537, 2048)))
        assert read_public_key(path).startswith("ssh-rsa AAAA")

    def test_a_key_with_a_passphrase_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "locked"
        path.write_bytes(private_bytes(Ed25519PrivateKey.generate(), b"hunter2"))
        with pytest.raises(ConfigError, match=f"The SSH key {path} cannot be used: .*password") as refused:
            read_public_key(path)
        assert "without a passphrase" in refused.value.hint

    @pytest.mark.parametrize("data", [b"", b"garbage", b"ssh-ed25519 AAAA ada\n", b"\xff" * 100])
    def test_a_file_that_is_not_a_key_is_refused(self, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "key"
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=f"{path} cannot be used"):
            Ssh("ada", path, lambda address: (address, 22)).login_key()

    def test_a_key_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ConfigError, match=r"file/key cannot be written: \w") as refused:
            make_key(tmp_path / "file/key")
        assert "ssh_key" in refused.value.hint


def private_bytes(key: object, password: bytes = b"") -> bytes:
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(  # type: ignore[attr-defined,no-any-return]
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, encryption
    )


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

    def test_a_timeout_is_reported_also_when_the_command_is_slow_to_end(
        self, session: SshSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given_up = threading.Event()

        def kill(remote: fabric.runners.Remote) -> None:
            remote.channel.close()
            given_up.wait(10)  # the timer of the library is busy until the command has been given up
            raise EOFError  # as where the connection has ended by then

        monkeypatch.setattr(fabric.runners.Remote, "kill", kill)
        try:
            with pytest.raises(HostError, match=r"worker 0 of 'n1': a command did not end in time"):
                session.run(["sleep", "60"], timeout=0.2)
        finally:
            given_up.set()

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


class TestConnecting:
    def refused(self, ssh: Ssh, node: Node, key: str) -> HostError:
        with pytest.raises(HostError, match=r"^worker 0 of 'n1': ") as caught, ssh.connect(node, 0, key):
            pass
        assert caught.value.hint
        return caught.value

    def test_another_host_key_is_refused(self, cloud: Cloud, ready: Node) -> None:
        error = self.refused(cloud.ssh, ready, OTHER_KEY)
        assert "its host key is not the one it published" in error.message
        assert error.hint == "Do not trust this address."

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
        assert "tpuctl up" in error.hint

    def test_a_user_that_the_node_does_not_have_is_refused(
        self, cloud: Cloud, ready: Node, host_key: str
    ) -> None:
        ssh = Ssh("mallory", cloud.ssh.key, cloud._dial)
        assert "it refused the SSH key" in self.refused(ssh, ready, host_key).message

    def test_a_key_with_a_passphrase_is_named(
        self, cloud: Cloud, ready: Node, host_key: str, tmp_path: Path
    ) -> None:
        (tmp_path / "locked").write_bytes(private_bytes(Ed25519PrivateKey.generate(), b"hunter2"))
        ssh = Ssh(cloud.ssh.user, tmp_path / "locked", cloud._dial)
        assert "the SSH key has a passphrase" in self.refused(ssh, ready, host_key).message

    def test_a_port_without_a_server_is_a_refused_connection(
        self, cloud: Cloud, ready: Node, host_key: str
    ) -> None:
        with socket.socket() as silent:  # has a port, and does not listen on it
            silent.bind(("127.0.0.1", 0))
            ssh = Ssh("ada", cloud.ssh.key, lambda _: silent.getsockname())
            assert "it refused the connection" in self.refused(ssh, ready, host_key).message

    def test_a_server_that_hangs_up_is_a_lost_host(self, cloud: Cloud, ready: Node, host_key: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=lambda: server.accept()[0].close())
            thread.start()
            self.refused(Ssh("ada", cloud.ssh.key, lambda _: server.getsockname()), ready, host_key)
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
        host, port = cloud.ssh._dial(ready.addresses[0])
        (home / ".ssh").mkdir(exist_ok=True)
        (home / ".ssh/known_hosts").write_text(f"[{host}]:{port} ssh-ed25519 {host_key}\n")
        with pytest.raises(HostError, match="host key is not the one it published"), \
                cloud.ssh.connect(ready, 0, OTHER_KEY):  # fmt: skip
            pass
