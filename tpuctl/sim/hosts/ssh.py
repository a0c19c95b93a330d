"""The SSH server of a simulated host: connections, sessions, accepted keys, SFTP.

- Reads the SSH keys that a host accepts from the metadata of its node and its project.
- Connects to ports of a host for clients that forward them, and refuses to feed a forward with itself.
- Runs one SSH session on a host: a command, a shell, with or without a terminal, or SFTP.
- Serves SSH for one host: public keys only; sessions, SFTP, and forwarding within the node.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import shutil
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, cast

import asyncssh
from asyncssh.forward import SSHForwarder

from tpuctl.sim.access import Guard
from tpuctl.sim.hosts.programs.login import Peer, command_line, login_environment
from tpuctl.sim.hosts.programs.own_ports import is_taken, loopback_of
from tpuctl.sim.hosts.programs.processes import CHUNK, is_full, read, write
from tpuctl.sim.hosts.programs.programs import Program, Programs
from tpuctl.sim.network.tunnels import LOOPBACK
from tpuctl.sim.records import Host

KEYS = "ssh-keys"
OLD_KEYS = "sshKeys"
"""The former name; on a node it also disables the project's keys, as gcloud's ssh_utils.py says."""
BLOCK = "block-project-ssh-keys"

OS_LOGIN = "enable-oslogin"
TRUE = ("1", "t", "true")
"""As Google's guest agent reads a flag: Go's ParseBool, in any case."""

KeySet = frozenset[tuple[str, bytes]]


class AuthorizedKeys:
    """The keys in force: those at boot, then those of each change, `delay` seconds later.

    A real host's guest agent needs such a time to notice a change.
    """

    def __init__(self, text: str, delay: float, clock: Callable[[], float]) -> None:
        self._delay = delay
        self._clock = clock
        self._text = text
        self._changes: list[tuple[float, KeySet]] = [(clock(), parse_keys(text))]

    def change(self, text: str) -> None:
        """Have `text`, the new lines of `ssh-keys`, in force after the delay."""
        if text != self._text:
            self._text = text
            self._changes.append((self._clock() + self._delay, parse_keys(text)))

    def allows(self, user: str, public_key: bytes) -> bool:
        """Return whether `user` may log in now with this key (its blob in SSH's wire format)."""
        now = self._clock()
        while len(self._changes) > 1 and self._changes[1][0] <= now:
            del self._changes[0]
        return (user, public_key) in self._changes[0][1]


def accepted_keys(node: Mapping[str, str], project: Mapping[str, str]) -> str:
    """Return the lines of `ssh-keys` that apply to a host, by the metadata of its node and its project.

    None do where OS Login is on; keys in profiles of OS Login are not simulated.
    """
    if node.get(OS_LOGIN, project.get(OS_LOGIN, "")).strip().lower() in TRUE:
        return ""
    alone = OLD_KEYS in node or node.get(BLOCK, "").upper() == "TRUE"
    sources = [node] if alone else [node, project]
    return "\n".join(source[name] for source in sources for name in (KEYS, OLD_KEYS) if name in source)


def parse_keys(text: str) -> KeySet:
    """Read lines `USER:TYPE BASE64 COMMENT`; lines of another shape are skipped, as the guest agent does."""
    return frozenset(filter(None, map(_parse_line, text.splitlines())))


def _parse_line(line: str) -> tuple[str, bytes] | None:
    user, colon, key = line.strip().partition(":")
    words = key.split()
    if not colon or not user or len(words) < 2:
        return None
    try:
        return user, base64.b64decode(words[1], validate=True)
    except ValueError:
        return None


Route = tuple[int, int]
"""The port that a connection comes from, and the one that it goes to."""


class ForwardedPorts:
    """The connections that one host has open for its clients.

    What is not its own is this machine's. Where nothing listens on port 6006 but `ssh -L 6006:localhost:6006`
    itself, each connection would open the next one.
    """

    def __init__(self) -> None:
        self._routes: set[Route] = set()

    async def connect(self, address: str, port: int, origin_port: int) -> asyncssh.SSHTCPSession[bytes]:
        """Return the session of a client's channel; raises ChannelOpenError where nothing listens.

        `origin_port` is the port from which the client's own client came.
        """
        if (origin_port, port) in self._routes:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "only this forward listens there")
        # A port that is bound is used for no other connection, so the origin says whose it is.
        source = (address, 0) if address == LOOPBACK else None
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: _ForwardedConnection(self._routes), address, port, local_addr=source
            )
        except OSError as error:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error)) from None
        return cast("asyncssh.SSHTCPSession[bytes]", SSHForwarder(connection))


