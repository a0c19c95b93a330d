"""Runs the programs of one host, each the leader of its own session."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import asyncssh

from tpuctl.sim.hosts.programs import login_step
from tpuctl.sim.hosts.programs.processes import readable

CHARACTERS = (
    *("VINTR", "VQUIT", "VERASE", "VKILL", "VEOF", "VEOL", "VEOL2", "VSTART", "VSTOP", "VSUSP", "VDSUSP"),
    *("VREPRINT", "VWERASE", "VLNEXT", "VSWTCH", "VSTATUS", "VDISCARD"),
)
FLAGS = {
    # index in what termios.tcgetattr returns: names of its bits
    0: (
        *("IGNPAR", "PARMRK", "INPCK", "ISTRIP", "INLCR", "IGNCR", "ICRNL", "IUCLC", "IXON", "IXANY"),
        *("IXOFF", "IMAXBEL", "IUTF8"),
    ),
    1: ("OPOST", "OLCUC", "ONLCR", "OCRNL", "ONOCR", "ONLRET"),
    2: ("CS7", "CS8", "PARENB", "PARODD"),
    3: (
        *("ISIG", "ICANON", "XCASE", "ECHO", "ECHOE", "ECHOK", "ECHONL", "NOFLSH", "TOSTOP", "IEXTEN"),
        *("ECHOCTL", "ECHOKE", "PENDIN"),
    ),
}
SPEEDS = {4: "OP_ISPEED", 5: "OP_OSPEED"}
CONTROL_CHARACTERS = 6
"""Index of their list in what termios.tcgetattr returns."""
ASYNCSSH_NAMES = {"VWERASE": "WERASE"}
"""Names in asyncssh where they are not the system's."""
EXTRA_BITS = {"IUTF8": 0x4000} if sys.platform in ("linux", "darwin") else {}
"""Bits that Python's termios has no name for."""
DISABLED = 255
"""The value in SSH for a character that is switched off."""
UMASK = 0o022
"""That of a login on Ubuntu; the simulator's own is stricter."""

LOGIN_SIGNALS = signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}
"""All but those that Python itself ignores from its start, which subprocess restores."""

TerminalSize = tuple[int, int, int, int]
"""Columns, rows, width and height in pixels: the order of SSH's pty request."""


@dataclass(frozen=True)
class Command:
    """A program to start: `program` is its path, `argv[0]` the name that it gets."""

    program: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: Path


Enter = Callable[[Command], Command]
"""Puts a command into the namespaces of the host."""


class Program:
    """A started program and the simulator's non-blocking ends of its pipes or terminal.

    The reader or writer of an end closes it. `stderr` is None on a terminal, `terminal` is None on pipes.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        stdin: int,
        stdout: int,
        stderr: int | None,
        terminal: int | None,
    ) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self._terminal = terminal
        self._process = process
        self.ended = asyncio.create_task(self._wait())

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        """Send a signal to the program's process group; nothing once it has ended."""
        if self._process.returncode is None:
            try:
                os.killpg(self.pid, number)
            except (ProcessLookupError, PermissionError):  # macOS answers EPERM for a zombie's group
                pass

    def resize(self, size: TerminalSize) -> None:
        """Change the terminal's size; the kernel sends SIGWINCH to the programs in the foreground."""
        if self._terminal is not None:
            _set_size(self._terminal, size)

    def hang_up(self) -> None:
        """Close the terminal, as a lost connection does; nothing happens to a program on pipes."""
        if self._terminal is not None:
            self.signal(signal.SIGHUP)
            self._close_terminal()

    async def _wait(self) -> int:
        try:
            return await _exit_of(self._process)
        finally:
            self._close_terminal()

    def _close_terminal(self) -> None:
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None


