"""Holds the present connection to a host, for which clients wait while it is opened again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuctl.cloud.ssh import ByteStream
    from tpuctl.cloud.ssh.ports import HostPorts

PATIENCE = 60.0
"""Seconds that a client waits for a connection."""


class Link:
    """The connection that all forwarded ports share; there may be none for a while."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ports: HostPorts | None = None
        self._closed = False

    def attach(self, ports: HostPorts | None) -> None:
        """Take another connection, or None when it is lost."""
        with self._changed:
            self._ports = ports
            self._changed.notify_all()

    def close(self) -> None:
        """Let no client wait any longer."""
        with self._changed:
            self._closed, self._ports = True, None
            self._changed.notify_all()

    def open(self, port: int, origin: tuple[str, int]) -> ByteStream:
        """Connect to a port of the host, once there is a connection.

        Raises ConnectionRefusedError where nothing listens, ConnectionError without a connection for so long.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ports or self._closed, PATIENCE)
            ports = self._ports
        if ports is None:
            raise ConnectionError("there is no connection to the host")
        return ports.open(port, origin)
