"""Turns errors of the SSH libraries into a HostError that names the worker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from tpuctl.errors import HostError, cause


class SilentHost(Exception):
    """The host has stopped answering; says at which step."""


class CommandTimeout(Exception):
    """A command has not ended in its time."""


class Flood(Exception):
    """A command has printed more than is kept; says how many bytes that is."""


@contextmanager
def translated(worker: str) -> Iterator[None]:
    """Turn errors of the SSH libraries inside the block into a HostError; `worker` names it."""
    try:
        yield
    except FAILURES as error:
        text, hint = _explain(error)
        facts = next((known for kind, known in FACTS.items() if isinstance(error, kind)), {})
        raise HostError(f"{worker}: {text}.", hint=hint, **facts) from cause(error)


FACTS: dict[type[BaseException], dict[str, str]] = {
    paramiko.BadHostKeyException: {"host_key": "wrong"},
    paramiko.AuthenticationException: {"login": "refused"},
}
"""Error class and its facts; the first class that matches is used."""
FAILURES = (paramiko.SSHException, EOFError, OSError, SilentHost, CommandTimeout, Flood)


def _explain(error: BaseException) -> tuple[str, str]:
    for kind, text, hint in EXPLANATIONS:
        if isinstance(error, kind):
            return text.format(error=error), hint
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or str(error) or type(error).__name__, f"The host may be down: {SEE_STATE}"


ADD_KEY = (
    "The same command adds it again, where another client has overwritten it.\n"
    "Wait until the hosts know it, or learn why they do not: tpuctl wait NAME"
)
SEE_STATE = "'tpuctl ls' shows the node's state."

EXPLANATIONS: tuple[tuple[type[BaseException], str, str], ...] = (
    (
        paramiko.BadHostKeyException,
        "its host key is not the one it published",
        "Do not trust this address. With --host-keys first-contact it is not the first one: if Google has "
        "repaired the host, remove the worker's file from host-keys in tpuctl's state folder.",
    ),
    (paramiko.AuthenticationException, "it refused the SSH key", ADD_KEY),
    (IncompatiblePeer, "it speaks another SSH: {error}", "Is it a host of this TPU? " + SEE_STATE),
    (CommandTimeout, "a command did not end in time", f"The host may hang: {SEE_STATE}"),
    (SilentHost, "it did not answer in time, at {error}", f"The host may boot or hang: {SEE_STATE}"),
    (Flood, "a command printed more than {error} bytes", "Look at what a login runs there: ~/.bashrc."),
    (socket.timeout, "it did not answer in time", "Check that port 22 is open to you, and the host up."),
    (ConnectionRefusedError, "it refused the connection", f"It may still boot, or be deleted: {SEE_STATE}"),
    (ConnectionError, "it closed the connection", f"It may boot, or be deleted: {SEE_STATE}"),
    (EOFError, "it closed the connection", f"It may boot, or be deleted: {SEE_STATE}"),
)
"""Error class, message and hint; the first class that matches is used."""
