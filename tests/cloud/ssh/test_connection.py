"""fabric's connections, which are copies of one."""

from __future__ import annotations

import io
import threading

import fabric
import pytest

from tpuctl.cloud.ssh import SshSession, session


def test_threads_share_no_configuration_that_fabric_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It merges it anew for each connection that it makes: another thread would find it half empty."""
    configurations, both = [], threading.Barrier(2)
    make = fabric.Connection.__init__

    def init(self: fabric.Connection, *arguments: object, config: fabric.Config) -> None:
        configurations.append(id(config))
        both.wait(60)
        make(self, *arguments, config=config)

    monkeypatch.setattr(fabric.Connection, "__init__", init)
    session._pattern.cache_clear()
    threads = [threading.Thread(target=session._pattern, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(configurations)) == 2


def test_fabric_runs_commands_and_copies_files_over_a_copy(session: SshSession) -> None:
    copy = session._connection
    copy.put(io.BytesIO(b"data"), "fabric.txt")
    result = copy.run("cat fabric.txt; rm fabric.txt", hide=True, in_stream=False)
    assert (result.stdout, copy.is_connected) == ("data", True)
