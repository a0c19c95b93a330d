"""What users read of the errors of the SSH libraries."""

from __future__ import annotations

import errno
import socket

import paramiko
import pytest
from paramiko.ssh_exception import IncompatiblePeer

from tpuctl.cloud.ssh.dialing import ADD_KEY, EXPLANATIONS, CommandTimeout, Flood, SilentHost, translated
from tpuctl.errors import HostError

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
