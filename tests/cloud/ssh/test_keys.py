"""The SSH key of this user: made once, private, of any type without a passphrase."""

from __future__ import annotations

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.cloud.ssh.keys import private_bytes
from tpuctl.cloud.ssh import ByteStream, Ssh, make_key, read_public_key
from tpuctl.errors import ConfigError
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
