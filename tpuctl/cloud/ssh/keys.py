"""Makes and reads the SSH key that logs in on hosts."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpuctl.atomic_files import PRIVATE, READABLE, create_file, replace_file
from tpuctl.errors import ConfigError
from tpuctl.local.private_folder import make_missing_folders

_LARGEST = 64 << 10
"""Bytes of a private key file: one of RSA with 16,384 bits has 13 kB."""


def make_key(path: Path) -> None:
    """Create an ed25519 key pair without a passphrase, the private half readable by its owner alone.

    Keeps a key that exists. Raises ConfigError when the files cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    try:
        make_missing_folders(path.parent)
        if create_file(path, private, mode=PRIVATE):
            replace_file(path.with_name(path.name + ".pub"), [public + b" tpuctl\n"], mode=READABLE)
    except OSError as error:
        raise ConfigError(
            f"The SSH key {path} cannot be written: {error.strerror}.", hint="Set ssh_key to another path."
        ) from error


def read_public_key(path: Path) -> str:
    """Return `TYPE BASE64` of a private key file's public half; raises ConfigError when it is unusable."""
    try:
        private = serialization.load_ssh_private_key(_read(path), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"The SSH key {path} cannot be used: {error}.",
            hint="It has to be an OpenSSH private key without a passphrase: set ssh_key to another one.",
        ) from error
    line = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return line.decode()


def _read(path: Path) -> bytes:
    """Return a key file's bytes; the tpuctl.toml of a project from elsewhere may name a pipe or a device."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        content = stream.read(_LARGEST + 1) or b""
    if len(content) > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST >> 10} KiB")
    return content


def load_key(path: Path) -> paramiko.PKey:
    """Return the private key of a file; raises ConfigError when it is unusable."""
    read_public_key(path)
    return paramiko.PKey.from_path(path)


def check_private(path: Path) -> None:
    """Raise ConfigError for a key that other users can read, as OpenSSH does: such as one in a clone."""
    status = path.stat()
    if status.st_uid == os.geteuid() and status.st_mode & 0o077:
        raise ConfigError(
            f"The SSH key {path} can be read by other users of this machine "
            f"(mode {stat.S_IMODE(status.st_mode):04o}).",
            hint=f"If nobody else has it, run 'chmod 600 {path}'; else set ssh_key to another one.",
        )
