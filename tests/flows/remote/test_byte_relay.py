"""Bytes between OpenSSH and a host: all of them, in order, and an end on each side."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from tpuctl.flows.remote import copy
from tpuctl.flows.remote.copy import relay


class Ends:
    """What `relay` connects: our ends of its stream, its source and its sink."""

    def __init__(self) -> None:
        self.host, self.stream = socket.socketpair()
        self.source, self.to_source = os.pipe()
        self.from_sink, self.sink = os.pipe()
        self._thread = threading.Thread(target=self._relay, daemon=True)
        self._thread.start()

    def _relay(self) -> None:
        relay(self.stream, self.source, self.sink)
        os.close(self.sink)

    def join(self) -> None:
        """Wait for the end of the relay."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        self.host.close()

    def read_sink(self) -> bytes:
        """Return all that arrives at the sink."""
        with os.fdopen(self.from_sink, "rb") as sink:
            return sink.read()


@pytest.fixture
def ends() -> Ends:
    return Ends()


def test_a_megabyte_goes_each_way_and_back_unchanged(ends: Ends) -> None:
    content = os.urandom(1 << 20)

    def echo() -> None:
        while data := ends.host.recv(1 << 14):
            ends.host.sendall(data)
        ends.host.close()

    def feed() -> None:
        with os.fdopen(ends.to_source, "wb") as source:
            source.write(content)

    threads = [threading.Thread(target=work, daemon=True) for work in (echo, feed)]
    for thread in threads:
        thread.start()
    assert ends.read_sink() == content
    for thread in threads:
        thread.join()
    ends.join()


def test_the_relay_ends_with_the_host_although_the_source_is_open(ends: Ends) -> None:
    ends.host.sendall(b"bye")
    ends.host.close()
    assert ends.read_sink() == b"bye"
    ends.join()
    os.close(ends.to_source)


def test_the_relay_ends_with_the_reader_of_the_sink(ends: Ends) -> None:
    os.close(ends.from_sink)
    ends.host.sendall(b"x")
    assert ends.host.recv(1) == b""
    ends.join()
    os.close(ends.to_source)


def test_a_host_that_says_nothing_after_the_end_of_the_source_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copy, "PATIENCE", 0.05)
    ends = Ends()
    os.close(ends.to_source)
    assert ends.host.recv(1) == b""
    ends.join()
    assert ends.read_sink() == b""


def test_a_source_that_pauses_for_longer_than_the_patience_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "PATIENCE", 0.01)
    ends = Ends()
    for byte in (b"a", b"b"):
        os.write(ends.to_source, byte)
        assert ends.host.recv(1) == byte
        threading.Event().wait(0.05)  # several times the patience
    os.close(ends.to_source)
    ends.host.close()
    ends.join()