class Programs:
    """Starts a host's programs and knows which are running; `furnish` is awaited before the first one."""

    def __init__(self, furnish: Callable[[], Awaitable[Enter]] | None = None) -> None:
        self._furnish = furnish
        self._furnishing = asyncio.Lock()
        self._enter: Enter | None = None
        self.spawn: Callable[..., subprocess.Popen[bytes]] = spawn
        """Starts a command with three streams; `furnish` may set another way."""
        self._running: set[Program] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def prepare(self) -> None:
        """Make what programs of this host need, once; `start` comes after it."""
        async with self._furnishing:
            if self._enter is None and self._furnish is not None:
                self._enter = await self._furnish()

    def start(self, command: Command) -> Program:
        """Start a program on three pipes; raises OSError when it cannot be."""
        (child_in, stdin), (stdout, child_out), (stderr, child_err) = os.pipe(), os.pipe(), os.pipe()
        try:
            process = self._spawn(_at_login(command), (child_in, child_out, child_err))
        except OSError:
            _close(stdin, stdout, stderr)
            raise
        finally:
            _close(child_in, child_out, child_err)
        return self._remember(Program(process, stdin, stdout, stderr, None))

    def start_on_terminal(
        self, command: Command, size: TerminalSize, modes: Mapping[int, int] | None = None
    ) -> Program:
        """Start a program on a new terminal, its controlling one; raises OSError when it cannot be.

        `modes` are those of the client's own terminal, by SSH's opcodes.
        """
        terminal, child = pty.openpty()
        try:
            _set_size(terminal, size)
            set_modes(child, modes or {})
            process = self._spawn(_on_terminal(command, os.ttyname(child)), (child, child, child))
        except OSError:
            _close(terminal)
            raise
        finally:
            _close(child)
        return self._remember(Program(process, os.dup(terminal), os.dup(terminal), None, terminal))

    def attend(self, work: Coroutine[None, None, None]) -> None:
        """Run what serves a program as a task that `close` waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def pids(self) -> set[int]:
        """Return the process ids of the running programs; each is its session's and group's too."""
        return {program.pid for program in self._running}

    async def close(self) -> None:
        """Wait for the end of all programs, which the caller has killed, and of all tasks."""
        while self._running or self._tasks:
            await asyncio.wait([*(program.ended for program in self._running), *self._tasks])
            await asyncio.sleep(0)

    def _spawn(self, command: Command, streams: tuple[int, int, int]) -> subprocess.Popen[bytes]:
        return self.spawn(self._enter(command) if self._enter else command, streams)

    def _remember(self, program: Program) -> Program:
        for descriptor in (program.stdin, program.stdout, program.stderr):
            if descriptor is not None:
                os.set_blocking(descriptor, False)
        self._running.add(program)
        program.ended.add_done_callback(lambda _: self._running.discard(program))
        return program


def spawn(command: Command, streams: tuple[int, int, int]) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own; raises OSError when it cannot be."""
    return subprocess.Popen(
        list(command.argv),
        executable=command.program,
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        env=dict(command.environment),
        cwd=command.folder,
        start_new_session=True,
        umask=UMASK,
    )


def _at_login(command: Command) -> Command:
    """Put a step before the program where it would inherit other signals than a login gives.

    `nohup`, and a shell's `&` in a script, start the simulator with signals ignored, and exec keeps that.
    """
    return command if _signals_are_default() else _after_step(command, "pipes")


def _on_terminal(command: Command, name: str) -> Command:
    """Put the step that takes the controlling terminal before the program."""
    environment = {**command.environment, "SSH_TTY": name}
    return _after_step(replace(command, environment=environment), "terminal")


def _after_step(command: Command, streams: str) -> Command:
    step = [sys.executable, "-I", "-S", str(login_step.__file__), streams, command.program]
    return replace(command, program=sys.executable, argv=[*step, *command.argv])


def _signals_are_default() -> bool:
    """Whether a program started now has no signal ignored or blocked; subprocess restores Python's own."""
    ignored = (number for number in LOGIN_SIGNALS if signal.getsignal(number) == signal.SIG_IGN)
    return not any(ignored) and not signal.pthread_sigmask(signal.SIG_BLOCK, [])


def _set_size(terminal: int, size: TerminalSize) -> None:
    columns, rows, width, height = size
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, width, height))


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


async def _exit_of(process: subprocess.Popen[bytes]) -> int:
    """Return the exit status, negative for a signal, once the program ends.

    asyncio's own child watchers are global to the Python process and differ between its versions; a pidfd
    (Linux 5.3) needs neither them nor a thread.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not Linux; an older or a sandboxed kernel
        return await _exit_in_thread(process)
    try:
        await readable(descriptor)
    finally:
        os.close(descriptor)
    return process.wait()


async def _exit_in_thread(process: subprocess.Popen[bytes]) -> int:
    loop = asyncio.get_running_loop()
    status: asyncio.Future[int] = loop.create_future()

    def finish(number: int) -> None:
        if not status.done():
            status.set_result(number)

    def wait() -> None:
        try:
            loop.call_soon_threadsafe(finish, process.wait())
        except RuntimeError:  # the loop is closed, and nothing waits for the status
            pass

    threading.Thread(target=wait, name=f"exit of {process.pid}", daemon=True).start()
    return await status


# Sets a client's terminal modes on a host's terminal: RFC 4254, section 8.


def set_modes(terminal: int, modes: Mapping[int, int]) -> None:
    """Set the client's modes (opcode: value) that this system has; others stay as they are."""
    state = termios.tcgetattr(terminal)
    for index, bit, value in _bits(modes):
        state[index] = state[index] | bit if value else state[index] & ~bit
    for name in CHARACTERS:
        position = getattr(termios, name, None)
        if _opcode(name) in modes and position is not None:
            state[CONTROL_CHARACTERS][position] = _character(terminal, modes[_opcode(name)])
    for index, name in SPEEDS.items():
        speed = getattr(termios, f"B{modes.get(_opcode(name))}", None)
        state[index] = state[index] if speed is None else speed
    termios.tcsetattr(terminal, termios.TCSANOW, state)


def _bits(modes: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
    for index, names in FLAGS.items():
        for name in names:
            value = modes.get(_opcode(name))
            bit = getattr(termios, name, EXTRA_BITS.get(name))
            if value is not None and bit is not None:
                yield index, bit, value


def _opcode(name: str) -> int:
    opcode: int = getattr(asyncssh, f"PTY_{ASYNCSSH_NAMES.get(name, name)}")
    return opcode


def _character(terminal: int, value: int) -> bytes:
    none = os.fpathconf(terminal, "PC_VDISABLE")
    return bytes([none & 0xFF if value == DISABLED else value & 0xFF])
