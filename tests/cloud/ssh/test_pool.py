"""Connections of one command: opened at their first use, kept, opened again when lost, and all closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tpuctl.cloud.ssh import Pool
from tpuctl.cloud.ssh.session import WIDTH
from tpuctl.errors import HostError


class Session:
    """A connection that may be lost."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.is_open = True


class Hosts:
    """Workers that can be connected to; those in `down` cannot."""

    def __init__(self, *down: int) -> None:
        self.down = set(down)
        self.opened: list[int] = []
        self.closed: list[int] = []
        self.pool = Pool(self.connect)  # type: ignore[arg-type]  # no real connections

    @contextmanager
    def connect(self, worker: int) -> Iterator[Session]:
        if worker in self.down:
            raise HostError(f"worker {worker}: it is down.")
        self.opened.append(worker)
        try:
            yield Session(worker)
        finally:
            self.closed.append(worker)


def test_a_connection_is_opened_once_for_all_rounds_and_closed_at_the_end() -> None:
    hosts = Hosts()
    with hosts.pool as pool:
        for _ in range(3):
            results = pool.run_all(lambda session, worker: (session.worker, worker), range(4))  # type: ignore[attr-defined]
        assert [result.value for result in results] == [(0, 0), (1, 1), (2, 2), (3, 3)]
        assert sorted(hosts.opened) == [0, 1, 2, 3]
        assert hosts.closed == []
    assert sorted(hosts.closed) == [0, 1, 2, 3]


def test_of_very_many_workers_few_connections_are_open_at_once() -> None:
    hosts, most = Hosts(), 0

    def work(session: object, worker: int) -> None:
        nonlocal most
        most = max(most, len(hosts.opened) - len(hosts.closed))

    with hosts.pool as pool:
        for _ in range(2):
            pool.run_all(work, range(4 * WIDTH))
        assert 0 < most <= WIDTH
        assert len(hosts.opened) == len(hosts.closed) == 8 * WIDTH


def test_connections_are_opened_side_by_side() -> None:
    hosts, together = Hosts(), threading.Barrier(8, timeout=60)
    with hosts.pool as pool:
        pool.run_all(lambda session, worker: together.wait(), range(8))


def test_a_worker_that_fails_is_named_and_changes_nothing_for_the_others() -> None:
    hosts = Hosts(1)
    with hosts.pool as pool:
        results = pool.run_all(lambda session, worker: worker, range(3))
    assert [(result.item, result.value) for result in results] == [(0, 0), (1, None), (2, 2)]
    assert str(results[1].error) == "worker 1: it is down."
    assert sorted(hosts.closed) == [0, 2]


def test_a_lost_connection_is_opened_again() -> None:
    hosts = Hosts()
    with hosts.pool as pool:
        session = pool.session(0)
        assert pool.session(0) is session
        session.is_open = False  # type: ignore[misc]  # a double's
        assert pool.session(0) is not session
    assert (hosts.opened, hosts.closed) == ([0, 0], [0, 0])


def test_ctrl_c_closes_every_connection() -> None:
    hosts = Hosts()

    def interrupted(session: object, worker: int) -> None:
        if worker == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), hosts.pool as pool:
        pool.run_all(interrupted, [0, 1])
    assert sorted(hosts.closed) == sorted(hosts.opened) == [0, 1]


def test_a_connection_that_is_opened_after_the_end_is_closed_at_once() -> None:
    """As one that a thread was opening when Ctrl-C ended the command."""
    hosts = Hosts()
    with hosts.pool as pool:
        pass
    with pytest.raises(HostError, match="the command ended before it was reached"):
        pool.session(0)
    assert hosts.closed == [0]
