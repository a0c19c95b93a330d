"""Reaches TPU hosts by SSH: with our key, and with the host keys that the provider published only."""

from tpuctl.cloud.google_clients import blocked

with blocked("invoke"):  # for `Match exec` in the user's files of OpenSSH, which are not read
    import paramiko  # noqa: F401

from tpuctl.cloud.ssh.dialing import ByteStream, Dial, dial_address, make_key, read_public_key
from tpuctl.cloud.ssh.process import RemoteProcess
from tpuctl.cloud.ssh.session import CommandResult, Pool, Ssh, SshSession

__all__ = [
    "ByteStream",
    "CommandResult",
    "Dial",
    "Pool",
    "RemoteProcess",
    "Ssh",
    "SshSession",
    "dial_address",
    "make_key",
    "read_public_key",
]
