"""Ends a command in this process at any of its requests, whatever it goes to: API, bucket or hosts."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import grpc
import pytest
import requests

from tests.crashes.world import Killed
from tpuctl.cloud.ssh.session import SshSession

RPC = grpc._channel._UnaryUnaryMultiCallable  # the class of every call of Google's client

BACKGROUND = ("_verify_existence_background", "launch sign", "within")
"""In the names of threads of Google's storage client, of a start that takes long, and of looks that a command
does not need: no step of a command."""


class Requests:
    """The requests of a command, by name; from the `fatal` one on, each raises `error`."""

    def __init__(
        self, fatal: Callable[[str, int], bool], when: str, error: Callable[[], BaseException]
    ) -> None:
        """Take `fatal`, which gets the name of a request and its number; `when` is `before` or `after`."""
        self.names: list[str] = []
        self.has_ended = False
        self._fatal, self._when, self._error = fatal, when, error
        self._lock = threading.Lock()

    def send(self, name: str, deliver: Callable[[], Any]) -> Any:
        """Deliver a request, unless the command ends before."""
        if any(name in threading.current_thread().name for name in BACKGROUND):
            return deliver()
        with self._lock:
            if self.has_ended:
                raise Killed
            is_fatal = self._fatal(name, len(self.names))
            self.names.append(name)
            self.has_ended = is_fatal and self._when == "before"
        if self.has_ended:
            raise self._error()
        answer = deliver()
        if is_fatal:
            self.has_ended = True
            raise self._error()
        return answer


@contextmanager
def ended_at(
    fatal: Callable[[str, int], bool], when: str, error: Callable[[], BaseException] = Killed
) -> Iterator[Requests]:
    """Let every command of the block end so; nothing of a command that was killed is sent afterwards."""
    sent, patch = Requests(fatal, when, error), pytest.MonkeyPatch()
    http, rpc, ssh = requests.Session.send, RPC._blocking, SshSession.run

    def send(session: requests.Session, request: requests.PreparedRequest, **options: Any) -> Any:
        return sent.send(_http_name(request), lambda: http(session, request, **options))

    def block(call: Any, *arguments: Any, **options: Any) -> Any:
        name = bytes(call._method).decode() if isinstance(call._method, bytes) else str(call._method)
        return sent.send(name.rpartition("/")[2], lambda: rpc(call, *arguments, **options))

    def run(session: SshSession, *arguments: Any, **options: Any) -> Any:
        return sent.send("ssh", lambda: ssh(session, *arguments, **options))

    patch.setattr(requests.Session, "send", send)
    patch.setattr(RPC, "_blocking", block)
    patch.setattr(SshSession, "run", run)
    try:
        yield sent
    finally:
        patch.undo()


def _http_name(request: requests.PreparedRequest) -> str:
    """Return the method and the object of a request: `POST runs/r1/run.json`."""
    body = request.body if isinstance(request.body, bytes) else b""
    named = re.search(rb'"name": ?"([^"]+)"', body[:2000])
    path = unquote((request.url or "").partition("?")[0])
    return f"{request.method} {named[1].decode() if named else path.rpartition('/o/')[2]}"
