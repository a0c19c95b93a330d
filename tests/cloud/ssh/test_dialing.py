"""Dialing a host: our key, whom its first answer is trusted, and what users read of the libraries' errors."""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from paramiko.ssh_exception import IncompatiblePeer

from tests.cloud.ssh.keys import private_bytes
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.ssh import ByteStream, Ssh, make_key, read_public_key
from tpuctl.cloud.ssh.dialing import ADD_KEY, EXPLANATIONS, CommandTimeout, Flood, SilentHost, translated
from tpuctl.errors import ConfigError, HostError
from tpuctl.nodes import Node, SshKey


def no_dial(node: Node, worker: int) -> ByteStream:
    raise AssertionError("keys need no connection")


def test_a_key_is_created_for_its_owner_alone_and_used_again(tmp_path: Path) -> None:
    ssh = Ssh("ada", tmp_path / "deep/er/key", no_dial)
    first = ssh.login_key().public_key
    assert first.startswith("ssh-ed25519 AAAA")
    assert stat.S_IMODE(ssh.key.stat().st_mode) == 0o600
    assert stat.S_IMODE(ssh.key.parent.stat().st_mode) == 0o700
    assert ssh.key.with_name("key.pub").read_text() == f"{first} tpuctl\n"
    before = ssh.key.read_bytes()
    assert ssh.login_key() == SshKey("ada", first)
    assert ssh.key.read_bytes() == before
    assert sorted(file.name for file in ssh.key.parent.iterdir()) == ["key", "key.pub"]


def test_of_two_commands_at_once_the_first_ones_key_is_kept(tmp_path: Path) -> None:
    """As when the second looked for it just before the first had created it."""
    make_key(tmp_path / "key")
    first = read_public_key(tmp_path / "key")
    make_key(tmp_path / "key")
    assert read_public_key(tmp_path / "key") == first
    assert (tmp_path / "key.pub").read_text() == f"{first} tpuctl\n"


def test_of_many_threads_at_once_one_makes_the_key_and_none_fails(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "key"
    start = threading.Barrier(8)

    def make(_: int) -> str:
        start.wait()
        make_key(path)
        return read_public_key(path)

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(make, range(8)))) == 1
    assert sorted(file.name for file in path.parent.iterdir()) == ["key", "key.pub"]


def test_key_and_folders_are_private_under_any_umask(tmp_path: Path) -> None:
    earlier = os.umask(0)
    try:
        make_key(tmp_path / "state/ssh/key")
    finally:
        os.umask(earlier)
    names = ("state", "state/ssh", "state/ssh/key", "state/ssh/key.pub")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in names]
    assert modes == [0o700, 0o700, 0o600, 0o644]


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o620])
def test_a_key_that_other_users_can_read_is_refused_as_by_openssh(tmp_path: Path, mode: int) -> None:
    """As is one that came with a repository: others have it, and could log in."""
    make_key(tmp_path / "key")
    (tmp_path / "key").chmod(mode)
    ssh = Ssh("ada", tmp_path / "key", no_dial)
    with pytest.raises(
        ConfigError, match=rf"key can be read by other users .* \(mode {mode:04o}\)"
    ) as refused:
        ssh.login_key()
    assert f"chmod 600 {tmp_path}/key" in refused.value.hint


def test_a_key_of_another_type_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "rsa"
    path.write_bytes(private_bytes(rsa.generate_private_key(65537, 2048)))
    assert read_public_key(path).startswith("ssh-rsa AAAA")


def test_a_key_with_a_passphrase_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "locked"
    path.write_bytes(private_bytes(Ed25519PrivateKey.generate(), b"hunter2"))
    with pytest.raises(ConfigError, match=f"The SSH key {path} cannot be used: .*password") as refused:
        read_public_key(path)
    assert "without a passphrase" in refused.value.hint


@pytest.mark.parametrize("data", [b"", b"garbage", b"ssh-ed25519 AAAA ada\n", b"\xff" * 100])
def test_a_file_that_is_not_a_key_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=f"{path} cannot be used"):
        Ssh("ada", path, no_dial).login_key()


@pytest.mark.parametrize("kind", ["pipe", "device", "too large"])
def test_a_file_without_an_end_is_refused_as_a_key(tmp_path: Path, kind: str) -> None:
    """The tpuctl.toml of a project from elsewhere may name a pipe that nobody writes, or /dev/zero."""
    path = tmp_path / "key"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(1 << 33)
    with pytest.raises(ConfigError, match=f"{path} cannot be used"):
        read_public_key(path)


def test_a_key_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/key cannot be written: \w") as refused:
        make_key(tmp_path / "file/key")
    assert "ssh_key" in refused.value.hint


Tpuctl = Callable[..., CommandResult]
REFUSAL = "Constraint constraints/compute.disableGuestAttributesAccess violated for project sim-project."
UP = ("up", "v3-8", "--name", "n1", "--yes")


