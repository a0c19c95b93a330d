"""Runs one SSH session on a host: a command, a shell, with or without a terminal, or SFTP."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path

import asyncssh

from tpuctl.sim.hosts.programs.descriptors import CHUNK, read, write
from tpuctl.sim.hosts.programs.disk_full import is_full
from tpuctl.sim.hosts.programs.login import Peer, command_line, login_environment
from tpuctl.sim.hosts.programs.programs import Program, Programs

SIGNALS = {
    name: signal.Signals[f"SIG{name}"]
    for name in (
        "ABRT",
        "ALRM",
        "FPE",
        "HUP",
        "ILL",
        "INT",
        "KILL",
        "PIPE",
        "QUIT",
        "SEGV",
        "TERM",
        "USR1",
        "USR2",
    )
}
"""The signals SSH has names for (RFC 4254, section 6.10)."""
CANNOT_START = 127
LONGEST_NOTE = 200
"""Characters of a command that are kept in events."""

Environment = Callable[[], dict[str, str]]


class HostSession(asyncssh.SSHServerProcess[bytes]):
    """Copies between an SSH channel and a program, as sshd does.

    When the connection is lost, a program on a terminal gets SIGHUP; one on pipes sees the end of its input
    and keeps running. asyncssh's own redirection is not used: after a program has closed its input, it never
    resumes reading from the channel, and the client's writes hang.
    """

    def __init__(
        self, programs: Programs, environment: Environment, home: Path, note: Callable[[str, str], None]
    ) -> None:
        super().__init__(self._begin, partial(HomeSftp, home), 3, False)
        self._programs = programs
        self._environment = environment
        self._home = home
        self._note = note
        self._program: Program | None = None
        self._pumps: list[asyncio.Task[None]] = []
        self._lost = False

    def subsystem_requested(self, subsystem: str) -> bool:
        """Accept SFTP alone."""
        self._note(subsystem, "")
        return subsystem == "sftp"

    def pty_requested(self, *_: object) -> bool:
        """Give a terminal to every client that requests one."""
        return True

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        """Resize the program's terminal."""
        if self._program:
            self._program.resize((width, height, pixwidth, pixheight))

    def signal_received(self, signal: str) -> None:
        """Pass a signal on to the program's group; ignore unknown names, as sshd does."""
        if self._program and signal in SIGNALS:
            self._program.signal(SIGNALS[signal])

    def break_received(self, msec: int) -> bool:
        """Refuse: there is no serial line."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the simulator's ends of the pipes; hang the terminal up."""
        super().connection_lost(exc)
        self._lost = True
        for pump in self._pumps:
            pump.cancel()
        if self._program:
            self._program.hang_up()

    def _begin(self, _: asyncssh.SSHServerProcess[bytes]) -> None:
        self._programs.attend(self._serve())

    async def _serve(self) -> None:
        await self._programs.prepare()
        if self._lost:
            return
        try:
            program = self._program = self._start()
        except OSError as error:
            self.stderr.write(f"{error}\n".encode())
            self.exit(CANNOT_START)
            return
        outputs = [_pump(_send(program.stdout, self.stdout), program.stdout)]
        if program.stderr is not None:
            outputs.append(_pump(_send(program.stderr, self.stderr), program.stderr))
        feeding = _pump(_receive(self.stdin, program.stdin), program.stdin)
        self._pumps = [*outputs, feeding]
        await asyncio.wait(outputs)
        status = await program.ended
        feeding.cancel()
        await asyncio.wait([feeding])
        if not self._lost:
            self._report(status)

    def _start(self) -> Program:
        user = str(self.get_extra_info("username"))
        peer = Peer(self.get_extra_info("peername")[:2], self.get_extra_info("sockname")[:2])
        environment = {**login_environment(user, peer, self.env), **self._environment()}
        self._note("exec" if self.command else "shell", (self.command or "")[:LONGEST_NOTE])
        command = command_line(self.command, environment, self._home, full=is_full(self._home))
        if self.term_type is None:
            return self._programs.start(command)
        environment["TERM"] = self.term_type
        return self._programs.start_on_terminal(command, self.term_size, self.term_modes)

    def _report(self, status: int) -> None:
        if status >= 0:
            self.exit(status)
            return
        name = signal.Signals(-status).name.removeprefix("SIG")
        self.exit_with_signal(name if name in SIGNALS else f"{name}@openssh.com")


def _pump(work: Coroutine[None, None, None], descriptor: int) -> asyncio.Task[None]:
    """Run `work`, then close its descriptor, also when it is cancelled before its first step."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda _: os.close(descriptor))
    return task


async def _send(source: int, target: asyncssh.SSHWriter[bytes]) -> None:
    """Copy a program's output to the channel until it ends, or the client is gone."""
    try:
        while data := await read(source):
            target.write(data)
            await target.drain()
    except (OSError, asyncssh.Error):
        pass


async def _receive(source: asyncssh.SSHReader[bytes], target: int) -> None:
    """Copy the channel's input to the program; drop it once the program has closed its end.

    The end of the channel's input does not close a terminal; sshd types no Ctrl-D either.
    """
    reading = True
    try:
        while data := await source.read(CHUNK):
            reading = reading and await _is_written(target, data)
    except (OSError, asyncssh.Error):
        pass


async def _is_written(target: int, data: bytes) -> bool:
    try:
        await write(target, data)
    except OSError:
        return False
    return True


# Serves SFTP on a host: absolute paths are those of this machine, relative ones start at the host's home.


class HomeSftp(asyncssh.SFTPServer):
    """asyncssh's SFTP server, started in the host's home instead of the simulator's working directory."""

    def __init__(self, home: Path, channel: asyncssh.SSHServerChannel[bytes]) -> None:
        super().__init__(channel)
        self._folder = home
        self._home = os.fsencode(home)

    def map_path(self, path: bytes) -> bytes:
        """Return the local path for one that the client gave."""
        return os.path.join(self._home, path)

    def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> object:
        """Open a file; on a full disk none can be created or truncated."""
        self._require_room(asyncssh.FXF_CREAT | asyncssh.FXF_TRUNC, pflags)
        return super().open(path, pflags, attrs)

    def write(self, file_obj: object, offset: int, data: bytes) -> int | Awaitable[int]:
        """Write into a file, unless the disk is full."""
        self._require_room(1, 1)
        return super().write(file_obj, offset, data)

    def mkdir(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        """Make a folder, unless the disk is full."""
        self._require_room(1, 1)
        super().mkdir(path, attrs)

    def _require_room(self, growing: int, flags: int) -> None:
        if flags & growing and is_full(self._folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def exit(self) -> None:
        """Report success at the end, as sftp-server does; scp fails otherwise."""
        self.channel.exit(0)
