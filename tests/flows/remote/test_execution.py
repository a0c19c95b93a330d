"""A command on workers that are played here: its output, its ends, the worst one, and how it is ended."""

from __future__ import annotations

import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, cast

import pytest

from tests.flows.nodes.memory_provider import node
from tpuctl.errors import DeadlineError, HostError, InterruptedByUser
from tpuctl.flows.remote import execution
from tpuctl.flows.remote import execution as flow
from tpuctl.flows.remote.execution import GRACE, Ended, Event, Execution, Output, Results, run_command
from tpuctl.flows.remote.targets import Hosts
from tpuctl.nodes import Node

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import Ssh


class PlayedProcess:
    """A command that writes its output, then ends by itself or by what comes on stdin."""

    def __init__(
        self,
        out: Sequence[bytes] = (),
        err: Sequence[bytes] = (),
        code: int | HostError = 0,
        ends_on: str | None = "",
    ) -> None:
        """`ends_on` is the signal that ends it; empty for none needed, None for one that nothing ends."""
        self._out, self._err, self._code = list(out), list(err), code
        self._ends_on = ends_on
        self._ended = threading.Event()
        self.got: list[str] = []
        """The lines on stdin."""
        self.is_input_ended = self.is_closed = False
        self.argv: Sequence[str] = ()

    def read(self) -> bytes:
        if self._out:
            return self._out.pop(0)
        if self._ends_on != "":
            self._ended.wait()
        return b""

    def read_errors(self) -> bytes:
        return self._err.pop(0) if self._err else b""

    def write(self, data: bytes) -> None:
        self.got.append(data.decode())
        if self.got[-1] == f"{self._ends_on}\n":
            self._ended.set()

    def end_input(self) -> None:
        self.is_input_ended = True
        self._ended.set()

    def exit_code(self) -> int:
        if isinstance(self._code, HostError):
            raise self._code
        return self._code

    def close(self) -> None:
        self.is_closed = True
        self._ended.set()


