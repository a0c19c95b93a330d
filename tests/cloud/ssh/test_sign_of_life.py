"""A sign of life is any answer; a server that gives none in time loses its connection."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import paramiko
import pytest

from tpuctl.cloud.ssh import process


class Transport:
    """The near end of a connection whose server answers, or is waited for until the connection is closed."""

    def __init__(self, error: Exception | None = None, *, is_silent: bool = False) -> None:
        self.closed, self.asked = threading.Event(), list[str]()
        self._error, self._is_silent = error, is_silent

    def global_request(self, kind: str, *, wait: bool) -> None:
        assert wait
        self.asked.append(kind)
        if self._is_silent:
            assert self.closed.wait(60)
        if self._error:
            raise self._error

    def close(self) -> None:
        self.closed.set()


def is_silent(transport: Transport, seconds: float) -> bool:
    return process.is_silent(cast("Any", transport), seconds)


def test_a_server_that_answers_keeps_its_connection() -> None:
    transport = Transport()
    assert not is_silent(transport, 600)
    assert (transport.asked, transport.closed.is_set()) == (["keepalive@openssh.com"], False)


@pytest.mark.parametrize("error", [paramiko.SSHException("x"), EOFError(), OSError()])
def test_a_connection_that_is_lost_is_not_silent(error: Exception) -> None:
    assert not is_silent(Transport(error), 600)


@pytest.mark.parametrize("error", [None, EOFError()])
def test_a_server_without_an_answer_in_time_loses_its_connection(error: Exception | None) -> None:
    transport = Transport(error, is_silent=True)
    assert is_silent(transport, 0.01)
    assert transport.closed.is_set()


def test_the_wait_for_an_answer_keeps_no_program_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = list[threading.Timer]()

    class Noted(threading.Timer):
        def start(self) -> None:
            timers.append(self)
            super().start()

    own = SimpleNamespace(Event=threading.Event, Timer=Noted)
    monkeypatch.setattr(process, "threading", own)
    assert not is_silent(Transport(), 600)
    (timer,) = timers
    assert timer.daemon
    timer.join(60)
    assert not timer.is_alive(), "an answer ends it"
