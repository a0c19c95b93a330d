"""Turns errors of the SSH libraries into a HostError that names the worker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import paramiko
from invoke.exceptions import CommandTimedOut

from tpuctl.errors import HostError


@contextmanager
def translated(worker: str) -> Iterator[None]:
    """Turn errors of the SSH libraries inside the block into a HostError; `worker` names it."""
    try:
        yield
    except FAILURES as error:
        text, hint = _explain(error)
        facts = next((known for kind, known in FACTS.items() if isinstance(error, kind)), {})
        raise HostError(f"{worker}: {text}.", hint=hint, **facts) from error


FACTS: dict[type[BaseException], dict[str, str]] = {
    paramiko.BadHostKeyException: {"host_key": "wrong"},
    paramiko.PasswordRequiredException: {},
    paramiko.AuthenticationException: {"login": "refused"},
}
"""Error class and its facts; the first class that matches is used."""
FAILURES = (paramiko.SSHException, EOFError, OSError, CommandTimedOut)


def _explain(error: BaseException) -> tuple[str, str]:
    for kind, text, hint in EXPLANATIONS:
        if isinstance(error, kind):
            return text.format(error=error), hint
    return str(error) or type(error).__name__, f"The host may be down: {SEE_STATE}"


INSTALL_KEY = "Run 'tpuctl up' again: it installs the key."
SEE_STATE = "'tpuctl ls' shows the node's state."

EXPLANATIONS: tuple[tuple[type[BaseException], str, str], ...] = (
    (paramiko.BadHostKeyException, "its host key is not the one it published", "Do not trust this address."),
    (paramiko.PasswordRequiredException, "the SSH key has a passphrase", "Use a key without one."),
    (paramiko.AuthenticationException, "it refused the SSH key", INSTALL_KEY),
    (CommandTimedOut, "a command did not end in time", f"The host may hang: {SEE_STATE}"),
    (socket.timeout, "it did not answer in time", "Check that port 22 is open to you, and the host up."),
    (ConnectionRefusedError, "it refused the connection", f"It may still boot, or be deleted: {SEE_STATE}"),
)
"""Error class, message and hint; the first class that matches is used."""
