"""A user's command on workers: which end is the worst one, and what a command that is ended says."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

import pytest

from tests.flows.nodes.memory_provider import node
from tests.flows.remote.played_process import PlayedProcess, PlayedSession, session_of
from tpuctl.errors import DeadlineError, HostError, InterruptedByUser
from tpuctl.flows.remote import execution
from tpuctl.flows.remote.execution import GRACE, Ended, Output, Results, run_command
from tpuctl.flows.remote.targets import Hosts
from tpuctl.nodes import Node

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh


class PlayedSsh:
    """Connections to commands that are played, by worker."""

    def __init__(self, processes: Mapping[int, PlayedProcess]) -> None:
        self._processes = processes
        self.keys: dict[int, str] = {}

    def connect(self, to: Node, worker: int, host_key: str) -> AbstractContextManager[PlayedSession]:
        self.keys[worker] = host_key
        return session_of(self._processes[worker])


def hosts_of(processes: Mapping[int, PlayedProcess]) -> Hosts:
    return Hosts(node(), tuple(processes), {worker: f"key {worker}" for worker in processes})


def results_of(processes: Mapping[int, PlayedProcess], timeout: float | None = None) -> Results:
    ssh = PlayedSsh(processes)
    results = run_command(cast("Ssh", ssh), hosts_of(processes), ["true"], lambda _: None, timeout)
    assert ssh.keys == {worker: f"key {worker}" for worker in processes}
    return results


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that ignores signals is given up at once."""
    monkeypatch.setattr(execution, "GRACE", tuple((name, 0.0) for name, _ in GRACE))


def test_the_ends_are_in_the_order_of_the_workers_and_the_output_is_handed_on() -> None:
    processes = {0: PlayedProcess([b"a"], code=0), 1: PlayedProcess(code=2), 3: PlayedProcess(code=1)}
    outputs: list[Output] = []
    results = run_command(
        cast("Ssh", PlayedSsh(processes)), hosts_of(processes), ["true"], outputs.append, None
    )
    assert results == Results("n1", [Ended(0, 0), Ended(1, 2), Ended(3, 1)])
    assert outputs == [Output(0, "stdout", b"a")]
    assert (results.failed, results.worst, results.error()) == ([1, 3], Ended(1, 2), None)


def test_a_lost_host_is_worse_than_any_exit_code() -> None:
    lost = HostError("worker 1 is lost.", hint="Try it again.")
    results = results_of({0: PlayedProcess(code=255), 1: PlayedProcess(code=lost), 2: PlayedProcess()})
    assert (results.failed, results.worst.worker, results.error()) == ([0, 1], 1, lost)
    assert (lost.hint, lost.facts["workers"]) == ("Try it again.", [1])


def test_several_lost_hosts_are_counted_in_the_hint() -> None:
    lost = [HostError(f"worker {worker} is lost.", hint="Try it again.") for worker in range(3)]
    results = results_of(
        {worker: PlayedProcess(code=lost[worker]) for worker in range(3)} | {3: PlayedProcess()}
    )
    error = results.error()
    assert error is lost[0]
    assert error.hint == "3 of 4 workers failed so: 0-2. Try it again."
    assert error.facts["workers"] == [0, 1, 2]


def test_a_command_that_all_ran_to_the_end_has_no_failure() -> None:
    results = results_of({0: PlayedProcess()}, timeout=600.0)
    assert (results.failed, results.worst, results.error()) == ([], Ended(0, 0), None)


def interrupt(_: Output) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_ends_it_on_the_hosts() -> None:
    processes = {0: PlayedProcess([b"a"], ends_on="INT")}
    with pytest.raises(InterruptedByUser) as caught:
        run_command(cast("Ssh", PlayedSsh(processes)), hosts_of(processes), ["true"], interrupt, None)
    assert caught.value.message == "Interrupted: it was ended on the hosts."
    assert caught.value.hint == ""
    assert processes[0].got == ["INT\n"]


@pytest.mark.usefixtures("no_grace")
def test_ctrl_c_names_the_workers_where_it_may_run_on() -> None:
    processes = {0: PlayedProcess([b"a"], ends_on=None)}
    with pytest.raises(InterruptedByUser) as caught:
        run_command(cast("Ssh", PlayedSsh(processes)), hosts_of(processes), ["true"], interrupt, None)
    assert caught.value.message == "Interrupted: worker 0 did not confirm that it ended there."
    assert caught.value.hint == "The hosts may hang; the command ends with its connection."


def test_a_command_that_is_late_is_ended() -> None:
    processes = {0: PlayedProcess(ends_on="INT"), 1: PlayedProcess(ends_on="INT")}
    with pytest.raises(DeadlineError) as caught:
        results_of(processes, timeout=1e-9)
    assert caught.value.message == (
        "The command did not end in time on workers 0-1 of 'n1': it was ended on the hosts."
    )
    assert caught.value.hint == "Give it longer: --timeout"
    assert caught.value.facts["workers"] == [0, 1]