class PlayedSession:
    """A connection that starts one played command; `meanwhile` is called within."""

    def __init__(self, process: PlayedProcess, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._process = process
        self._meanwhile = meanwhile
        self.is_started = False

    def start(self, argv: Sequence[str]) -> PlayedProcess:
        self.is_started = True
        self._process.argv = argv
        self._meanwhile()
        return self._process


@contextmanager
def session_of(process: PlayedProcess) -> Iterator[PlayedSession]:
    """Open the connection to a played command."""
    yield PlayedSession(process)


if TYPE_CHECKING:
    from tpuctl.cloud.ssh import SshSession

    Session = AbstractContextManager[SshSession]


def execution_of(processes: Mapping[int, PlayedProcess], words: Sequence[str] = ("true",)) -> Execution:
    """Return the execution of a command that is played on each worker."""
    return Execution(lambda worker: cast("Session", session_of(processes[worker])), list(processes), words)


def events_of(processes: Mapping[int, PlayedProcess]) -> list[Event]:
    with execution_of(processes) as execution:
        events = list(execution.events())
        assert execution.running == set()
    return events


def grace(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """Give a command no time between signals, but for those that are named."""
    monkeypatch.setattr(flow, "GRACE", tuple((name, seconds.get(name, 0.0)) for name, _ in GRACE))


def test_a_bug_in_a_workers_thread_ends_the_command_with_it() -> None:
    """Nobody waits for the worker's end, which nothing says."""

    def connect(worker: int) -> AbstractContextManager[SshSession]:
        raise RuntimeError(f"a bug at worker {worker}")

    with (
        pytest.raises(RuntimeError, match="a bug at worker 1"),
        Execution(connect, [1], ["true"]) as execution,
    ):
        list(execution.events())


def test_every_piece_of_output_comes_before_the_end_of_its_worker() -> None:
    processes = {
        0: PlayedProcess([b"a", b"b"], [b"c"], 0), 1: PlayedProcess([], [b"d", b"e"], 3), 2: PlayedProcess()
    }  # fmt: skip
    events = events_of(processes)
    for worker, out, err, code in ((0, b"ab", b"c", 0), (1, b"", b"de", 3), (2, b"", b"", 0)):
        *outputs, end = (event for event in events if event.worker == worker)
        assert end == Ended(worker, code)
        pieces = [item for item in outputs if isinstance(item, Output)]
        assert b"".join(item.data for item in pieces if item.stream == "stdout") == out
        assert b"".join(item.data for item in pieces if item.stream == "stderr") == err
    assert not any(process.got for process in processes.values()), "nothing is to be ended"


def test_what_ends_a_workers_command_too_soon_is_its_end() -> None:
    lost = HostError("worker 0 is lost.")
    assert events_of({0: PlayedProcess(code=lost)}) == [Ended(0, error=lost)]


def test_output_that_breaks_off_leaves_the_end_to_the_exit_code() -> None:
    class Broken(PlayedProcess):
        def read(self) -> bytes:
            raise HostError("the connection is lost")

    assert events_of({0: Broken(code=7)}) == [Ended(0, 7)]


class TestTheCommand:
    def run(self, *words: str) -> tuple[int, bytes]:
        """Run what a host gets, as its SSH server would, and return the exit code and the output."""
        process = PlayedProcess()
        with execution_of({0: process}, words) as execution:
            list(execution.events())
        shell = subprocess.Popen(
            ["sh", "-c", shlex.join(process.argv)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}, start_new_session=True,
        )  # fmt: skip
        assert shell.stdin
        assert shell.stdout
        with shell, shell.stdin:  # open until the end: its end would end the command
            output = shell.stdout.read()
            return shell.wait(), output

    def test_of_one_word_is_a_line_for_the_login_shell(self) -> None:
        assert self.run("echo $0; exit 3") == (3, b"/bin/sh\n")

    def test_of_several_words_is_exact(self) -> None:
        assert self.run("echo", "$0; exit 3", "a  b") == (0, b"$0; exit 3 a  b\n")

    def test_has_no_input(self) -> None:
        assert self.run("cat", "-") == (0, b"")


class TestTheEnd:
    @pytest.mark.parametrize(
        ("signal", "sent"),
        [("INT", ["INT\n"]), ("TERM", ["INT\n", "TERM\n"]), ("KILL", ["INT\n", "TERM\n", "KILL\n"])],
    )
    def test_is_asked_for_until_it_comes(
        self, monkeypatch: pytest.MonkeyPatch, signal: str, sent: list[str]
    ) -> None:
        grace(monkeypatch, **{signal: 600.0})
        process = PlayedProcess([b"a"], ends_on=signal)
        with execution_of({0: process}) as execution:
            assert next(execution.events()) == Output(0, "stdout", b"a")
        assert (process.got, execution.running, process.is_closed) == (sent, set(), True)

    def test_is_asked_of_those_alone_that_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        grace(monkeypatch, INT=600.0)
        processes = {0: PlayedProcess(code=1), 1: PlayedProcess([b"a"], ends_on="INT")}
        with execution_of(processes) as execution:
            events = execution.events()
            assert {next(events), next(events)} == {Ended(0, 1), Output(1, "stdout", b"a")}
        assert (processes[0].got, processes[1].got) == ([], ["INT\n"])

    def test_that_does_not_come_leaves_the_worker_among_the_running(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        grace(monkeypatch)
        process = PlayedProcess([b"a"], ends_on=None)
        with execution_of({0: process}) as execution:
            next(execution.events())
        assert (process.got, execution.running) == (["INT\n", "TERM\n", "KILL\n"], {0})
        assert process.is_closed

    def test_is_not_waited_for_where_the_host_is_lost(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Lost(PlayedProcess):
            def write(self, data: bytes) -> None:
                super().write(data)
                raise HostError("the connection is lost")

        grace(monkeypatch)
        process = Lost([b"a"], ends_on=None)
        with execution_of({0: process}) as execution:
            next(execution.events())
        assert process.got == ["INT\n", "TERM\n", "KILL\n"]

    def test_before_the_connection_is_there_starts_nothing(self) -> None:
        may_connect, has_left = threading.Event(), threading.Event()
        session = PlayedSession(PlayedProcess())

        @contextmanager
        def connect(worker: int) -> Iterator[PlayedSession]:
            may_connect.wait()
            try:
                yield session
            finally:
                has_left.set()

        with Execution(lambda worker: cast("Session", connect(worker)), [0], ["true"]) as execution:
            pass
        may_connect.set()
        assert has_left.wait(60)
        assert (session.is_started, execution.running) == (False, set())

    def test_while_the_command_is_being_started_ends_its_input(self) -> None:
        is_starting, may_start, has_left = threading.Event(), threading.Event(), threading.Event()
        process = PlayedProcess(ends_on=None)

        @contextmanager
        def connect(worker: int) -> Iterator[PlayedSession]:
            yield PlayedSession(process, lambda: (is_starting.set(), may_start.wait()))
            has_left.set()

        with Execution(lambda worker: cast("Session", connect(worker)), [0], ["true"]):
            assert is_starting.wait(60)
        may_start.set()
        assert has_left.wait(60)
        assert process.is_input_ended

    def test_leaves_no_thread_with_output_that_nobody_takes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(flow, "QUEUED", 1)
        monkeypatch.setattr(flow, "CHECK_INTERVAL", 0.001)
        grace(monkeypatch)
        before = set(threading.enumerate())
        with execution_of({0: PlayedProcess([b"a"] * 9, [b"b"] * 9, ends_on=None)}) as execution:
            next(execution.events())
        for thread in set(threading.enumerate()) - before:
            thread.join(20)
            assert not thread.is_alive(), thread


class Time:
    """The time that an execution reads."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_the_deadline_ends_the_events_and_not_a_moment_before(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time()
    moments = iter([8.0, 9.5, 9.999, 10.0])

    def check() -> None:
        time.now = next(moments)

    grace(monkeypatch)
    monkeypatch.setattr(flow, "time", time)
    monkeypatch.setattr(flow, "CHECK_INTERVAL", 0.0)
    with execution_of({0: PlayedProcess(ends_on=None)}) as execution:
        assert list(execution.events(10.0, check)) == []
        assert list(moments) == []
        assert execution.running == {0}


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
