"""A command on workers, where something ends that should not."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest

from tpuctl.flows.remote.execution import Execution

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import SshSession


def test_a_bug_in_a_workers_thread_ends_the_command_with_it() -> None:
    """Nobody waits for the worker's end, which nothing says."""

    def connect(worker: int) -> AbstractContextManager[SshSession]:
        raise RuntimeError(f"a bug at worker {worker}")

    with (
        pytest.raises(RuntimeError, match="a bug at worker 1"),
        Execution(connect, [1], ["true"]) as execution,
    ):
        list(execution.events())