class _ForwardedConnection(SSHForwarder):
    def __init__(self, routes: set[Route]) -> None:
        super().__init__()
        self._routes = routes
        self._route: Route = (0, 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._route = transport.get_extra_info("sockname")[1], transport.get_extra_info("peername")[1]
        self._routes.add(self._route)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._routes.discard(self._route)
        super().connection_lost(exc)


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


LOCAL_NAMES = ("localhost", LOOPBACK, "::1", "0.0.0.0", "")  # noqa: S104  names to recognise
KEX = ("curve25519-sha256", "curve25519-sha256@libssh.org", "ecdh-sha2-nistp256")
"""paramiko knows the first only by its second name. The large Diffie-Hellman groups cost it 70 ms each."""
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr")
LOGIN_TIMEOUT = 120
CLOSE_TIMEOUT = 5.0
ROUNDS = 10
"""Turns of the event loop in which a connection that was just accepted is made."""


@dataclass(frozen=True)
class SshHost:
    """The parts of a host that its SSH server uses."""

    host: Host
    home: Path
    keys: AuthorizedKeys
    programs: Programs
    environment: Environment
    guard: Guard
    note: Callable[[str, str], None]
    """Notes an event: the kind of request (login, exec, shell, sftp) and its detail."""
    view: Path
    """The folder that stands for the root of its file system."""


class SshServer:
    """One listening socket and the connections that came through it."""

    def __init__(self, host: SshHost) -> None:
        self._host = host
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._listener: socket.socket | None = None
        self._key: asyncssh.SSHKey | None = None
        self._closed = False
        self.logins: Logins | None = None
        self.forwarded_ports = ForwardedPorts()

    async def open(self, listener: socket.socket, host_key: asyncssh.SSHKey | None = None) -> None:
        """Serve on `listener`; without `host_key`, with the key of the last call."""
        host_key = self._key = host_key or self._key
        self.logins = self.logins or Logins(self._host.view)
        self._listener = listener
        self._acceptor = await asyncssh.listen(
            sock=listener,
            server_factory=lambda: _Connection(self._host, self),
            server_host_keys=[host_key],
            encoding=None,
            line_editor=False,
            kex_algs=KEX,
            encryption_algs=CIPHERS,
            compression_algs=None,
            password_auth=False,
            kbdint_auth=False,
            host_based_auth=False,
            gss_host=None,
            agent_forwarding=False,
            login_timeout=LOGIN_TIMEOUT,
        )

    async def refuse(self) -> None:
        """Stop listening; open connections stay, and `open` accepts new ones again."""
        await self._stop_listening()
        self._acceptor = None

    def change_key(self, host_key: asyncssh.SSHKey) -> None:
        """Present another host key on new connections."""
        self._key = host_key
        if self._acceptor is not None:
            self._acceptor.update(server_host_keys=[host_key])

    def pause(self, *, pausing: bool) -> None:
        """Stop reading from the open connections, or resume."""
        for connection in self._connections:
            transport = connection._transport  # asyncssh offers no public way
            if transport is not None and not transport.is_closing():
                (transport.pause_reading if pausing else transport.resume_reading)()

    async def cut(self) -> None:
        """Cut the open connections, as a machine that dies does."""
        cutting = [asyncio.create_task(_cut(connection)) for connection in self._connections]
        if cutting:
            await asyncio.wait(cutting, timeout=CLOSE_TIMEOUT)

    async def close(self) -> None:
        """Refuse new connections and cut the open ones, as a machine that dies does."""
        self._closed = True
        await self._stop_listening()
        await self.cut()
        if self._acceptor is not None:
            await self._acceptor.wait_closed()
            self._acceptor = None

    async def _stop_listening(self) -> None:
        """Close the acceptor once all that was accepted is made: asyncio loses, unclosed, what is not."""
        acceptor = self._acceptor
        if acceptor is None:
            return
        if self._listener is not None and self._listener.fileno() != -1:
            asyncio.get_running_loop().remove_reader(self._listener)
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        acceptor.close()

    def admit(self, connection: asyncssh.SSHServerConnection) -> None:
        """Remember a new connection; one that was accepted during `close` is cut."""
        self._connections.add(connection)
        if self._closed:
            connection.abort()

    def forget(self, connection: asyncssh.SSHServerConnection) -> None:
        """Forget a connection that has ended."""
        self._connections.discard(connection)


class _Connection(asyncssh.SSHServer):
    """The permissions of one client."""

    def __init__(self, host: SshHost, server: SshServer) -> None:
        self._host = host
        self._server = server
        self._connection: asyncssh.SSHServerConnection | None = None
        self._login: Path | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._server.admit(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._server.forget(self._connection)
        if self._login is not None and self._server.logins:
            self._server.logins.remove(self._login)

    def auth_completed(self) -> None:
        if self._connection is not None and self._server.logins:
            self._login = self._server.logins.add(str(self._connection.get_extra_info("username")))

    def begin_auth(self, username: str) -> bool:
        self._host.note("login", username)
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return self._host.keys.allows(username, key.public_data)

    def session_requested(self) -> HostSession:
        return HostSession(self._host.programs, self._host.environment, self._host.home, self._host.note)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Awaitable[Any]:
        """Connect to a port of this host or of another host of its node, and to no other address."""
        return self._server.forwarded_ports.connect(self._resolve(dest_host, dest_port), dest_port, orig_port)

    async def server_requested(self, listen_host: str, listen_port: int) -> asyncssh.SSHListener:
        """Listen on loopback for any address that the client names: sshd's GatewayPorts defaults to off."""
        assert self._connection is not None

        def admits(client: str, port: int) -> bool:
            return not self._host.guard.is_foreign_address((client, port), (LOOPBACK, listener.get_port()))

        listener = await self._connection.forward_local_port(
            LOOPBACK, listen_port, listen_host, listen_port, accept_handler=admits
        )
        return listener

    def _resolve(self, name: str, port: int) -> str:
        host = self._host.host
        if name in LOCAL_NAMES:
            own = (loopback_of(host.address), host.address)
            return next((address for address in own if is_taken(address, port)), LOOPBACK)
        if name == host.hostname:
            return host.address
        if name in host.peers or name == host.address:
            return name
        raise asyncssh.ChannelOpenError(
            asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, f"{name} is not on this simulated network"
        )


async def _cut(connection: asyncssh.SSHServerConnection) -> None:
    connection.abort()
    await connection.wait_closed()


# Shows who is logged in on a host, as sshd's own processes do in /proc of a real one.


class Logins:
    """A folder `proc/N/` for each connection, whose `cmdline` is the title of sshd's process for it.

    The folder stands for the root of the host's file system: the machine's own /proc shows every host.
    """

    def __init__(self, view: Path) -> None:
        self._proc = view / "proc"
        self._numbers = count(1)
        shutil.rmtree(self._proc, ignore_errors=True)
        self._proc.mkdir(parents=True, mode=0o700)

    def add(self, user: str) -> Path:
        """Show that a user is logged in; returns what `remove` takes."""
        entry = self._proc / str(next(self._numbers))
        entry.mkdir(mode=0o700)
        (entry / "cmdline").write_text(f"sshd: {user}@notty")
        return entry

    def remove(self, entry: Path) -> None:
        """Show that the user has logged out."""
        shutil.rmtree(entry, ignore_errors=True)