@pytest.fixture
def _forbidden(simulator: RunningSimulator) -> None:
    simulator.faults.add("guest-attributes-off")


@pytest.mark.usefixtures("_forbidden")
def test_a_policy_that_forbids_guest_attributes_is_said_with_what_bills_and_the_way_around(
    tpuctl: Tpuctl,
) -> None:
    refused = tpuctl(*UP)
    assert refused.code == 3
    assert REFUSAL in refused.err
    assert "Node 'n1' in europe-west4-a bills." in refused.err
    assert "--host-keys first-contact" in refused.err
    assert tpuctl("exec", "n1", "--", "true").code == 3
    assert tpuctl(*UP, "--host-keys", "first-contact").code == 0
    assert tpuctl("exec", "n1", "--host-keys", "first-contact", "--", "echo", "here").out.endswith("here\n")


@pytest.mark.daily
@pytest.mark.usefixtures("_forbidden")
def test_another_key_than_that_of_the_first_contact_is_refused(
    tpuctl: Tpuctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_HOST_KEYS", "first-contact")
    assert tpuctl(*UP).code == 0
    (kept,) = (tmp_path / "state" / "host-keys").iterdir()
    own = kept.read_text()
    kept.write_text("AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43)
    impostor = tpuctl("exec", "n1", "--", "true")
    assert impostor.code == 8
    assert "its host key is not the one" in impostor.err
    assert "host-keys" in impostor.err
    kept.write_text(own)
    assert tpuctl("exec", "n1", "--", "true").code == 0


def test_a_published_key_comes_before_that_of_the_first_contact(
    simulator: RunningSimulator, tpuctl: Tpuctl, tmp_path: Path
) -> None:
    assert tpuctl(*UP).code == 0
    fault = simulator.faults.add("error", method="GetGuestAttributes", code="PERMISSION_DENIED", message="No")
    assert tpuctl("exec", "n1", "--host-keys", "first-contact", "--", "true").code == 0
    (kept,) = (tmp_path / "state" / "host-keys").iterdir()
    kept.write_text("AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43)
    simulator.faults.remove(fault.id)
    assert tpuctl("exec", "n1", "--host-keys", "first-contact", "--", "true").code == 0


STATE = "'tpuctl ls' shows the node's state."
KEY = paramiko.ECDSAKey.generate()


@pytest.mark.parametrize(
    ("error", "text", "hint", "facts"),
    [
        (
            paramiko.BadHostKeyException("h", KEY, KEY),
            "its host key is not the one it published", EXPLANATIONS[0][2], {"host_key": "wrong"},
        ),
        (
            paramiko.AuthenticationException("no"),
            "it refused the SSH key", ADD_KEY, {"login": "refused"},
        ),
        (
            paramiko.BadAuthenticationType("no", ["password"]),
            "it refused the SSH key", ADD_KEY, {"login": "refused"},
        ),
        (
            IncompatiblePeer("no ciphers"),
            "it speaks another SSH: no ciphers", f"Is it a host of this TPU? {STATE}", {},
        ),
        (CommandTimeout(), "a command did not end in time", f"The host may hang: {STATE}", {}),
        (
            SilentHost("the login"),
            "it did not answer in time, at the login", f"The host may boot or hang: {STATE}", {},
        ),
        (
            Flood("16"),
            "a command printed more than 16 bytes", "Look at what a login runs there: ~/.bashrc.", {},
        ),
        (
            TimeoutError("x"),
            "it did not answer in time", "Check that port 22 is open to you, and the host up.", {},
        ),
        (
            ConnectionRefusedError(), "it refused the connection",
            f"It may still boot, or be deleted: {STATE}", {},
        ),
        (ConnectionResetError(), "it closed the connection", f"It may boot, or be deleted: {STATE}", {}),
        (EOFError(), "it closed the connection", f"It may boot, or be deleted: {STATE}", {}),
        (paramiko.SSHException("odd"), "odd", f"The host may be down: {STATE}", {}),
        (paramiko.SSHException(), "SSHException", f"The host may be down: {STATE}", {}),
        (
            OSError(errno.EHOSTUNREACH, "No route to host"),
            "No route to host", f"The host may be down: {STATE}", {},
        ),
        (OSError("no number"), "no number", f"The host may be down: {STATE}", {}),
        (socket.gaierror("?"), "?", f"The host may be down: {STATE}", {}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)  # fmt: skip
def test_an_error_is_explained(error: Exception, text: str, hint: str, facts: dict[str, str]) -> None:
    with pytest.raises(HostError) as raised, translated("worker 0 of 'n1'"):
        raise error
    assert raised.value.message == f"worker 0 of 'n1': {text}."
    assert (raised.value.hint, raised.value.facts) == (hint, facts)
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), HostError("named already")])
def test_other_errors_are_left_alone(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, translated("worker 0 of 'n1'"):
        raise error
    assert raised.value is error
