"""Runs one command on many workers at once: output that comes or is kept, an end that reaches them.

- Runs a user's command on workers to its end, and says which worker had the worst one.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from tpuctl import polling
from tpuctl.errors import DeadlineError, HostError, InterruptedByUser, StateError, TpuctlError
from tpuctl.flows.remote.targets import Hosts
from tpuctl.local.private_folder import FILE_MODE, make_missing_folders
from tpuctl.printable import named, ranges

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import RemoteProcess, Ssh, SshSession


MOST_KEPT = 1 << 18
"""Bytes of each stream of a worker that are kept in memory: its end."""
ENDINGS: dict[Stream, str] = {"stdout": "out", "stderr": "err"}


class OutputFiles:
    """Files `worker-3.out` and `worker-3.err` in a folder, which only this user can read.

    Files of an earlier command are replaced. Raises StateError when they cannot be written.
    """

    def __init__(self, folder: Path, workers: Sequence[int]) -> None:
        self._folder = folder
        self._workers = workers
        self._files: dict[tuple[int, Stream], BinaryIO] = {}
        self._stack = ExitStack()

    def __enter__(self) -> OutputFiles:
        try:
            make_missing_folders(self._folder)
            for worker in self._workers:
                for stream in ENDINGS:
                    path = self.path(worker, stream)
                    path.unlink(missing_ok=True)  # a link, too
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                    file = os.fdopen(os.open(path, flags, FILE_MODE), "wb", buffering=0)
                    self._files[worker, stream] = self._stack.enter_context(file)
        except OSError as error:
            self._stack.close()
            raise self._refusal(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def path(self, worker: int, stream: Stream) -> Path:
        """Return the path of a file."""
        return self._folder / f"worker-{worker}.{ENDINGS[stream]}"

    def take(self, output: Output) -> None:
        """Write a piece of output."""
        view = memoryview(output.data)
        try:
            while view:
                view = view[self._files[output.worker, output.stream].write(view) :]
        except OSError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: OSError) -> StateError:
        return StateError(
            f"The output cannot be written to {error.filename or self._folder}: {error.strerror}.",
            hint="Choose another --output-dir; the command was ended on the hosts if it had begun.",
        )


@dataclass
class Kept:
    """The end of a stream, and how many bytes before it were dropped."""

    data: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self.data += data
        if len(self.data) > 2 * MOST_KEPT:
            self._cut()

    def _cut(self) -> None:
        surplus = max(len(self.data) - MOST_KEPT, 0)
        self.dropped += surplus
        del self.data[:surplus]

    def text(self) -> str:
        """Return the end of the stream; bytes that are no UTF-8 are replaced."""
        self._cut()
        return self.data.decode(errors="replace")


class OutputEnds:
    """The end of each stream of each worker, in memory."""

    def __init__(self) -> None:
        self._streams: dict[tuple[int, Stream], Kept] = defaultdict(Kept)

    def take(self, output: Output) -> None:
        """Add a piece of output."""
        self._streams[output.worker, output.stream].add(output.data)

    def stream(self, worker: int, stream: Stream) -> Kept:
        """Return what is kept of a stream."""
        return self._streams[worker, stream]


@dataclass(frozen=True)
class Results:
    """How the command ended on each worker."""

    node: str
    ends: Sequence[Ended]
    """In the order of the workers."""

    @property
    def failed(self) -> list[int]:
        """The workers with an error or an exit code other than 0."""
        return [end.worker for end in self.ends if end.error or end.exit_code]

    @property
    def worst(self) -> Ended:
        """The end that decides the exit code: a lost host before the highest exit code."""
        return max(self.ends, key=lambda end: (end.error is not None, end.exit_code or 0))

    def error(self) -> TpuctlError | None:
        """Return the error of a worker that could not run the command to its end, or None."""
        error = self.worst.error
        lost = [end.worker for end in self.ends if end.error]
        if error and len(lost) > 1:
            error.hint = f"{len(lost)} of {len(self.ends)} workers failed so: {ranges(lost)}. {error.hint}"
        if error:
            error.facts["workers"] = lost
        return error


def run_command(
    ssh: Ssh, hosts: Hosts, words: Sequence[str], take: Callable[[Output], None], timeout: float | None
) -> Results:
    """Run a command on every worker at once; `take` gets the output, a piece at a time.

    Raises InterruptedByUser for Ctrl-C and DeadlineError after `timeout` seconds, both after the command was
    ended on the hosts.
    """
    ends: dict[int, Ended] = {}
    node = hosts.node
    execution = Execution(
        lambda worker: ssh.connect(node, worker, hosts.host_key(worker)), hosts.workers, words
    )
    late: list[int] = []
    try:
        with execution:
            for event in execution.events(time.monotonic() + (timeout or inf), polling.check):
                if isinstance(event, Ended):
                    ends[event.worker] = event
                else:
                    take(event)
            late = sorted(execution.running)
    except KeyboardInterrupt:
        raise InterruptedByUser(f"Interrupted: {_ended(execution.running)}", hint=_hint(execution)) from None
    if late:
        raise DeadlineError(
            f"The command did not end in time on {named(late)} of '{node.name}': {_ended(execution.running)}",
            hint=_hint(execution) or "Give it longer: --timeout",
            workers=late,
        )
    return Results(node.name, [ends[worker] for worker in hosts.workers])


def _ended(running: set[int]) -> str:
    if not running:
        return "it was ended on the hosts."
    return f"{named(running)} did not confirm that it ended there."


def _hint(execution: Execution) -> str:
    return "The hosts may hang; the command ends with its connection." if execution.running else ""


Stream = Literal["stdout", "stderr"]

WRAPPER = """
exec 3<&0 </dev/null
{
  trap '' HUP INT TERM
  while read -r signal; do kill -s "$signal" -- "-$$"; done
  kill -s TERM -- "-$$"
  sleep 3
  kill -s KILL -- "-$$"
} <&3 >/dev/null 2>&1 &
guard=$!
exec 3<&-
"$@"
code=$?
kill -s KILL "$guard"
exit "$code"
"""
"""For sh: runs a command without input; signals named on stdin go to its process group, as does its end.

