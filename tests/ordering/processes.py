"""A pytest plugin: `--processes N` runs the tests in N forks of the process that has collected them.

pytest-xdist collects in each of its processes, which takes as long as a thousand tests. Here each fork gets a
file of tests at a time, or a case of a test with the marker `spread`, and sends its reports; the hooks of the
first process get them as if it had run them.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait

import pytest

from tests.ordering.file_order import file_of, seconds_of

FORK = multiprocessing.get_context("fork")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--processes", type=int, default=1, metavar="N", help="run the tests in N processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in several processes, if there are to be several."""
    number = session.config.getoption("processes")
    if number < 2 or session.config.option.collectonly or session.testsfailed:
        return None
    assert threading.active_count() == 1, f"a fork would miss threads: {threading.enumerate()}"
    Pool(session).run(number)
    return True


class Worker:
    """A process, and the tests that it has got and not finished, by their positions in the session."""

    def __init__(self, session: pytest.Session, others: Iterable[Connection]) -> None:
        self.pending: deque[int] = deque()
        self.connection, end = FORK.Pipe()
        self.process = FORK.Process(target=_serve, args=(session, end, [self.connection, *others]))
        self.process.start()
        end.close()

    def give(self, tests: Sequence[int]) -> None:
        """Have the tests of a file run; if the process has ended, its end of the connection says so."""
        self.pending.extend(tests)
        with suppress(OSError):
            self.connection.send(tests)

    def end(self) -> None:
        """End the process; one that runs a test is interrupted, and cleans up."""
        if self.pending:
            with suppress(ProcessLookupError):
                os.kill(self.process.ident or 0, signal.SIGINT)
        self.connection.close()
        self.process.join()


class Pool:
    """The processes of a run, and the files that none of them has got yet."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        files: dict[str, list[int]] = {}
        seconds: Counter[str] = Counter()
        for position, item in enumerate(session.items):
            file = item.nodeid if item.get_closest_marker("spread") else file_of(item)
            files.setdefault(file, []).append(position)
            seconds[file] += seconds_of(item)
        self._files = deque(files[file] for file, _ in seconds.most_common())
        """Those that take longest come first, so that no process waits for another at the end."""
        self._workers: dict[Connection, Worker] = {}

    def run(self, number: int) -> None:
        """Run every test in that many processes; raises what stops a run, as `-x` does."""
        try:
            for _ in range(min(number, len(self._files))):
                self._start()
            while self._workers:
                for connection in wait(list(self._workers)):
                    self._receive(self._workers[connection])
        finally:
            for worker in self._workers.values():
                worker.end()

    def _start(self) -> None:
        worker = Worker(self._session, self._workers)
        self._workers[worker.connection] = worker
        worker.give(self._files.popleft())

    def _receive(self, worker: Worker) -> None:
        """Take a report, or None for the end of a test."""
        config = self._session.config
        try:
            data = worker.connection.recv()
        except (EOFError, OSError):  # OSError: it has not read what it was given
            self._replace(worker)
            return
        if data is not None:
            report = config.hook.pytest_report_from_serializable(config=config, data=data)
            config.hook.pytest_runtest_logreport(report=report)
            return
        self._finish_test(worker)
        if worker.pending:
            return
        if self._files:
            worker.give(self._files.popleft())
        else:
            del self._workers[worker.connection]
            worker.end()

    def _finish_test(self, worker: Worker) -> None:
        item = self._session.items[worker.pending.popleft()]
        item.config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _replace(self, worker: Worker) -> None:
        """Report the test in which a process ended, and have another one run the rest of the file."""
        del self._workers[worker.connection]
        worker.process.join()
        item = self._session.items[worker.pending[0]]
        problem = f"the process that ran it ended with {worker.process.exitcode}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", problem, "call")
        item.config.hook.pytest_runtest_logreport(report=report)
        self._finish_test(worker)
        if worker.pending:
            self._files.appendleft([*worker.pending])
        if self._files:
            self._start()


class Sender:
    """A plugin that sends the reports of a process."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report."""
        hook = self._config.hook
        self._connection.send(hook.pytest_report_to_serializable(config=self._config, report=report))


def _serve(session: pytest.Session, connection: Connection, inherited: Iterable[Connection]) -> None:
    """Run the files of tests that are received; a fixture lives no longer than the tests of its file."""
    for other in inherited:  # else the end of the process that has them would not be seen
        other.close()
    config = session.config
    config.workerinput = {}  # as in a process of pytest-xdist: pytest writes no cache and no report here
    config.pluginmanager.unregister(name="terminalreporter")
    silent = pytest.TerminalReporter(config, open(os.devnull, "w"))  # noqa: SIM115  as long as the process
    silent.pytest_sessionstart(session)
    config.pluginmanager.register(silent, "terminalreporter")  # to which a timeout writes the stacks
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # into a file that all forks would share
    capture.start_global_capturing()
    config.pluginmanager.register(Sender(config, connection))
    try:
        while True:
            _run(session, connection.recv(), connection)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    finally:
        config.hook.pytest_sessionfinish(session=session, exitstatus=int(session.testsfailed > 0))


def _run(session: pytest.Session, tests: Sequence[int], connection: Connection) -> None:
    """Run the tests of a file; what is left of earlier ones is not searched for garbage again."""
    gc.collect()
    gc.freeze()
    items = [session.items[position] for position in tests]
    for item, following in zip(items, [*items[1:], None], strict=True):
        if connection.poll():  # the other end is closed
            raise EOFError
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        connection.send(None)
