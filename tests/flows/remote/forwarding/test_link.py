"""The connection that forwarded ports share: who waits for it, and what ends the waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from tpuctl.flows.remote import forwarding as flow
from tpuctl.flows.remote.forwarding import Link

ORIGIN = ("127.0.0.1", 1)


class LinkPorts:
    """A connection whose streams are what was asked for."""

    def open(self, port: int, origin: tuple[str, int]) -> tuple[int, tuple[str, int]]:
        return port, origin


class Condition(threading.Condition):
    """A condition that says when somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.is_awaited = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.is_awaited.set()
        return super().wait(timeout)


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    """A link that says when somebody waits, and whose clients are patient for longer than a test is."""
    monkeypatch.setattr(flow, "PATIENCE", 50.0)
    link = Link()
    link._changed = Condition()
    return link


def is_awaited(link: Link) -> threading.Event:
    return cast("Condition", link._changed).is_awaited


def opened(link: Link, change: Callable[[], None]) -> Any:
    """Return what a client gets that waits while something changes."""
    results: list[Any] = []

    def client() -> None:
        try:
            results.append(link.open(80, ORIGIN))
        except ConnectionError as error:
            results.append(str(error))

    thread = threading.Thread(target=client, daemon=True)
    thread.start()
    assert is_awaited(link).wait(30)
    change()
    thread.join(30)
    return results.pop() if results else "still waiting"


def test_a_client_gets_a_stream_of_the_present_connection(link: Link) -> None:
    link.attach(cast("Any", LinkPorts()))
    assert link.open(80, ORIGIN) == (80, ORIGIN)
    assert not is_awaited(link).is_set()


def test_a_client_that_waits_gets_the_next_connection(link: Link) -> None:
    assert opened(link, lambda: link.attach(cast("Any", LinkPorts()))) == (80, ORIGIN)


def test_a_client_waits_where_the_connection_is_lost_and_the_end_lets_it_go(link: Link) -> None:
    link.attach(cast("Any", LinkPorts()))
    link.attach(None)
    assert opened(link, link.close) == "there is no connection to the host"


def test_after_the_end_nobody_waits(link: Link) -> None:
    link.attach(cast("Any", LinkPorts()))
    link.close()
    with pytest.raises(ConnectionError, match=r"^there is no connection to the host$"):
        link.open(80, ORIGIN)
    assert not is_awaited(link).is_set()