sshd makes the shell the leader of a group. The end of stdin is that of the connection, or of the laptop.
"""
IN_LOGIN_SHELL = '"${SHELL:-/bin/sh}" -c "$0"'
GRACE = ("INT", 3.0), ("TERM", 3.0), ("KILL", 3.0)
"""What ends a command, and the seconds that each gets."""
CHECK_INTERVAL = 0.5
"""Seconds between looks whether anybody still takes the output, and whether to stop."""
QUEUED = 64
"""Pieces of output that wait to be shown; then the hosts wait."""


@dataclass(frozen=True)
class Output:
    """A piece of a worker's output, which may end within a line."""

    worker: int
    stream: Stream
    data: bytes


@dataclass(frozen=True)
class Ended:
    """The end of the command on a worker: its exit code, 128 and the number after a signal; or an error."""

    worker: int
    exit_code: int | None = None
    error: TpuctlError | None = None


@dataclass(frozen=True)
class _Bug:
    """What ended a worker's thread and should not have."""

    worker: int
    error: Exception


Event = Output | Ended
Connect = Callable[[int], AbstractContextManager["SshSession"]]
"""Opens a connection to a worker; raises HostError."""


def command_argv(words: Sequence[str]) -> list[str]:
    """Return what runs words on a host: a single one is a line for the login shell, several are exact."""
    if len(words) > 1:
        return list(words)
    return ["sh", "-c", IN_LOGIN_SHELL, words[0]]


class Execution:
    """A command that runs on workers from the begin of the block to its end.

    Leaving the block early, as by Ctrl-C, ends the command and what it has started on every host.
    """

    def __init__(self, connect: Connect, workers: Sequence[int], words: Sequence[str]) -> None:
        self._connect = connect
        self._argv = ["exec", "sh", "-c", WRAPPER, "sh", *command_argv(words)]
        self._events: queue.Queue[Event | _Bug] = queue.Queue(QUEUED)
        self._lock = threading.Lock()
        self._processes: dict[int, RemoteProcess] = {}
        self._cancelled = self._closed = False
        self.running = set(workers)
        """The workers whose command has not ended."""

    def __enter__(self) -> Execution:
        for worker in sorted(self.running):
            threading.Thread(target=self._serve, args=[worker], name=f"worker {worker}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(KeyboardInterrupt):  # a second Ctrl-C does not wait
            self.end()
        self._closed = True
        for process in self._processes.values():
            process.close()

    def events(self, deadline: float = inf, check: Callable[[], None] = lambda: None) -> Iterator[Event]:
        """Yield output as it comes, and the end of each worker.

        Ends when every command has ended, or at `deadline`, a time of `time.monotonic`. Raises what a
        worker's thread raised that is no TpuctlError, and what `check` does, which is called meanwhile.
        """
        while self.running:
            check()
            remaining = deadline - time.monotonic()
            try:
                event = self._events.get(timeout=max(0.0, min(remaining, CHECK_INTERVAL)))
            except queue.Empty:
                if remaining <= 0:
                    return
                continue
            if not isinstance(event, Output):
                self.running.discard(event.worker)
            if isinstance(event, _Bug):
                raise event.error
            yield event

    def end(self) -> None:
        """End what still runs: an interrupt first, then harder; what does not end stays in `running`."""
        for signal, seconds in GRACE:
            if self.running:
                self._signal(signal)
                for _ in self.events(time.monotonic() + seconds):
                    pass  # output after the end was requested is not shown

    def _signal(self, name: str) -> None:
        with self._lock:
            self._cancelled = True
            self.running &= self._processes.keys()  # on the others nothing is started any more
            running = [self._processes[worker] for worker in self.running]
        for process in running:
            with suppress(HostError):
                process.write(f"{name}\n".encode())

    def _serve(self, worker: int) -> None:
        try:
            with self._connect(worker) as session:
                process = self._start(worker, session)
                errors = threading.Thread(
                    target=self._copy, args=[worker, "stderr", process.read_errors], daemon=True
                )
                errors.start()
                self._copy(worker, "stdout", process.read)
                errors.join()
                ended = Ended(worker, process.exit_code())
        except TpuctlError as error:
            ended = Ended(worker, error=error)
        except Exception as error:  # nobody else sees it, and the others would wait for this worker
            return self._put(_Bug(worker, error))
        return self._put(ended)

    def _start(self, worker: int, session: SshSession) -> RemoteProcess:
        if self._is_cancelled():
            raise HostError(f"worker {worker}: the command was not started.")
        process = session.start(self._argv)
        with self._lock:
            self._processes[worker] = process
        if self._is_cancelled():  # meanwhile
            process.end_input()
        return process

    def _is_cancelled(self) -> bool:
        with self._lock:
            return self._cancelled

    def _copy(self, worker: int, stream: Stream, read: Callable[[], bytes]) -> None:
        with suppress(HostError):  # the exit code says it
            while data := read():
                self._put(Output(worker, stream, data))

    def _put(self, event: Event | _Bug) -> None:
        """Hand an event over, as soon as the earlier ones are shown."""
        while not self._closed:
            with suppress(queue.Full):
                self._events.put(event, timeout=CHECK_INTERVAL)
                return
