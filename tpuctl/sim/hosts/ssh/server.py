"""Serves SSH for one host: public keys only; sessions, SFTP, and forwarding within the node."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import asyncssh

from tpuctl.sim.access.guard import Guard
from tpuctl.sim.hosts.programs.own_ports import is_taken, loopback_of
from tpuctl.sim.hosts.programs.programs import Programs
from tpuctl.sim.hosts.ssh.authorized_keys import AuthorizedKeys
from tpuctl.sim.hosts.ssh.forwarded_ports import ForwardedPorts
from tpuctl.sim.hosts.ssh.session import Environment, HostSession
from tpuctl.sim.network.ports import LOOPBACK
from tpuctl.sim.records import Host

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
