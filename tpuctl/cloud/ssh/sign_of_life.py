"""Asks the SSH server at the other end of a connection for a sign of life."""

from __future__ import annotations

import threading
from contextlib import suppress

import paramiko

QUESTION = "keepalive@openssh.com"
"""A server refuses it, which is an answer, too."""


def is_silent(transport: paramiko.Transport, seconds: float) -> bool:
    """Return whether the server gives no answer in time, and close the connection then."""
    silence = threading.Event()

    def end() -> None:
        silence.set()
        transport.close()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    with suppress(paramiko.SSHException, EOFError, OSError):  # lost meanwhile, which is no silence
        transport.global_request(QUESTION, wait=True)
    timer.cancel()
    return silence.is_set()
