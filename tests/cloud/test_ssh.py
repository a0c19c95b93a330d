"""SSH to a simulated host: our key, its published key, quoting, and what can go wrong."""

from __future__ import annotations

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
from tpuctl.cloud.ssh import Session, Ssh, make_key, read_public_key
from tpuctl.errors import ConfigError, HostError
from tpuctl.nodes import Node, SshKey

OTHER_KEY = Ed25519PrivateKey.generate().public_key().public_bytes(
    serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
).decode().split()[1]  # fmt: skip


@pytest.fixture
def host_key(cloud: Cloud, ready: Node) -> str:
    return cloud.provider.host_keys(ready.id)[0]


class TestKey:
    def test_it_is_made_for_its_owner_alone_and_used_again(self, tmp_path: Path) -> None:
        ssh = Ssh("ada", tmp_path / "deep/er/key", lambda address: (address, 22))
        first = ssh.login_key().public_key
        assert first.startswith("ssh-ed25519 AAAA")
        assert stat.S_IMODE(ssh.key.stat().st_mode) == 0o600
        assert stat.S_IMODE(ssh.key.parent.stat().st_mode) == 0o700
        assert ssh.key.with_name("key.pub").read_text() == f"{first} tpuctl\n"
        before = ssh.key.read_bytes()
        assert ssh.login_key() == SshKey("ada", first)
        assert ssh.key.read_bytes() == before
        assert sorted(one.name for one in ssh.key.parent.iterdir()) == ["key", "key.pub"]

    def test_of_two_commands_at_once_the_first_ones_key_stands(self, tmp_path: Path) -> None:
        """As when the second looked for it just before the first had made it."""
        make_key(tmp_path / "key")
        first = read_public_key(tmp_path / "key")
        make_key(tmp_path / "key")
        assert read_public_key(tmp_path / "key") == first
        assert (tmp_path / "key.pub").read_text() == f"{first} tpuctl\n"

    def test_a_key_of_another_type_is_as_good(self, tmp_path: Path) -> None:
        path = tmp_path / "rsa"
        path.write_bytes(private_bytes(rsa.generate_private_key(65537, 2048)))
        assert read_public_key(path).startswith("ssh-rsa AAAA")

    def test_one_with_a_passphrase_is_refused_and_says_so(self, tmp_path: Path) -> None:
        path = tmp_path / "locked"
        path.write_bytes(private_bytes(Ed25519PrivateKey.generate(), b"hunter2"))
        with pytest.raises(ConfigError, match=f"The SSH key {path} cannot be used: .*password") as refused:
            read_public_key(path)
        assert "without a passphrase" in refused.value.hint

    @pytest.mark.parametrize("data", [b"", b"garbage", b"ssh-ed25519 AAAA ada\n", b"\xff" * 100])
    def test_what_is_no_key_is_refused(self, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "key"
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=f"{path} cannot be used"):
            Ssh("ada", path, lambda address: (address, 22)).login_key()

    def test_one_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
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
    def test_an_argument_arrives_as_it_is(self, session: Session, word: str) -> None:
        program = "import sys; sys.stdout.write(repr(sys.argv[1:]))"
        done = session.run(["python3", "-c", program, word, "last"])
        assert done.out == repr([word, "last"])
        assert session.run(["ls", "evil"]).code != 0

    def test_a_failing_command_is_an_output(self, session: Session) -> None:
        done = session.run(["sh", "-c", "echo out; echo err >&2; exit 7"])
        assert (done.code, done.out, done.err) == (7, "out\n", "err\n")

    def test_a_program_that_is_not_there_is_an_output(self, session: Session) -> None:
        assert session.run(["no-such-program"]).code == 127

    def test_bytes_that_are_no_text_do_no_harm(self, session: Session) -> None:
        assert session.run(["printf", r"\377x"]).out.endswith("x")

    def test_a_command_that_takes_too_long_is_a_lost_host(self, session: Session) -> None:
        with pytest.raises(HostError, match=r"worker 0 of 'n1': a command did not end in time"):
            session.run(["sleep", "60"], timeout=0.2)

    def test_it_is_one_also_when_the_answer_to_its_end_is_slow(
        self, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = threading.Event()

        def kill(remote: fabric.runners.Remote) -> None:
            remote.channel.close()
            seen.wait(10)  # the timer of the library is busy until the command has been given up
            raise EOFError  # as where the connection has ended by then

        monkeypatch.setattr(fabric.runners.Remote, "kill", kill)
        try:
            with pytest.raises(HostError, match=r"worker 0 of 'n1': a command did not end in time"):
                session.run(["sleep", "60"], timeout=0.2)
        finally:
            seen.set()

    def test_a_connection_that_goes_away_is_a_lost_host(self, session: Session, simulator) -> None:
        name = "projects/sim-project/locations/europe-west4-a/nodes/n1"
        timer = threading.Timer(0.2, lambda: simulator.call(simulator.world.preempt(name)))
        timer.start()
        try:
            with pytest.raises(HostError, match="worker 0 of 'n1': "):
                session.run(["sleep", "60"], timeout=20)
        finally:
            timer.join()

    def test_a_file_arrives_as_it_is(self, session: Session) -> None:
        session.put(b"\x00\xff\r\n" * 100_000, "data.bin")
        assert session.run(["wc", "-c", "data.bin"]).out.split()[0] == "400000"
        session.put(b"", "data.bin")
        assert session.run(["wc", "-c", "data.bin"]).out.split()[0] == "0"

    def test_a_folder_that_is_not_there_is_an_error_of_the_host(self, session: Session) -> None:
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
    def test_a_host_key_that_is_none_is_refused(self, cloud: Cloud, ready: Node, key: str) -> None:
        assert "host key" in self.refused(cloud.ssh, ready, key).message

    def test_a_key_that_the_node_does_not_have_is_refused(
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

    def test_nobody_who_listens_is_a_refused_connection(
        self, cloud: Cloud, ready: Node, host_key: str
    ) -> None:
        with socket.socket() as taken:  # by nobody else, and does not listen
            taken.bind(("127.0.0.1", 0))
            ssh = Ssh("ada", cloud.ssh.key, lambda _: taken.getsockname())
            assert "it refused the connection" in self.refused(ssh, ready, host_key).message

    def test_one_who_hangs_up_is_a_lost_host(self, cloud: Cloud, ready: Node, host_key: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=lambda: server.accept()[0].close())
            thread.start()
            self.refused(Ssh("ada", cloud.ssh.key, lambda _: server.getsockname()), ready, host_key)
            thread.join()

    def test_an_address_that_no_host_has_is_told(self, cloud: Cloud, ready: Node, host_key: str) -> None:
        node = replace(ready, addresses=("192.0.2.1",))
        with pytest.raises(HostError, match=r"No host answers at 192\.0\.2\.1"), \
                cloud.ssh.connect(node, 0, host_key):  # fmt: skip
            pass

    def test_nothing_of_the_users_ssh_configuration_counts(
        self, cloud: Cloud, ready: Node, host_key: str, home: Path
    ) -> None:
        (home / ".ssh").mkdir(exist_ok=True)
        (home / ".ssh/config").write_text("Host *\n  User mallory\n  Port 9\n  ProxyCommand false\n")
        with cloud.ssh.connect(ready, 0, host_key) as session:
            assert session.run(["id"]).code == 0
        assert not (home / ".ssh/known_hosts").exists()
