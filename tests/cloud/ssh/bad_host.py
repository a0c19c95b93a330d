"""An SSH server that stops answering at one step of a connection."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paramiko

from tpuctl.cloud.ssh import dial_address, make_key
from tpuctl.cloud.ssh.dialing import load_key
from tpuctl.nodes import Node


class BadHost(paramiko.ServerInterface):
    """Hangs at a step: greeting, key exchange, login, channel, command or output; or refuses: refusal.

    It hangs up at the end of the test.
    """

    def __init__(self, step: str, folder: Path) -> None:
        self._step = step
        make_key(folder / "host key")
        self._key = load_key(folder / "host key")
        self._published = self._key.get_base64()
        self.hangs_up = False
        """Whether it ends the connection at the step instead."""
        self._end = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._transport: paramiko.Transport | None = None
        self._stream: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.asked_alive = threading.Event()
        """Set once the client has sent a packet for its own sake."""
        self._dialed: list[socket.socket] = []

    @property
    def host_key(self) -> str:
        """Its public key, as a node publishes it."""
        return self._published

    def dial(self, node: Node, worker: int) -> socket.socket:
        """Connect to it, whatever the worker."""
        self._dialed.append(dial_address(*self._listener.getsockname()))
        return self._dialed[-1]

    @property
    def is_left(self) -> bool:
        """Whether the client has closed every connection."""
        return all(stream.fileno() == -1 for stream in self._dialed)

    @contextmanager
    def served(self) -> Iterator[BadHost]:
        """Serve one client within the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._end.set()
            if self._transport:
                self._transport.packetizer.complete_handshake()
                self._transport.close()
            self._listener.close()
            self._thread.join(60)

    def _serve(self) -> None:
        self._stream, _ = self._listener.accept()
        with self._stream:
            if self._step in ("greeting", "key exchange"):
                self._stream.sendall(b"SSH-2.0-bad\r\n" if self._step == "key exchange" else b"")
                while not self.hangs_up and self._stream.recv(4096):
                    pass
            else:
                self._transport = paramiko.Transport(self._stream)
                self._transport.add_server_key(self._key)
                self._transport.start_server(threading.Event(), self)
                self._transport.join()

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._hang("login")
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        self._hang("channel")
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self._hang("command")
        return self._step != "refusal"

    def present_another_type(self) -> None:
        """Have a host key of another type than the published one."""
        self._key = paramiko.ECDSAKey.generate()

    def check_global_request(self, kind: str, msg: paramiko.Message) -> bool:
        self.asked_alive.set()
        return False

    def reset(self) -> None:
        """End the connection as a router does that has forgotten it."""
        assert self._stream
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._stream.close()

    def _hang(self, step: str) -> None:
        if self._step == step:
            if self.hangs_up and self._stream:
                self._stream.shutdown(socket.SHUT_RDWR)
            self._end.wait(60)
